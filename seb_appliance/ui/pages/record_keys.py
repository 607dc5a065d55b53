"""Record keys of a topic: which there are, the newest record of one, and how it came about."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.record_keys.key_index import KeyRow
from seb_appliance.broker.record_keys.queries import KeyPage
from seb_appliance.errors import RecordKeyNotFoundError
from seb_appliance.ui.page_context import AnyRequest, Desk
from seb_appliance.ui.pages.records import RecordRow, key64, key_of, number_of, parts, places, row
from seb_appliance.ui.pages.topic import topic_of
from seb_appliance.ui.units import Line, neighbours, short

_PER_PAGE: Final = 50
_VERSIONS: Final = 10


@dataclass(frozen=True, slots=True)
class Known:
    """A record key in a list; `path`: its page."""

    key: str
    path: str
    row: KeyRow


@dataclass(frozen=True, slots=True)
class Version:
    """`changed`: from the version before; None when there is none, or it cannot be told."""

    row: RecordRow
    changed: list[Line] | None
    is_first: bool


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    return [_listing(desk), _one(desk)]


def _listing(desk: Desk) -> HTTPRouteHandler:
    @get("/topics/{topic:str}/keys")
    async def show(request: AnyRequest) -> ASGIApp:
        visit, topic = desk.enter(request, frozenset({"prefix", "after"})), topic_of(request)
        view = desk.broker.topics.get(topic)
        prefix, after = visit.query.raw("prefix"), visit.query.text("after")
        page: KeyPage | None = None
        if view.effective.key_index != "none":
            page = await desk.broker.record_keys.keys(
                topic, prefix.encode(), key_of(after) if after else None, _PER_PAGE, fresh=False
            )
        more = page.next_after if page is not None else None
        return desk.page(
            visit,
            "keys",
            parts=frozenset({"key-rows"}),
            view=view,
            page=page,
            known=[_known(topic, found) for found in page.rows] if page is not None else [],
            prefix=prefix,
            first=_path(topic, "keys", prefix=prefix) if after else "",
            more=_path(topic, "keys", prefix=prefix, after=key64(more)) if more else "",
        )

    return show


def _one(desk: Desk) -> HTTPRouteHandler:
    @get("/topics/{topic:str}/key")
    async def show(request: AnyRequest) -> ASGIApp:
        visit, topic = desk.enter(request, frozenset({"key", "before"})), topic_of(request)
        view, key = desk.broker.topics.get(topic), key_of(visit.query.text("key"))
        before = visit.query.text("before")
        keys, has_history = desk.broker.record_keys, view.effective.key_index == "history"
        latest: RecordRow | None = None
        try:
            found = await keys.latest(topic, key, fresh=False)
            latest = row(*next(places(found.result)), "json", limits.VALUE_SHOWN_BYTES_MAX)
        except RecordKeyNotFoundError:
            if not has_history:
                raise
        versions: list[Version] = []
        older = ""
        if has_history:
            below = number_of(before, "before", limits.OFFSET_MAX) if before else None
            versions, next_before = await _versions(desk, topic, key, below)
            if next_before is not None:
                older = _path(topic, "key", key=key64(key), before=str(next_before))
        return desk.page(
            visit,
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

    return show


async def _versions(
    desk: Desk, topic: str, key: bytes, below: int | None
) -> tuple[list[Version], int | None]:
    """A page of the history, newest first, and below which offset the next one begins. One more
    than is shown is read: what the last one is compared with."""
    found = await desk.broker.record_keys.history(topic, key, below, _VERSIONS + 1, fresh=False)
    there = list(places(found.result))[::-1]
    values = [parts(piece, i)[1] for piece, i in there]
    changed = await asyncio.to_thread(neighbours, values)
    shown = [
        Version(
            row(piece, i, "json"),
            changed[number] if number < len(changed) else None,
            number == len(there) - 1,
        )
        for number, (piece, i) in enumerate(there[:_VERSIONS])
    ]
    more = len(there) > _VERSIONS or found.next_before is not None
    return shown, shown[-1].row.offset if shown and more else None


def _known(topic: str, found: KeyRow) -> Known:
    return Known(short(found.key), _path(topic, "key", key=key64(found.key)), found)


def _path(topic: str, page: str, **query: str) -> str:
    given = {name: value for name, value in query.items() if value}
    return f"/ui/topics/{topic}/{page}" + (f"?{urlencode(given)}" if given else "")
