"""Connections of a port: how many there may be, and TLS."""

from __future__ import annotations

import ssl
from collections import Counter
from pathlib import Path

from seb_appliance.errors import ConfigurationError


class Connections:
    """Counts the open connections of a port: at most `most`, of them `of_address` of each
    address."""

    def __init__(self, most: int, of_address: int) -> None:
        self._most = most
        self._of_address = of_address
        self._by_address: Counter[str] = Counter()
        self.open = 0

    def enter(self, address: str) -> bool:
        """Whether there is room for one more. It counts in any case, until `leave`."""
        self.open += 1
        self._by_address[address] += 1
        return self._by_address[address] <= self._of_address and self.open <= self._most

    def leave(self, address: str) -> None:
        self.open -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class Tls:
    """The context of a port. Open connections keep the certificate that they began with."""

    def __init__(self, certificate: Path, client_ca: Path | None, setting: str) -> None:
        """As of `tls_context`."""
        self.context = tls_context(certificate, client_ca, setting)
        self._certificate = certificate
        self._client_ca = client_ca
        self._setting = setting
        self._seen = self._stamp()

    def renew(self) -> bool:
        """Load the files again if they have changed; whether they have. Blocks. Certificates that
        are no longer in `client_ca` count until a restart. Raises ConfigurationError, and then
        nothing is changed."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        tls_context(self._certificate, self._client_ca, self._setting)
        self.context.load_cert_chain(self._certificate)
        if self._client_ca is not None:
            self.context.load_verify_locations(self._client_ca)
        self._seen = stamp
        return True

    def _stamp(self) -> list[tuple[int, int]]:
        files = [file for file in (self._certificate, self._client_ca) if file is not None]
        try:
            return [(found.st_mtime_ns, found.st_ino) for found in map(Path.stat, files)]
        except OSError as error:
            raise ConfigurationError(f"{self._setting}: {error}") from error


def tls_context(certificate: Path, client_ca: Path | None, setting: str) -> ssl.SSLContext:
    """`certificate`: a PEM file with the key. With `client_ca` a client needs a certificate, too.
    Raises ConfigurationError that names `setting`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(client_ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"{setting}: {error}") from error
    return context
