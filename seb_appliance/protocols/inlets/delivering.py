"""`POST /v1/inlets/{inlet}`: verify a delivery, store its records, answer as the sender expects."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from seb_appliance import limits
from seb_appliance.addresses import network_of
from seb_appliance.api.encoding.answers import JSON, Answer, Headers
from seb_appliance.api.encoding.conditions import stamp
from seb_appliance.api.encoding.parameters import read_headers, read_query
from seb_appliance.api.encoding.plain_bodies import text_at
from seb_appliance.api.encoding.record_bodies import parse_plain
from seb_appliance.api.openapi.shared import BYTES, DURABILITY_HEADER, SAFE_APPEND_ERRORS
from seb_appliance.api.routes.records.produce import PRODUCED, Produced, produced
from seb_appliance.api.routes.route import Content, Reply, RequestContext, Route, json_body, route
from seb_appliance.api.server.app import Protocol
from seb_appliance.api.server.auth import BY_PROXY_STATE, Call, let_in, look_again, peer_address
from seb_appliance.api.server.bodies import content_encoding, inflate, read_body
from seb_appliance.api.server.parsing import Parser
from seb_appliance.broker.append.appends import NO_CONDITIONS, Conditions
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import ApiKeyView, Appended, NewRecords
from seb_appliance.errors import (
    BadJsonError,
    BadRequestError,
    InternalError,
    NotFoundError,
    QuotaExceededError,
    SebError,
    ShareExceededError,
    UnauthenticatedError,
)
from seb_appliance.protocols.inlets.inlets import (
    KIND,
    Inlet,
    Outcome,
    delivery_header_of,
    inlet_of,
    secrets_of,
    timeout_ms_of,
)
from seb_appliance.protocols.inlets.verifying import Delivery, check, hash_for_nobody, refused
from seb_appliance.protocols.push.pushing import Push, Sent, answer_error, bounds_of

_log = logging.getLogger(__name__)
_admitting: Final[set[asyncio.Task[Appended]]] = set()  # answered before they are stored
_challenge_decoder: Final = msgspec.json.Decoder(dict[str, Any])
DeliveryOutcome = Literal["stored", "repeated", "unverified", "refused", "failed"]
counts: Final[dict[DeliveryOutcome, int]] = dict.fromkeys(get_args(DeliveryOutcome), 0)
_HASHED_HERE_BYTES: Final = 256 * limits.KIB
_CHALLENGE_BYTES_MAX: Final = 4 * limits.KIB
_REPEATED: Final = "repeated"
_NOT_SAID: Final = "The delivery could not be verified."


def find(ctx: RequestContext) -> Inlet | None:
    row = ctx.broker.documents.get(KIND, ctx.path["inlet"])
    return None if row is None else inlet_of(row)


async def deliver(push: Push | None, ctx: RequestContext) -> object:
    """Authorizes before work, but a signature is over the whole body: until it is verified, the
    body takes the share of the sender's address, not of the inlet."""
    inlet, scope = find(ctx), ctx.request.scope
    headers, address = read_headers(list(scope["headers"])), peer_address(scope)
    encoding = content_encoding(headers)
    sent = {name: value for name, value in headers.items() if name != b"content-encoding"}
    raw, reservation = await read_body(
        ctx.request.receive,
        sent,
        network_of(address),
        ctx.broker.strangers,
        ctx.options.max_request_bytes,
    )
    try:
        await _verify(ctx, inlet, raw, headers)
        assert inlet is not None
        own = ctx.broker.pending.reserve(inlet.key.api_key_id, len(raw))
        reservation.release()
        body, reservation = raw, own
        if encoding != "identity":
            most = ctx.options.max_request_bytes
            body = await inflate(raw, encoding, reservation, most)
        challenge = _slack_challenge(inlet, body)
        if challenge is not None:
            return challenge
        return await _store(push, ctx, inlet, body, headers, reservation)
    except SebError as error:
        _note(ctx, inlet, error.status, 0, _reason(error))
        raise
    finally:
        reservation.release()


async def _verify(
    ctx: RequestContext, inlet: Inlet | None, raw: bytes, headers: dict[bytes, bytes]
) -> None:
    """The request is the inlet's from here on. Raises UnauthenticatedError, also for an inlet that
    does not exist; QuotaExceededError."""
    scope, now_s = ctx.request.scope, ctx.broker.clock.wall_us() / 1_000_000
    if inlet is None:
        await _hashing(raw, hash_for_nobody, raw)  # as long as for one that exists
        raise refused("there is no such inlet")
    by_proxy = bool(scope["state"].get(BY_PROXY_STATE))
    delivery = Delivery(raw, headers, ctx.path.get("secret", ""), by_proxy)
    secrets = secrets_of(inlet.settings, ctx.options.secret_box)
    await _hashing(raw, check, inlet.settings.verify, secrets, delivery, now_s)

    def again() -> ApiKeyView:
        current = find(ctx)
        if current is None:
            raise UnauthenticatedError(_NOT_SAID)
        return current.key

    let_in(scope, ctx.broker.access, inlet.key, again)


async def _hashing(raw: bytes, function: Callable[..., object], *args: object) -> None:
    """Call a function that hashes `raw`, which lets go of the interpreter and may take long."""
    if len(raw) > _HASHED_HERE_BYTES:
        await asyncio.to_thread(function, *args)
    else:
        function(*args)


class _Parsed(NamedTuple):
    """What a body holds. `answer`: to the sender, when it is stored; None: there was no record."""

    records: NewRecords
    conditions: Conditions
    answer: Callable[[Appended | None], Answer]


async def _parsed(
    push: Push | None,
    ctx: RequestContext,
    inlet: Inlet,
    body: bytes,
    headers: dict[bytes, bytes],
    reservation: Reservation,
) -> _Parsed:
    parser, owner = ctx.options.parser, inlet.key.api_key_id
    if push is not None:
        query = read_query(ctx.request.scope["query_string"], push.query)
        bounds = bounds_of(ctx, inlet.settings.topic)
        sent = Sent(headers, query, ctx.path)
        pushed = await push.parse(parser, owner, body, sent, reservation, bounds)
        return _Parsed(
            pushed.records(),
            NO_CONDITIONS,
            lambda appended: push.answer(appended, pushed, sent),
        )
    records = await parse_plain(parser, owner, inlet.reader, body, headers)
    conditions = await _conditions(parser, inlet, body, headers)

    def answer(appended: Appended | None) -> Answer:
        assert appended is not None, "a plain body has a record, or is refused"
        _, answered, text = produced(appended, conditions)
        return Answer(200, answered, text, failpoints=ctx.options.failpoints)

    return _Parsed(records, conditions, answer)


async def _store(
    push: Push | None,
    ctx: RequestContext,
    inlet: Inlet,
    body: bytes,
    headers: dict[bytes, bytes],
    reservation: Reservation,
) -> object:
    parsed = await _parsed(push, ctx, inlet, body, headers, reservation)
    look_again(ctx.request.scope)
    count = len(parsed.records.values)
    if not count:
        return parsed.answer(None)
    work = ctx.broker.appends.append(
        inlet.key,
        inlet.settings.topic,
        parsed.records,
        reservation.handed_over(),
        timeout_ms_of(inlet.settings),
        parsed.conditions,
        address=peer_address(ctx.request.scope),
    )
    if inlet.settings.answer == "stored":
        appended = await work
        _note(ctx, inlet, 200, count, _REPEATED if appended.replayed else "stored")
        return parsed.answer(appended)
    task = asyncio.create_task(work, name=f"inlet {inlet.name}")
    _admitting.add(task)
    task.add_done_callback(lambda done: _admitted(ctx, inlet, count, done))
    await asyncio.sleep(0)  # it is admitted or refused in its first step
    if task.done() and task.exception() is not None:
        await task
    return Answer(202, _ADMITTED_HEADERS, b'{"admitted":true}\n')


_ADMITTED_HEADERS: Final[Headers] = [(b"content-type", JSON), (b"seb-durability", b"memory")]


def _admitted(ctx: RequestContext, inlet: Inlet, count: int, done: asyncio.Task[Appended]) -> None:
    _admitting.discard(done)
    error = None if done.cancelled() else done.exception()
    if done.cancelled() or isinstance(error, SebError):
        detail = "the appliance stopped" if error is None else str(error)
        _note(ctx, inlet, 202, count, f"admitted, and perhaps not stored: {detail}")
        _log.warning("inlet %s: a delivery was answered and may be lost: %s", inlet.name, detail)
    elif error is not None:
        _log.error("inlet %s: a delivery was answered and lost", inlet.name, exc_info=error)
    else:
        _note(ctx, inlet, 202, count, "stored")


async def _conditions(
    parser: Parser, inlet: Inlet, body: bytes, headers: dict[bytes, bytes]
) -> Conditions:
    """A delivery with a name is stored once, whatever else its repetition says. Raises
    BadJsonError."""
    named = headers.get(delivery_header_of(inlet.settings).encode())
    pointer = inlet.settings.delivery
    if pointer is None and inlet.settings.verify.scheme == "stripe":
        pointer = "/id"
    if named is None and pointer is not None:
        named = await parser.parse(inlet.key.api_key_id, text_at, body, pointer)
    if not named:
        return NO_CONDITIONS
    call = Call(inlet.key, {}, {}, "")
    return Conditions(await stamp(named, call, f"/v1/inlets/{inlet.name}", b""))


def _slack_challenge(inlet: Inlet, body: bytes) -> Answer | None:
    """Slack verifies a URL with a signed request that wants its challenge back."""
    if inlet.settings.verify.scheme != "slack" or len(body) > _CHALLENGE_BYTES_MAX:
        return None
    if b'"url_verification"' not in body:
        return None
    try:
        asked = _challenge_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadJsonError("The body is not a JSON object.") from error
    if asked.get("type") != "url_verification" or not isinstance(asked.get("challenge"), str):
        return None
    return Answer(200, [(b"content-type", b"text/plain")], asked["challenge"].encode())


async def meta_challenge(ctx: RequestContext) -> object:
    """Meta verifies a URL by GET: the secret is `hub.verify_token`."""
    inlet, query = find(ctx), ctx.call.query
    token = query.get("hub.verify_token", "").encode()
    secrets = secrets_of(inlet.settings, ctx.options.secret_box) if inlet is not None else ()
    proofs = [secret.encode() for secret in secrets]
    fits = [hmac.compare_digest(token, proof) for proof in proofs]
    if inlet is None or inlet.settings.verify.scheme != "meta" or not any(fits):
        raise UnauthenticatedError(_NOT_SAID)
    return Answer(200, [(b"content-type", b"text/plain")], query["hub.challenge"].encode())


def _reason(error: SebError) -> str:
    """For the operator: also what the sender is not told."""
    return str(error.__cause__ or error)


def _counted_as(status: int, detail: str) -> DeliveryOutcome:
    if status == UnauthenticatedError.status:
        return "unverified"
    if status >= InternalError.status:
        return "failed"
    if status >= BadRequestError.status:
        return "refused"
    return "repeated" if detail == _REPEATED else "stored"


def _note(ctx: RequestContext, inlet: Inlet | None, status: int, records: int, detail: str) -> None:
    counts[_counted_as(status, detail)] += 1
    if inlet is not None:
        at_us, address = ctx.broker.clock.wall_us(), peer_address(ctx.request.scope)
        inlet.outcomes.append(Outcome(at_us, address, status, records, detail[:300]))


_ERRORS: Final = (
    *SAFE_APPEND_ERRORS,
    BadJsonError,
    UnauthenticatedError,
    NotFoundError,
    QuotaExceededError,
    ShareExceededError,
)
_STORED: Final = Reply(
    description="Stored",
    content=json_body(Produced, PRODUCED) | {"text/plain": Content(schema=BYTES)},
    headers=DURABILITY_HEADER,
)
_ADMITTED: Final = Reply(description="Admitted, not stored yet", headers=DURABILITY_HEADER)
_PLAIN: Final[Mapping[str, Any]] = {
    "summary": "Deliver to an inlet",
    "description": "The body is read as the inlet says, and stored in its topic. A delivery that "
    "cannot be verified is answered with 401, and so is one to an inlet that does not exist. "
    "A delivery that was stored before, by its name, is answered as the first time.",
    "body": {"*/*": Content(schema=BYTES)},
    "replies": {200: _STORED, 202: _ADMITTED},
}


def _routes(push: Push | None, path: str, name: str) -> list[Route]:
    """With the secret in the path, and without."""
    documented = _PLAIN if push is None else push.documented()
    return [
        route(
            "POST",
            f"/v1/inlets/{{inlet}}{secret}{path}",
            f"deliver{name}{suffix}",
            tag="Inlets",
            body_required=False,
            decodes=False,
            errors=_ERRORS,
            api_key=False,
            **documented,
        )(partial(deliver, push))
        for secret, suffix in (("", ""), ("/{secret}", "WithSecret"))
    ]


def deliveries(push: Push) -> Protocol:
    """The routes of a push protocol under the inlets."""
    routes = [one for path, name in push.operations() for one in _routes(push, path, name)]
    return Protocol(routes=routes, answer_error=partial(answer_error, push))


ROUTES: Final = _routes(None, "", "")
