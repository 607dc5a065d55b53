"""Append records from the admin page: one typed by the user, or copies of records of another
topic."""

from __future__ import annotations

from typing import Final

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.values import NewRecords, check_key, pack_headers
from seb_appliance.errors import BadRequestError, NotFoundError
from seb_appliance.quantities import counted
from seb_appliance.ui.forms import Form
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.pages.topics.records import number_of
from seb_appliance.ui.records.rows import Look, RecordRow, parts, read_one, row, unpacked
from seb_appliance.ui.units import count

routes = Routes()
_FIELDS: Final = frozenset({"key", "headers", "value", "tombstone"})
_SEND: Final = frozenset({"offset", "to"})


async def _produce_page(visit: Visit, topic: str, problem: FormProblem | None = None) -> ASGIApp:
    view, like = visit.broker.topics.get(topic), visit.form.text("like")
    if problem is not None:
        values = problem.values
    elif like:
        offset = number_of(like, "like", limits.OFFSET_MAX)
        values = _fields(*parts(*await read_one(visit.broker, topic, offset)))
    else:
        values = {}
    values = dict.fromkeys(_FIELDS, "") | values
    return visit.page("produce", view=view, problem=problem, values=values)


def _fields(key: bytes | None, value: bytes | None, packed: bytes | None) -> dict[str, str]:
    """The form with a record as its template. Raises BadRequestError if it holds what cannot be
    typed."""
    try:
        headers = {name: content.decode() for name, content in unpacked(packed).items()}
        text, key_text = (value or b"").decode(), (key or b"").decode()
    except UnicodeDecodeError as error:
        raise BadRequestError("This record is not text, so it cannot be a template.") from error
    lines = "".join(f"{name}: {content}\n" for name, content in headers.items())
    tombstone = "yes" if value is None else ""
    return {"key": key_text, "headers": lines, "value": text, "tombstone": tombstone}


@routes.get("/topics/{topic:str}/produce", {"like"})
async def show(visit: Visit, topic: str) -> ASGIApp:
    return await _produce_page(visit, topic)


@routes.post("/topics/{topic:str}/produce", _FIELDS, again=_produce_page)
async def produce(visit: Visit, topic: str) -> ASGIApp:
    records = _typed(visit.form)
    stored = await visit.broker.appends.admin_produce(topic, records, visit.actor)
    path = f"/ui/topics/{topic}/records/{stored.offset}"
    return visit.see_other(path, f"Stored at offset {count(stored.offset)}.")


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


async def _send_page(visit: Visit, topic: str, problem: FormProblem | None = None) -> ASGIApp:
    view, to = visit.broker.topics.get(topic), visit.form.text("to")
    rows: list[RecordRow] = []
    size_bytes, target = 0, None
    try:
        records, rows = await _read(visit, topic, _offsets(visit.form))
        size_bytes = sum(len(value or b"") for value in records.values)
        target = visit.broker.topics.get(to) if to and not problem else None
    except (BadRequestError, NotFoundError) as error:
        problem = FormProblem.of(error, visit.form)
    return visit.page(
        "send", view=view, rows=rows, size_bytes=size_bytes, to=to, target=target, problem=problem
    )


@routes.get("/topics/{topic:str}/send", _SEND)
async def preview(visit: Visit, topic: str) -> ASGIApp:
    return await _send_page(visit, topic)


@routes.post("/topics/{topic:str}/send", _SEND, again=_send_page)
async def send(visit: Visit, topic: str) -> ASGIApp:
    to, offsets = visit.form.text("to"), _offsets(visit.form)
    records, _ = await _read(visit, topic, offsets)
    source = {"from_topic": topic, "from_offsets": offsets}
    stored = await visit.broker.appends.admin_produce(to, records, visit.actor, source)
    path = f"/ui/topics/{to}/records?start=earliest&at={stored.offset}"
    what = counted(stored.count, "record")
    words = f"{what} of {topic} copied to {to}, from offset {count(stored.offset)} on."
    return visit.see_other(path, words)


def _offsets(form: Form) -> list[int]:
    """Ascending, each once. Raises BadRequestError."""
    chosen = {number_of(text, "An offset", limits.OFFSET_MAX) for text in form.all("offset")}
    if not 1 <= len(chosen) <= limits.SENT_RECORDS_MAX:
        raise BadRequestError(
            f"Choose 1 to {limits.SENT_RECORDS_MAX} records in the list; {len(chosen)} are chosen."
        )
    return sorted(chosen)


async def _read(visit: Visit, topic: str, offsets: list[int]) -> tuple[NewRecords, list[RecordRow]]:
    """Copies of the records: record key, value and headers as they are. Raises
    RecordNotFoundError, TopicNotFoundError, BadRequestError."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[bytes] = []
    rows: list[RecordRow] = []
    size_bytes = 0
    for offset in offsets:
        piece, i = await read_one(visit.broker, topic, offset)
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
        rows.append(row(piece, i, Look(most=200)))
    return NewRecords(values, keys, headers), rows
