"""Files that pages load: read once, named by their content, kept by browsers for a year."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.errors import NotFoundError
from seb_appliance.ui.answers import Sent
from seb_appliance.ui.page_context import AnyRequest

# The name in pages → (path under the static folder, content type).
_FILES: Final = {
    "seb.css": ("seb.css", b"text/css; charset=utf-8"),
    "seb.js": ("seb.js", b"text/javascript; charset=utf-8"),
    "live.js": ("live.js", b"text/javascript; charset=utf-8"),
    "htmx.js": ("vendor/htmx/htmx.min.js", b"text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", b"image/svg+xml"),
}
_YEAR: Final = b"public, max-age=31536000, immutable"


class Assets:
    """Read at the start, so that a request does no I/O."""

    def __init__(self, static: Path) -> None:
        self._urls: dict[str, str] = {}
        self._files: dict[str, tuple[bytes, bytes]] = {}
        for name, (path, content_type) in _FILES.items():
            content = (static / path).read_bytes()
            stem, _, suffix = name.partition(".")
            named = f"{stem}.{hashlib.sha256(content).hexdigest()[:12]}.{suffix}"
            self._urls[name] = f"/ui/static/{named}"
            self._files[named] = (content, content_type)

    def url(self, name: str) -> str:
        """The path of a file by its name in pages."""
        return self._urls[name]

    def find(self, named: str) -> tuple[bytes, bytes]:
        """Content and content type. Raises NotFoundError."""
        found = self._files.get(named)
        if found is None:
            raise NotFoundError("The admin page has no such file.")
        return found


def routes(assets: Assets) -> list[HTTPRouteHandler]:
    @get("/static/{named:str}")
    async def asset(request: AnyRequest) -> ASGIApp:
        content, content_type = assets.find(request.scope["path_params"]["named"])
        return Sent(200, [(b"content-type", content_type), (b"cache-control", _YEAR)], content)

    return [asset]
