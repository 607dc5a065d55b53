"""Which addresses the appliance may send to, and what a URL must look like.

A subscription's URL is chosen by whoever may manage a queue, and the appliance stands in a network
that this person may not reach. So it sends only to addresses of the public internet, and to those
that the operator's setting `push_networks` names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from seb_appliance import limits
from seb_appliance.errors import BadRequestError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# The last 32 bits are the address that a gateway between IPv6 and IPv4 sends to (RFC 6052).
_GATEWAY: Final = ipaddress.ip_network("64:ff9b::/96")
# What Python's `is_global` lets through, in one release or another: networks of protocols and
# tunnels (RFC 6890 and its registry), and the host of Azure's virtual machines.
_SPECIAL: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32",
            "64:ff9b:1::/48", "100::/64", "2001::/23", "2002::/16", "3fff::/20", "5f00::/16",
        ),
    )
)  # fmt: skip


def is_permitted(text: str, networks: Sequence[Network]) -> bool:
    """Whether a request may go to this address. `networks`: those of `push_networks`."""
    address = _address(text)
    return address is not None and (_is_in(address, networks) or _is_public(address))


def is_listed(text: str, networks: Sequence[Network]) -> bool:
    """Whether it is an address in one of these networks."""
    address = _address(text)
    return address is not None and _is_in(address, networks)


def is_address(text: str) -> bool:
    """Whether it is no name."""
    return _address(text) is not None


def _address(text: str) -> Address | None:
    try:
        return _meant(ipaddress.ip_address(text))
    except ValueError:
        return None


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 address leads to, if it does."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _GATEWAY:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in one for one in networks)


def _is_public(address: Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
        and not (isinstance(address, ipaddress.IPv6Address) and address.is_site_local)
        and not _is_in(address, _SPECIAL)
    )


class Target(NamedTuple):
    """A URL in its parts. `host`: as it is resolved and verified; `authority`: of the header Host;
    `path`: with the query."""

    secure: bool
    host: str
    port: int
    authority: str
    path: str

    @classmethod
    def of(cls, url: str) -> Target:
        """Raises BadRequestError."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadRequestError(f"url: {error}.") from error
        plain = url.isascii() and url.isprintable() and not set(' "<>\\^`{|}') & set(url)
        if not plain or len(url) > limits.PUSH_URL_LENGTH_MAX:
            raise BadRequestError("url must be ASCII; percent-encode everything else.")
        if parts.scheme not in ("https", "http") or not parts.hostname or port == 0:
            raise BadRequestError("url must look like https://host.example/path.")
        if "@" in parts.netloc or "#" in url:
            raise BadRequestError(
                "url must have neither a user nor a fragment; send credentials in headers."
            )
        secure = parts.scheme == "https"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(secure, parts.hostname, port or (443 if secure else 80), parts.netloc, path)
