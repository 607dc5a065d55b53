"""The page of connections."""

from __future__ import annotations

from typing import Final

from litestar.types import ASGIApp

from seb_appliance.api.server.options import ApiOptions
from seb_appliance.errors import NotFoundError
from seb_appliance.protocols.sockets.connected import connections_of
from seb_appliance.ui.app import Section
from seb_appliance.ui.forms import whole
from seb_appliance.ui.page_context import FormProblem, Routes, Visit, link

_PATH: Final = "/ui/connections"
_SHOWN: Final = 200


def section(options: ApiOptions) -> Section:
    """For the navigation of the admin page."""
    found, routes = connections_of(options.beside), Routes()

    async def show(visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
        words = visit.form.text("filter")
        rows, total = await found.find(words, _SHOWN)
        return visit.page(
            "connections",
            parts=["connection-rows"],
            rows=rows,
            total=total,
            stalled=sum(port.stalled for port in found.ports()),
            words=words,
            path=link(_PATH, filter=words),
            problem=problem,
        )

    @routes.post("/connections/close", {"number"}, again=show)
    async def close(visit: Visit) -> ASGIApp:
        number = whole(visit.form.text("number"), "The number")
        try:
            found.disconnect(number)
        except NotFoundError:
            return visit.see_other(_PATH, "It had ended already.")
        return visit.see_other(_PATH, f"{number} is ended. Its client may come again.")

    routes.get("/connections", {"filter"})(show)
    return Section("Connections", _PATH, routes)
