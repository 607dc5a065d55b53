"""Addresses of appliances, and of what is in them."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

from seb_appliance.errors import ConfigurationError

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


def path_of(*segments: str) -> str:
    """`/v1/…`. The appliance refuses names that are not valid."""
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)
