"""Records stored by hand: one that is typed, or some of another topic, sent on."""

from __future__ import annotations

from typing import Final

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.values import NewRecords, check_key, pack_headers
from seb_appliance.errors import BadNameError, BadRequestError, NotFoundError, RecordTooLargeError
from seb_appliance.ui.forms import Form
from seb_appliance.ui.page_context import AnyRequest, Change, Desk, FormProblem, Visit
from seb_appliance.ui.pages.records import RecordRow, number_of, parts, places, read_one, row
from seb_appliance.ui.pages.topic import topic_of
from seb_appliance.ui.units import count

_FIELDS: Final = frozenset({"key", "headers", "value", "tombstone"})
_SEND: Final = frozenset({"offset", "to"})


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    return [*_producing(desk), *_sending(desk)]


def _producing(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/topics/{topic:str}/produce")
    async def show(request: AnyRequest) -> ASGIApp:
        return _produce_page(desk, desk.enter(request), topic_of(request), None)

    @post("/topics/{topic:str}/produce")
    @desk.changes(_FIELDS)
    async def produce(request: AnyRequest, change: Change) -> ASGIApp:
        visit, topic = change.visit, topic_of(request)
        try:
            records = _typed(change.form)
            stored = await desk.broker.appends.admin_produce(topic, records, visit.actor)
        except (BadRequestError, RecordTooLargeError) as error:
            problem = FormProblem(error.detail, change.form.values)
            return _produce_page(desk, visit, topic, problem)
        path = f"/ui/topics/{topic}/records/{stored.offset}"
        return desk.see_other(visit, path, f"Stored at offset {count(stored.offset)}.")

    return [show, produce]


def _produce_page(desk: Desk, visit: Visit, topic: str, problem: FormProblem | None) -> ASGIApp:
    empty = dict.fromkeys(_FIELDS, "")
    return desk.page(
        visit,
        "produce",
        status=422 if problem else 200,
        view=desk.broker.topics.get(topic),
        problem=problem,
        values={**empty, **problem.values} if problem else empty,
    )


def _typed(form: Form) -> NewRecords:
    """The record of a form. Raises BadRequestError, RecordTooLargeError."""
    key = check_key(form.raw("key").encode()) or None
    headers = {}
    for line in form.raw("headers").splitlines():
        name, colon, text = line.partition(":")
        if line.strip() and not (colon and name.strip()):
            raise BadRequestError(f"A header is a line such as kind: order, not {line[:100]!r}.")
        if line.strip():
            headers[name.strip()] = text.strip().encode()
    value: bytes | None = form.raw("value").replace("\r\n", "\n").encode()
    if form.text("tombstone"):
        if value or key is None:
            raise BadRequestError("A tombstone has a record key and no value.")
        value = None
    return NewRecords([value], [key], [pack_headers(headers)])


def _sending(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/topics/{topic:str}/send")
    async def preview(request: AnyRequest) -> ASGIApp:
        return await _send_page(desk, desk.enter(request, _SEND), topic_of(request), None)

    @post("/topics/{topic:str}/send")
    @desk.changes(_SEND)
    async def send(request: AnyRequest, change: Change) -> ASGIApp:
        visit, topic, to = change.visit, topic_of(request), change.form.text("to")
        try:
            offsets = _offsets(change.form)
            records, _ = await _read(desk, topic, offsets)
            told = {"from_topic": topic, "from_offsets": offsets}
            stored = await desk.broker.appends.admin_produce(to, records, visit.actor, told)
        except (BadRequestError, BadNameError, NotFoundError, RecordTooLargeError) as error:
            return await _send_page(desk, visit, topic, error.detail, change.form)
        path = f"/ui/topics/{to}/records?start=offset&at={stored.offset}"
        what = "1 record" if stored.count == 1 else f"{count(stored.count)} records"
        said = f"{what} of {topic} {'is' if stored.count == 1 else 'are'} in {to} now, from offset "
        return desk.see_other(visit, path, f"{said}{count(stored.offset)} on.")

    return [preview, send]


async def _send_page(
    desk: Desk, visit: Visit, topic: str, detail: str | None, form: Form | None = None
) -> ASGIApp:
    asked = form or visit.query
    view, to = desk.broker.topics.get(topic), asked.text("to")
    rows: list[RecordRow] = []
    size_bytes = 0
    try:
        records, rows = await _read(desk, topic, _offsets(asked))
        size_bytes = sum(len(value or b"") for value in records.values)
        target = desk.broker.topics.get(to) if to and not detail else None
    except (BadRequestError, NotFoundError) as error:
        detail, target = error.detail, None
    return desk.page(
        visit,
        "send",
        status=422 if detail else 200,
        view=view,
        rows=rows,
        size_bytes=size_bytes,
        to=to,
        target=target,
        problem=FormProblem(detail, {}) if detail else None,
    )


def _offsets(form: Form) -> list[int]:
    """Ascending, each once. Raises BadRequestError."""
    chosen = {number_of(text, "An offset", limits.OFFSET_MAX) for text in form.all("offset")}
    if not 1 <= len(chosen) <= limits.SENT_RECORDS_MAX:
        raise BadRequestError(
            f"Choose 1 to {limits.SENT_RECORDS_MAX} records in the list; {len(chosen)} are chosen."
        )
    return sorted(chosen)


async def _read(desk: Desk, topic: str, offsets: list[int]) -> tuple[NewRecords, list[RecordRow]]:
    """The records, to be stored again: record key, value and headers as they are, the time of now.
    Raises RecordNotFoundError, TopicNotFoundError, BadRequestError."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[bytes] = []
    rows: list[RecordRow] = []
    size_bytes = 0
    for offset in offsets:
        piece, i = next(places(await read_one(desk.broker, topic, offset)))
        key, value, packed = parts(piece, i)
        size_bytes += len(key or b"") + len(value or b"") + len(packed or b"")
        if size_bytes > limits.SENT_BYTES_MAX:
            raise BadRequestError(
                f"More than {limits.SENT_BYTES_MAX // limits.MIB} MiB are chosen; send fewer "
                "records at one time."
            )
        keys.append(key)
        values.append(value)
        headers.append(packed or b"")
        rows.append(row(piece, i, "json", 200))
    return NewRecords(values, keys, headers), rows
