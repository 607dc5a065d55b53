"""`/schema`: the OpenAPI document, and a page that shows it without any other server."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

from seb_appliance.api.encoding.answers import Answer, Headers
from seb_appliance.api.encoding.parameters import read_headers
from seb_appliance.api.routes.route import Content, Reply, RequestContext, route
from seb_appliance.errors import NotFoundError

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


@route(
    "GET",
    "/schema",
    "schemaPage",
    tag="System",
    summary="This document as a page that works offline",
    replies={
        200: Reply(description="A page", content={"text/html": Content(schema={"type": "string"})})
    },
    api_key=False,
)
async def page(ctx: RequestContext) -> object:
    content = await asyncio.to_thread((ctx.options.pages / "schema.html").read_bytes)
    headers: Headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", _PAGE_POLICY),
    ]
    return Answer(200, headers, content)


@route(
    "GET",
    "/schema/openapi.json",
    "openapi",
    tag="System",
    summary="This document",
    replies={
        200: Reply(
            description="OpenAPI 3.1",
            content={CONTENT_TYPE.decode(): Content(schema={"type": "object"})},
        )
    },
    api_key=False,
)
async def openapi(ctx: RequestContext) -> object:
    return Answer(200, [(b"content-type", CONTENT_TYPE)], ctx.services.openapi())


@route(
    "GET",
    "/schema/assets/{asset}",
    "schemaAsset",
    tag="System",
    summary="Scripts and styles of the page",
    replies={200: Reply(description="A file"), 304: Reply(description="Not changed")},
    errors=(NotFoundError,),
    api_key=False,
)
async def asset(ctx: RequestContext) -> object:
    found = ASSETS.get(ctx.path["asset"])
    if found is None:
        raise NotFoundError("The page has no such file.")
    content = await asyncio.to_thread((ctx.options.static / found[0]).read_bytes)
    etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'.encode()
    headers: Headers = [(b"etag", etag), (b"cache-control", b"no-cache")]
    if read_headers(list(ctx.request.scope["headers"])).get(b"if-none-match") == etag:
        return Answer(304, headers)
    return Answer(200, [(b"content-type", found[1]), *headers], content)


ROUTES: Final = [page, openapi, asset]
