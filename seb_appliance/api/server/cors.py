"""Web pages of other origins: which may use the API, and what a browser is told of it (CORS).

A ticket, or an API key as Bearer, is always sent by the page itself, so an origin that is let in
may do what its API key may, and no more. A browser attaches Basic credentials on its own, to
requests of any page: for these, and where no API key is asked for, `is_let_in` decides.
"""

from __future__ import annotations

from typing import Final

from litestar.types import HTTPScope

from seb_appliance.api.encoding.answers import Headers

ANY: Final = "*"
ORIGINS_STATE: Final = "seb_cors_origins"  # of a request: `ApiOptions.cors_origins`
# What a browser says of a page of the appliance itself, and of an address that somebody typed.
_OWN_SITES: Final = (b"same-origin", b"none")
_PATHS: Final = "/v1/"
_PREFLIGHT: Final[Headers] = [
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
    # The star does not cover Authorization.
    (b"access-control-allow-headers", b"Authorization, *"),
    (b"access-control-max-age", b"600"),
]


def is_let_in(headers: dict[bytes, bytes], origins: frozenset[str]) -> bool:
    """Whether no page asks, or one of the appliance itself or of an origin that is named. `*` names
    none: any page in the world could do everything."""
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1") in origins - {ANY}:
        return True
    # Where a page only embeds what it asks for, as an image or a script, no Origin is sent.
    if headers.get(b"sec-fetch-site", b"none") not in _OWN_SITES:
        return False
    host = headers.get(b"host", b"")
    return origin is None or (bool(host) and origin.partition(b"://")[2] == host)


class Cors:
    """`origins`: as `https://a.example`, or `*` for all; none turns it off."""

    def __init__(self, origins: frozenset[str]) -> None:
        self.origins = origins

    def headers(self, scope: HTTPScope) -> Headers:
        """What every answer to this request carries."""
        if not self.origins or not scope["path"].startswith(_PATHS):
            return []
        vary = (b"vary", b"Origin")
        origin = self._allowed(scope)
        if origin is None:
            return [vary]
        exposed = (b"access-control-expose-headers", b"*")
        return [vary, (b"access-control-allow-origin", origin), exposed]

    def preflight(self, scope: HTTPScope) -> Headers | None:
        """The headers of the answer, if a browser asks whether a page may ask."""
        asks = any(name == b"access-control-request-method" for name, _ in scope["headers"])
        if scope["method"] != "OPTIONS" or not asks or not self.headers(scope):
            return None
        return _PREFLIGHT if self._allowed(scope) is not None else []

    def _allowed(self, scope: HTTPScope) -> bytes | None:
        origin = next((value for name, value in scope["headers"] if name == b"origin"), None)
        if origin is None:
            return None
        known = ANY in self.origins or origin.decode("latin-1") in self.origins
        return origin if known else None
