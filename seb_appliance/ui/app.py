"""All routes of the admin page, below /ui."""

from __future__ import annotations

from litestar import Router, get
from litestar.types import ASGIApp

from seb_appliance.broker.broker import Broker
from seb_appliance.errors import NotFoundError
from seb_appliance.ui import assets, refusals
from seb_appliance.ui.assets import Assets
from seb_appliance.ui.options import UiOptions
from seb_appliance.ui.page_context import AnyRequest, Desk
from seb_appliance.ui.pages import (
    api_keys,
    audit,
    groups,
    live,
    login,
    overview,
    producing,
    record_keys,
    records,
    storage,
    topic,
    topics,
    users,
)
from seb_appliance.ui.pages import groups as group_reset
from seb_appliance.ui.pages import storage as settings
from seb_appliance.ui.rendering import Renderer
from seb_appliance.ui.sessions import Throttle


def router(broker: Broker, options: UiOptions) -> Router:
    files = Assets(options.static)
    renderer = Renderer(options.templates, files.url, lambda: options.random_bytes(16).hex())
    desk = Desk(broker, options, renderer)

    @get("/{rest:path}")
    async def nothing(request: AnyRequest) -> ASGIApp:
        desk.enter(request)
        raise NotFoundError("The admin page has no such page.")

    return Router(
        path="/ui",
        route_handlers=[
            *overview.routes(desk),
            *topics.routes(desk),
            *topic.routes(desk),
            *records.routes(desk),
            *producing.routes(desk),
            *live.routes(desk),
            *record_keys.routes(desk),
            *api_keys.routes(desk),
            *storage.routes(desk),
            *users.routes(desk),
            *groups.routes(desk),
            *group_reset.reset_routes(desk),
            *settings.setting_routes(desk),
            *audit.routes(desk),
            *login.routes(desk, Throttle(options.clock)),
            *assets.routes(files),
            nothing,
        ],
        exception_handlers=refusals.handlers(desk),
    )
