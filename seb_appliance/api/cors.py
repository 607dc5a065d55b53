"""Web pages of other origins: which may use the API, and what a browser is told of it (CORS).

An API key or ticket is always sent by the page itself, never by the browser on its own, so an
origin that is let in may do what its API key may, and no more.
"""

from __future__ import annotations

from typing import Final

from litestar.types import HTTPScope

from seb_appliance.api.answers import Headers

ANY: Final = "*"
_PATHS: Final = "/v1/"
_PREFLIGHT: Final[Headers] = [
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
    # The star does not cover Authorization.
    (b"access-control-allow-headers", b"Authorization, *"),
    (b"access-control-max-age", b"600"),
]


class Cors:
    """`origins`: as `https://a.example`, or `*` for all; none turns it off."""

    def __init__(self, origins: frozenset[str]) -> None:
        self._origins = origins

    def headers(self, scope: HTTPScope) -> Headers:
        """What every answer to this request carries."""
        if not self._origins or not scope["path"].startswith(_PATHS):
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
        known = ANY in self._origins or origin.decode("latin-1") in self._origins
        return origin if known else None
