"""Record keys of a topic: the list, and the newest record and history of one."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Final

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.record_keys.queries import KeyPage
from seb_appliance.errors import RecordKeyNotFoundError
from seb_appliance.ui.page_context import Routes, Visit, link
from seb_appliance.ui.pages.topics.records import number_of
from seb_appliance.ui.records.rows import Look, RecordRow, key64, key_of, parts, places, row
from seb_appliance.ui.units import Line, neighbours, short

routes = Routes()
_PER_PAGE: Final = 50
_VERSIONS: Final = 10


@dataclass(frozen=True, slots=True)
class Version:
    """`changed`: the difference from the previous version; None if there is none, or too large."""

    row: RecordRow
    changed: list[Line] | None
    is_first: bool


@routes.get("/topics/{topic:str}/keys", {"prefix", "after"})
async def show(visit: Visit, topic: str) -> ASGIApp:
    view = visit.broker.topics.get(topic)
    prefix, after = visit.form.raw("prefix"), visit.form.text("after")
    page: KeyPage | None = None
    if view.effective.key_index != "none":
        page = await visit.broker.record_keys.keys(
            topic, prefix.encode(), key_of(after) if after else None, _PER_PAGE, fresh=False
        )
    more = page.next_after if page is not None else None
    return visit.page(
        "keys",
        parts=["key-rows"],
        view=view,
        page=page,
        known=[(short(key.key), _path(topic, "key", key=key64(key.key)), key) for key in page.rows]
        if page is not None
        else [],
        prefix=prefix,
        first=_path(topic, "keys", prefix=prefix) if after else "",
        more=_path(topic, "keys", prefix=prefix, after=key64(more)) if more else "",
    )


@routes.get("/topics/{topic:str}/key", {"key", "before"})
async def show_one(visit: Visit, topic: str) -> ASGIApp:
    view, key = visit.broker.topics.get(topic), key_of(visit.form.text("key"))
    before = visit.form.text("before")
    keys, has_history = visit.broker.record_keys, view.effective.key_index == "history"
    latest: RecordRow | None = None
    try:
        found = await keys.latest(topic, key, fresh=False)
        latest = row(*next(places(found.result)), Look(most=limits.VALUE_SHOWN_BYTES_MAX))
    except RecordKeyNotFoundError:
        if not has_history:
            raise
    versions: list[Version] = []
    older = ""
    if has_history:
        below = number_of(before, "before", limits.OFFSET_MAX) if before else None
        versions, next_before = await _versions(visit, topic, key, below)
        if next_before is not None:
            older = _path(topic, "key", key=key64(key), before=str(next_before))
    return visit.page(
        "key",
        view=view,
        key=short(key),
        key_base64=base64.b64encode(key).decode(),
        latest=latest,
        has_history=has_history,
        versions=versions,
        newest=_path(topic, "key", key=key64(key)) if before else "",
        older=older,
    )


async def _versions(
    visit: Visit, topic: str, key: bytes, below: int | None
) -> tuple[list[Version], int | None]:
    """A page of the history, newest first, and the offset below which the next page begins. One
    more record is read than shown, to compare the last one with."""
    found = await visit.broker.record_keys.history(topic, key, below, _VERSIONS + 1, fresh=False)
    there = list(places(found.result))[::-1]
    values = [parts(piece, i)[1] for piece, i in there]
    changed = await asyncio.to_thread(neighbours, values)
    shown = [
        Version(
            row(piece, i, Look()),
            changed[number] if number < len(changed) else None,
            number == len(there) - 1,
        )
        for number, (piece, i) in enumerate(there[:_VERSIONS])
    ]
    more = len(there) > _VERSIONS or found.next_before is not None
    return shown, shown[-1].row.offset if shown and more else None


def _path(topic: str, page: str, **query: str) -> str:
    return link(f"/ui/topics/{topic}/{page}", **query)
