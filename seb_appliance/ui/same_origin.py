"""Whether an unsafe request comes from a page of ours.

A browser says so itself, in headers that no page can set: Sec-Fetch-Site over HTTPS and on
localhost, Origin everywhere. So there is no token in forms. What says neither is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from seb_appliance.errors import ForbiddenError


def check_same_origin(headers: Mapping[bytes, bytes]) -> None:
    """Raises ForbiddenError."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        allowed = site == b"same-origin"
    else:
        # The scheme is not compared: behind a proxy that speaks TLS, ours differs.
        origin = headers.get(b"origin", b"").decode("latin-1")
        host = headers.get(b"host", b"").decode("latin-1")
        allowed = bool(host) and _host_of(origin) == host.lower()
    if not allowed:
        raise ForbiddenError(
            "This change was asked for from another site, or by a client that does not say where "
            "it comes from. Open the admin page itself; programs use the API with an API key."
        )


def _host_of(origin: str) -> str:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc.lower() if parts.scheme in ("http", "https") else ""
