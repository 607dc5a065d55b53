"""`/v1/inlets`: create, show, list and delete inlets; the rule is `manage` on the inlet's topic."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from seb_appliance.api.encoding.answers import Answer, format_time, json_answer
from seb_appliance.api.openapi.parameters import header, query
from seb_appliance.api.openapi.shared import BYTES, TIME, WRITE_ERRORS
from seb_appliance.api.routes.route import (
    Content,
    Reply,
    RequestContext,
    Services,
    json_body,
    json_reply,
    no_content,
    route,
)
from seb_appliance.api.server.auth import AnyRequest, Call, enter, peer_address
from seb_appliance.api.server.options import SecretBox
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.access.documents import Check, any_may
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import DocumentRow
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import NotFoundError, TopicNotFoundError
from seb_appliance.protocols.inlets.delivering import ROUTES as DELIVERING
from seb_appliance.protocols.inlets.delivering import find, meta_challenge
from seb_appliance.protocols.inlets.inlets import (
    KIND,
    Inlet,
    InletWanted,
    Outcome,
    check_settings,
    document_of,
    inlet_of,
)
from seb_appliance.protocols.inlets.settings import InletSettings

_TAG: Final = "Inlets"


async def save(
    broker: Broker,
    box: SecretBox,
    name: str,
    wanted: InletWanted,
    by: Actor,
    check: Check = any_may,
) -> tuple[bool, str | None]:
    """Whether it is a new one, and its secret if that is a random one. The topic is created if it
    does not exist. `check`: whether the inlet may be replaced. Raises BadRequestError,
    BadParameterError, TopicNotFoundError, and what `check` raises."""
    await broker.topics.make_on_first_use(wanted.topic, by)
    own_ms = broker.topics.get(wanted.topic).settings.linger_ms
    check_settings(wanted, broker.linger.shortest_ms if own_ms is None else own_ms)
    row = broker.documents.get(KIND, name)
    before = None if row is None else inlet_of(row)
    settings = None if before is None else before.settings
    document, secret = document_of(wanted, settings, box, by.owner)
    shown = {member: getattr(wanted, member) for member in InletSettings.__struct_fields__}
    made = await broker.documents.put(KIND, name, document, by, shown, check)
    row = broker.documents.get(KIND, name)
    if row is not None and before is not None:
        inlet_of(row).outcomes.extend(before.outcomes)
    return made, secret


class DeliveryOut(msgspec.Struct):
    """What became of a delivery: the status of the answer, records stored, and why."""

    at: str
    address: str
    status: int
    records: int
    detail: str


class InletOut(msgspec.Struct):
    """An inlet without its secrets. `path`: where deliveries are sent to. `deliveries`: the latest
    ones, newest first, since the start of the appliance. `secret`: a random one, shown once."""

    inlet: str
    path: str
    changed: str
    secrets: int
    settings: dict[str, Any]
    deliveries: list[DeliveryOut] = []
    secret: str | UnsetType = UNSET


class InletsOut(msgspec.Struct):
    inlets: list[InletOut]


def inlet_out(inlet: Inlet, *, deliveries: bool = False) -> InletOut:
    stored = inlet.settings
    shown = msgspec.to_builtins(stored)
    del shown["secrets"]
    shown.pop("owner", None)
    hidden = "/{secret}" if stored.verify.scheme == "path" else ""
    return InletOut(
        inlet.name,
        f"/v1/inlets/{inlet.name}{hidden}",
        format_time(inlet.key.created_us),
        len(stored.secrets),
        shown,
        [_delivery_out(one) for one in reversed(inlet.outcomes)] if deliveries else [],
    )


def _delivery_out(one: Outcome) -> DeliveryOut:
    return DeliveryOut(format_time(one.at_us), one.address, one.status, one.records, one.detail)


_SETTINGS: Final = {
    "topic": "webhooks.github",
    "verify": {"scheme": "github"},
    "key": "/repository/full_name",
    "keep_headers": ["X-GitHub-Event"],
}
_INLET: Final = {
    "inlet": "github",
    "path": "/v1/inlets/github",
    "changed": TIME,
    "secrets": 1,
    "settings": _SETTINGS,
    "deliveries": [
        {"at": TIME, "address": "192.0.2.9", "status": 200, "records": 1, "detail": "stored"}
    ],
}


def _seen(ctx: RequestContext) -> Inlet:
    """The inlet, for those who manage its topic. Raises NotFoundError."""
    inlet = find(ctx)
    if inlet is None or not ctx.broker.may(ctx.call.key, "manage", inlet.settings.topic):
        raise NotFoundError(f"There is no inlet {ctx.path['inlet'][:100]!r} that you may manage.")
    return inlet


def _for_managers(ctx: RequestContext) -> Check:
    """Whether the API key manages the topic of an inlet."""

    def check(row: DocumentRow | None) -> None:
        if row is not None:
            ctx.broker.authorize(ctx.call.key, "manage", inlet_of(row).settings.topic)

    return check


@route(
    "GET",
    "/v1/inlets",
    "listInlets",
    tag=_TAG,
    summary="List the inlets of topics that the API key manages, by name",
    replies=json_reply(InletsOut, {"inlets": [_INLET]}, "Inlets, without their deliveries"),
)
async def list_inlets(ctx: RequestContext) -> object:
    found = map(inlet_of, ctx.broker.documents.of_kind(KIND))
    may = [one for one in found if ctx.broker.may(ctx.call.key, "manage", one.settings.topic)]
    return InletsOut([inlet_out(one) for one in may])


@route(
    "PUT",
    "/v1/inlets/{inlet}",
    "setInlet",
    tag=_TAG,
    summary="Create or replace an inlet",
    description="Needs `manage` on the topic, and on the one that the inlet had before. The topic "
    "is created if it does not exist. `secrets` are encrypted with a key that is not in the "
    "bucket. Without them an inlet keeps its own, and a new one gets a random one, which is shown "
    "once. Two secrets are valid while one is rotated.",
    body=json_body(InletWanted, {**_SETTINGS, "secrets": ["a long random text"]}),
    replies={
        201: Reply(description="Created", content=json_body(InletOut, _INLET)),
        200: Reply(description="Replaced", content=json_body(InletOut, _INLET)),
    },
    errors=(*WRITE_ERRORS, TopicNotFoundError),
)
async def set_inlet(ctx: RequestContext) -> object:
    wanted: InletWanted = ctx.body
    name, check = check_topic_name(ctx.path["inlet"], "inlet"), _for_managers(ctx)
    ctx.broker.authorize(ctx.call.key, "manage", wanted.topic)
    check(ctx.broker.documents.get(KIND, name))
    box, by = ctx.options.secret_box, ctx.call.actor
    made, secret = await save(ctx.broker, box, name, wanted, by, check)
    inlet = find(ctx)
    assert inlet is not None, name
    shown = inlet_out(inlet)
    if secret is not None:
        shown.secret = secret
    return json_answer(201 if made else 200, shown)


def _enter(request: AnyRequest, services: Services, known: frozenset[str]) -> Call:
    """Meta asks without an API key, and shows the secret instead."""
    broker = services.broker
    if b"hub.mode=" not in request.scope["query_string"]:
        return enter(request, broker, known)
    named = dict(request.query_params)
    given = {name: value for name, value in named.items() if isinstance(value, str)}
    return Call(broker.access.let_in_anybody(), {}, given, peer_address(request.scope))


@route(
    "GET",
    "/v1/inlets/{inlet}",
    "getInlet",
    tag=_TAG,
    summary="Show an inlet and its latest deliveries",
    parameters=[
        query("hub.mode", "Sent by Meta, with the other two, to verify the URL."),
        query("hub.verify_token", "The secret."),
        query("hub.challenge", "What is answered if the secret is right."),
    ],
    replies={
        200: Reply(
            description="The inlet, or the challenge",
            content=json_body(InletOut, _INLET) | {"text/plain": Content(schema=BYTES)},
        )
    },
    errors=(NotFoundError,),
    authenticate=_enter,
)
async def get_inlet(ctx: RequestContext) -> object:
    if "hub.mode" in ctx.call.query:
        return await meta_challenge(ctx)
    return inlet_out(_seen(ctx), deliveries=True)


@route(
    "DELETE",
    "/v1/inlets/{inlet}",
    "deleteInlet",
    tag=_TAG,
    summary="Delete an inlet; its topic stays",
    replies=no_content("The inlet takes nothing more"),
    errors=(*WRITE_ERRORS, NotFoundError),
)
async def delete_inlet(ctx: RequestContext) -> None:
    _seen(ctx)
    await ctx.broker.documents.remove(KIND, ctx.path["inlet"], ctx.call.actor)


@route(
    "OPTIONS",
    "/v1/inlets/{inlet}",
    "validateInlet",
    tag=_TAG,
    summary="Say that deliveries of CloudEvents are welcome",
    description="The validation of HTTP 1.1 Web Hooks for Event Delivery (CloudEvents).",
    parameters=[header("WebHook-Request-Origin", "Who wants to deliver.", "eventgrid.example")],
    replies=no_content("Deliveries are welcome at any rate"),
    errors=(NotFoundError,),
    api_key=False,
)
async def validate_inlet(ctx: RequestContext) -> object:
    origin = ctx.request.headers.get("webhook-request-origin", "*").encode("latin-1")
    allowed = [(b"webhook-allowed-origin", origin), (b"webhook-allowed-rate", b"*")]
    return Answer(204, [*allowed, (b"allow", b"POST")])


ROUTES: Final = [
    list_inlets,
    validate_inlet,
    set_inlet,
    get_inlet,
    delete_inlet,
    *DELIVERING,
]
