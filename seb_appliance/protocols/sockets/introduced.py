"""A connection of whose client a trusted proxy tells the address and the certificate."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from seb_appliance.api.server.transports import ForwardingTransport

CERTIFICATE: Final = "common_name"  # the name of this extra information
_ATTRIBUTES: Final = re.compile(r"(?:[^\\,+]|\\.)+")


class Introduced(ForwardingTransport):
    """`address`: the client's; None is that of `inner`. `certificate`: the common name of the
    client certificate that the proxy has verified, if there is one."""

    def __init__(
        self, inner: asyncio.Transport, address: str | None, certificate: str | None
    ) -> None:
        super().__init__(inner)
        self._address = address
        self._certificate = certificate

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername" and self._address is not None:
            return self._address, 0
        if name == CERTIFICATE:
            return self._certificate
        return super().get_extra_info(name, default)


def common_name(subject: str) -> str | None:
    """The common name in the subject of a certificate, as of RFC 4514: `CN=a,O=b`. A text without
    `=` is a common name itself. None if there is none, or more than one."""
    if "=" not in subject:
        return subject.strip() or None
    if '"' in subject:  # an older notation, in which commas need no backslash
        return None
    parts = [part.partition("=") for part in _ATTRIBUTES.findall(subject)]
    names = [value.strip() for kind, _, value in parts if kind.strip().upper() == "CN"]
    return names[0] if len(names) == 1 else None
