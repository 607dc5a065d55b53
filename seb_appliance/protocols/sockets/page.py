"""The page of connections."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from litestar.types import ASGIApp

from seb_appliance.api.server.options import ApiOptions
from seb_appliance.errors import NotFoundError
from seb_appliance.protocols.sockets.connected import Connected, connections_of
from seb_appliance.ui.app import Section
from seb_appliance.ui.forms import whole
from seb_appliance.ui.lists import (
    FIELDS,
    Column,
    as_they_are,
    in_lines,
    joined,
    linked,
    listed,
    of_template,
)
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.units import ago, count, span

_PATH: Final = "/ui/connections"


def section(options: ApiOptions) -> Section:
    """For the navigation of the admin page."""
    found, routes = connections_of(options.beside), Routes()

    async def show(visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
        words = visit.form.text("filter")
        rows, _ = await found.find(words)
        listing = await listed(visit, "connection-rows", _columns(visit), rows, as_they_are)
        return visit.page(
            "connections",
            parts=["connection-rows"],
            address=listing.address,
            listing=listing,
            stalled=sum(port.stalled for port in found.ports()),
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

    routes.get("/connections", FIELDS)(show)
    return Section("Connections", _PATH, routes)


def _columns(visit: Visit) -> list[Column[Connected, Connected]]:
    now_us, keys = visit.now_us, visit.broker.access

    def api_key(one: Connected) -> str:
        name = keys.name_of(one.api_key_id)
        return linked(name, f"/ui/api-keys/{one.api_key_id}") if name else one.api_key_id

    def since(one: Connected) -> str:
        if one.until_us is None:
            return ago(one.since_us, now_us)
        return joined("away; its session ends", ago(one.until_us, now_us))

    def waiting(one: Connected) -> str:
        if one.stalled is None:
            return count(one.waiting)
        topic = linked(one.stalled.topic, f"/ui/topics/{one.stalled.topic}")
        words = joined(f"stalled: {span(one.stalled.window_s)} in the window of", topic)
        return joined(count(one.waiting), in_lines([words]))

    def counted(name: str, title: str) -> Column[Connected, Connected]:
        number = attrgetter(name)
        return Column(name, title, lambda one: count(number(one)), number, "number")

    def end(one: Connected) -> str:
        return of_template(visit, "connection_end", one=one)

    columns: list[Column[Connected, Connected]] = [
        Column("client", "Client", attrgetter("client"), attrgetter("client")),
        Column("protocol", "Protocol", attrgetter("protocol"), attrgetter("protocol"), "value"),
        Column("key", "API key", api_key, attrgetter("api_key_id"), "value"),
        Column("address", "Address", attrgetter("address"), attrgetter("address"), "nowrap"),
        Column("since", "Since", since, attrgetter("since_us"), "nowrap"),
        counted("subscriptions", "Subscriptions"),
        counted("received", "Received"),
        counted("sent", "Sent"),
        Column("waiting", "Waiting", waiting, attrgetter("waiting"), "number"),
    ]
    return [*columns, Column("end", "End it", end)] if visit.is_admin else columns
