"""`POST /v1/tickets`: what an EventSource in a browser shows, as it can send no header."""

from __future__ import annotations

from typing import Final

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.api.answers import json_answer
from seb_appliance.api.auth import AnyRequest, enter
from seb_appliance.api.json_bodies import read_json
from seb_appliance.api.records.places_of_many import patterns_of
from seb_appliance.api.times import format_time
from seb_appliance.broker.broker import Broker


class NewTicket(msgspec.Struct, forbid_unknown_fields=True):
    """`topics`: patterns with commas between them, of the topics that may be read with it."""

    topics: str


class TicketOut(msgspec.Struct):
    """`ticket` goes into the query, as `?ticket=`, any number of times until `expires`."""

    ticket: str
    topics: str
    expires: str


_decoder: Final = msgspec.json.Decoder(NewTicket)


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    @post("/v1/tickets")
    async def make_ticket(request: AnyRequest) -> ASGIApp:
        call = enter(request, broker)
        broker.authorize(call.key, "consume")
        until_us = broker.access.holds_until_us(call.key)
        asked = await read_json(request, call, broker, _decoder)
        made = broker.access.tickets.give(call.key, until_us, patterns_of(asked.topics))
        return json_answer(201, TicketOut(made.text, asked.topics, format_time(made.expires_us)))

    return [make_ticket]
