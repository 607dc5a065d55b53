"""Addresses: of appliances and what is in them, of buckets, of networks."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import SplitResult, quote, urlsplit

from seb_appliance.errors import ConfigurationError
from seb_appliance.quantities import size_bytes

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# Of a topic or a group, which has at most limits.NAME_LENGTH_MAX characters.
NAME_PATTERN: Final = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*"


def parse_url(url: str) -> SplitResult:
    """Raises ConfigurationError; a password in it is not shown."""
    if "@" in url:
        raise ConfigurationError(
            "url must not contain a user or a password; use --key-file for the API key"
        )
    try:
        parts = urlsplit(url)
        is_good = parts.port is None or parts.port > 0
    except ValueError:
        is_good = False
    if (
        not is_good
        or not url.isascii()
        or not url.isprintable()
        or " " in url
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
    ):
        raise ConfigurationError(f"url {url!r} must look like http://127.0.0.1:51313")
    return parts


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it: 127.0.0.1, ::1, localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def known_as(address: str) -> str:
    """Of a client by IPv4 to a socket of both kinds (`::ffff:192.0.2.1`) the IPv4 address: all of
    them would be of one IPv6 network otherwise. Any other address as it is."""
    return address.removeprefix("::ffff:") if "." in address else address


_IPV6_PREFIX: Final = 64  # one customer can use any address of it


def network_of(address: str) -> str:
    """Of whom an address is: an IPv4 address itself, and an IPv6 address its network. What is no
    address as it is: a Unix socket has none."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if ip.version == 4:
        return address
    return str(ipaddress.ip_network((int(ip), _IPV6_PREFIX), strict=False))


def path_of(*segments: str) -> str:
    """`/v1/…`. The appliance refuses names that are not valid."""
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)


def host_and_port(text: str) -> tuple[str, int]:
    """Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not (host and port.isdigit() and int(port) <= 65_535):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def words(text: str) -> list[str]:
    """What commas separate."""
    return [one.strip() for one in text.split(",")]


def networks(text: str | None) -> tuple[Network, ...]:
    """What commas separate. Raises ValueError."""
    return tuple(map(ipaddress.ip_network, text.split(","))) if text else ()


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A parsed `bucket` setting. `path`: of a directory. `name`, `prefix`: of S3. `ready_bytes`:
    memory to allocate at the start."""

    kind: Literal["file", "s3", "memory"]
    path: Path = Path()
    name: str = ""
    prefix: str = ""  # without slashes at its ends
    ready_bytes: int = 0

    @classmethod
    def parse(cls, text: str) -> BucketAddress:
        """Raises ConfigurationError that shows the valid forms."""
        kind, _, rest = text.partition(":")
        if kind == "file" and rest:
            return cls("file", path=Path(rest.removeprefix("//")))
        if kind == "s3" and rest.startswith("//"):
            name, _, prefix = rest[2:].partition("/")
            if name:
                return cls("s3", name=name, prefix=prefix.strip("/"))
        if kind == "memory":
            try:
                return cls("memory", ready_bytes=size_bytes(rest) if rest else 0)
            except ValueError:
                pass  # raises below
        raise ConfigurationError(
            f"bucket {text!r} is none of file:DIRECTORY, s3://BUCKET/PREFIX and memory:"
        )

    @property
    def uri(self) -> str:
        """Absolute, without a slash at the end: what readers of tables are told."""
        if self.kind == "file":
            return self.path.absolute().as_uri()
        return "/".join(filter(None, (f"s3://{self.name}", self.prefix)))
