"""The admin page below /ui: its pages, the files that they load, and the pages of errors."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from litestar import Response
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp

from seb_appliance.broker.broker import Broker
from seb_appliance.errors import (
    BadRequestError,
    InternalError,
    MethodNotAllowedError,
    NotFoundError,
    RefusedError,
    SebError,
)
from seb_appliance.ui import answers
from seb_appliance.ui.answers import Renderer, Sent
from seb_appliance.ui.options import UiOptions
from seb_appliance.ui.page_context import (
    VISIT_STATE,
    AnyRequest,
    Desk,
    Endpoint,
    NotLoggedInError,
    Routes,
    Visit,
    log_in_first,
)
from seb_appliance.ui.pages import (
    api_keys,
    audit,
    definitions,
    finding,
    groups,
    overview,
    queues,
    storage,
    tables,
    users,
)
from seb_appliance.ui.pages.topics import listing, live, producing, record_keys, records, topic

# The name in pages → (path under the static folder, content type).
_FILES: Final = {
    "seb.css": ("seb.css", b"text/css; charset=utf-8"),
    "seb.js": ("seb.js", b"text/javascript; charset=utf-8"),
    "live.js": ("live.js", b"text/javascript; charset=utf-8"),
    "charts.js": ("charts.js", b"text/javascript; charset=utf-8"),
    "uplot.js": ("vendor/uplot/uPlot.iife.min.js", b"text/javascript; charset=utf-8"),
    "uplot.css": ("vendor/uplot/uPlot.min.css", b"text/css; charset=utf-8"),
    "htmx.js": ("vendor/htmx/htmx.min.js", b"text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", b"image/svg+xml"),
    "icon.png": ("icon.png", b"image/png"),
    "seb.webmanifest": ("seb.webmanifest", b"application/manifest+json"),
}
_YEAR: Final = b"public, max-age=31536000, immutable"
_REQUEST_ID_STATE: Final = "seb_request_id"  # set by the API's wrapper
_PAGES: Final = (
    overview,
    finding,
    listing,
    topic,
    records,
    producing,
    live,
    record_keys,
    api_keys,
    storage,
    tables,
    users,
    groups,
    queues,
    audit,
    definitions,
)
_log = logging.getLogger("seb.ui")


@dataclass(frozen=True, slots=True)
class Section:
    """Pages of a protocol, and their place in the navigation. Their templates lie with ours."""

    title: str
    path: str
    routes: Routes


_others = Routes()


@_others.get("/{rest:path}")
async def no_such_page(_visit: Visit, rest: str) -> ASGIApp:  # noqa: ARG001 - any path
    raise NotFoundError("The admin page has no such page.")


@dataclass(frozen=True, slots=True)
class Site:
    """The way from `/`, and the pages, which all lie below `path`. An error is answered with a
    page."""

    endpoints: list[Endpoint]
    answer_error: Callable[[AnyRequest, Exception], Response[bytes]]
    path: str = "/ui"


def site(broker: Broker, options: UiOptions, sections: Sequence[Section] = ()) -> Site:
    files = Assets(options.static)
    named = [(one.title, one.path) for one in sections]
    renderer = Renderer(options.templates, files.url, lambda: options.random_bytes(16).hex(), named)
    desk = Desk(broker, options, renderer)

    async def asset(request: AnyRequest) -> ASGIApp:
        content, content_type = files.find(request.scope["path_params"]["named"])
        return Sent(200, [(b"content-type", content_type), (b"cache-control", _YEAR)], content)

    declared = [*(page.routes for page in _PAGES), *(one.routes for one in sections)]
    routes = [route for one in declared for route in one.all]
    endpoints = [desk.endpoint(*one) for one in [*routes, *_others.all]]
    own: list[Endpoint] = [("GET", "/", front_door), ("GET", "/ui/static/{named:str}", asset)]
    return Site([*own, *endpoints], error_answers(desk))


async def front_door(_request: AnyRequest) -> ASGIApp:
    """Who enters the address alone means the admin page."""
    return answers.see_other(answers.START)


class Assets:
    """The static files, read at the start and named by their content, so browsers keep them."""

    def __init__(self, static: Path) -> None:
        self._urls: dict[str, str] = {}
        self._files: dict[str, tuple[bytes, bytes]] = {}
        for name, (path, content_type) in _FILES.items():
            content = (static / path).read_bytes()
            if name.endswith(".webmanifest"):  # it names the icon, which comes before it
                content = content.replace(b"icon.png", self._urls["icon.png"].encode())
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


def error_answers(desk: Desk) -> Callable[[AnyRequest, Exception], Response[bytes]]:
    def refused(request: AnyRequest, exception: Exception) -> Response[bytes]:
        if isinstance(exception, NotLoggedInError):
            return _response(log_in_first(request))
        state = request.scope["state"]
        request_id = str(state.get(_REQUEST_ID_STATE, ""))
        error = _as_seb_error(exception)
        if isinstance(error, InternalError):
            path = request.scope["path"]
            _log.error("request %s: %s failed", request_id, path, exc_info=exception)
            error = InternalError("A bug. The log has the details under this request id.")
        return _response(desk.refused(state.get(VISIT_STATE), error, request_id))

    return refused


def _response(sent: Sent) -> Response[bytes]:
    """In the type that Litestar expects of an exception handler."""
    headers = {name.decode(): value.decode() for name, value in sent.headers}
    media_type = headers.pop("content-type").partition(";")[0]  # Litestar adds the charset
    return Response(sent.body, status_code=sent.status, headers=headers, media_type=media_type)


def _as_seb_error(exception: Exception) -> SebError:
    if isinstance(exception, SebError):
        return exception
    if isinstance(exception, HTTPException) and exception.status_code < 500:
        kinds: dict[int, type[RefusedError]] = {404: NotFoundError, 405: MethodNotAllowedError}
        kind = kinds.get(exception.status_code, BadRequestError)
        return kind("No such page, or not by this method.")
    return InternalError(f"{type(exception).__name__}: {exception}")
