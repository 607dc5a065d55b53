"""The settings in force, and where each came from."""

from __future__ import annotations

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.ui.desk import AnyRequest, Desk


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/settings")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request)
        return desk.page(visit, "settings", rows=desk.options.settings())

    return [show]
