"""`/schema`: the OpenAPI document, and a page that shows it without asking any other server."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from typing import Final

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.encoding.answers import Answer, Headers, json_line
from seb_appliance.api.encoding.parameters import read_headers
from seb_appliance.api.openapi import (
    access,
    compactions,
    cost,
    groups,
    live,
    manage,
    manifest,
    record_keys,
    records,
    transactions,
)
from seb_appliance.api.openapi.document import document
from seb_appliance.api.server.auth import AnyRequest
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.errors import NotFoundError
from seb_appliance.protocols.durable_streams import operations as streams
from seb_appliance.protocols.go import operations as go

_PARTS: Final = (
    records,
    live,
    record_keys,
    transactions,
    groups,
    access,
    manage,
    cost,
    compactions,
    manifest,
    go,
    streams,
)
OPERATIONS: Final = [operation for part in _PARTS for operation in part.OPERATIONS]
SCHEMAS: Final = [schema for part in _PARTS for schema in part.SCHEMAS]
CONTENT_TYPE: Final = b"application/vnd.oai.openapi+json"

# Files of the page: name in the URL → (path under the static folder, content type).
ASSETS: Final = {
    "swagger-ui.css": ("vendor/swagger-ui/swagger-ui.css", b"text/css; charset=utf-8"),
    "swagger-ui-bundle.js": ("vendor/swagger-ui/swagger-ui-bundle.js", b"text/javascript"),
    "schema.js": ("schema.js", b"text/javascript; charset=utf-8"),
}
# The page sets styles through the DOM, and its stylesheet has images as data: URLs.
_PAGE_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)


@functools.cache
def openapi_json() -> bytes:
    return json_line(document(OPERATIONS, SCHEMAS))


def routes(options: ApiOptions) -> list[HTTPRouteHandler]:
    @get("/schema/openapi.json")
    async def openapi(request: AnyRequest) -> ASGIApp:  # noqa: ARG001 - Litestar passes it by name
        return Answer(200, [(b"content-type", CONTENT_TYPE)], openapi_json())

    @get("/schema")
    async def page(request: AnyRequest) -> ASGIApp:  # noqa: ARG001
        content = await asyncio.to_thread((options.pages / "schema.html").read_bytes)
        headers: Headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", _PAGE_POLICY),
        ]
        return Answer(200, headers, content)

    @get("/schema/assets/{asset:str}")
    async def asset(request: AnyRequest) -> ASGIApp:
        found = ASSETS.get(request.scope["path_params"]["asset"])
        if found is None:
            raise NotFoundError("The page has no such file.")
        content = await asyncio.to_thread((options.static / found[0]).read_bytes)
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'.encode()
        headers: Headers = [(b"etag", etag), (b"cache-control", b"no-cache")]
        if read_headers(list(request.scope["headers"])).get(b"if-none-match") == etag:
            return Answer(304, headers)
        return Answer(200, [(b"content-type", found[1]), *headers], content)

    return [openapi, page, asset]
