"""Records of a topic: a filtered list, one record, and a download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import (
    BadRequestError,
    NotFoundError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
)
from seb_appliance.quantities import duration_ms
from seb_appliance.ui.forms import Form, time_field, time_us
from seb_appliance.ui.page_context import FormProblem, Routes, Visit, link
from seb_appliance.ui.records.downloads import FILE_FORMATS, Download, FileFormat
from seb_appliance.ui.records.json_paths import condition_of, paths_of
from seb_appliance.ui.records.rows import Look, read_one, row
from seb_appliance.ui.records.searching import Filter, Found, Search
from seb_appliance.ui.units import SHOWS, Show

routes = Routes()
_OFFSET_DIGITS: Final = len(str(limits.OFFSET_MAX))
STARTS: Final = {"end": "newest first", "earliest": "oldest first"}
_MOST: Final = ("25", "50", "100")
FILTER: Final = {"text": "", "where": "", "key": "", "header": ""}
_TIMES: Final = {"from": "", "to": ""}
_LAST: Final = {"15m": "15 min", "1h": "1 h", "24h": "24 h", "7d": "7 d"}
_ASKED: Final = {"start": "end", "at": "", "columns": "", "show": "json", "most": "25"}
_ASKED_ALL: Final = {**_ASKED, **_TIMES, **FILTER}
_QUERY: Final = frozenset({*_ASKED_ALL, "last"})
_DOWNLOAD: Final = frozenset({*FILTER, "columns", "offset", "end", "most", "format"})
_MEMBERS_OFFERED: Final = 12


@dataclass(frozen=True, slots=True)
class Ways:
    """Paths to other pages of the same list; "" for none. `on`: where the search goes on. `add` and
    `remove`: with one column more or less, by its name."""

    back: str
    on: str
    add: dict[str, str]
    remove: dict[str, str]


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of the records in the times that were asked for; `end` is exclusive."""

    begin: int
    end: int


@routes.get("/topics/{topic:str}/records", _QUERY)
async def show(visit: Visit, topic: str) -> ASGIApp:
    return await _page(visit, topic)


@routes.get("/topics/{topic:str}/records/{offset:str}", {"show"})
async def one(visit: Visit, topic: str, offset: str) -> ASGIApp:
    number = _offset(offset)
    view, chosen = visit.broker.topics.get(topic), _show(visit.form)
    piece, i = await read_one(visit.broker, topic, number)
    neighbour = Search(visit.broker, topic, Filter(), 1, Look(most=0))
    earlier = (await neighbour.backwards(number)).rows
    later = (await neighbour.forwards(From(offset=number + 1))).rows
    return visit.page(
        "record",
        view=view,
        row=row(piece, i, Look(chosen, limits.VALUE_SHOWN_BYTES_MAX)),
        show=chosen,
        shows=SHOWS,
        earlier=earlier[0].offset if earlier else None,
        later=later[0].offset if later else None,
    )


@routes.get("/topics/{topic:str}/download", _DOWNLOAD)
async def download(visit: Visit, topic: str) -> ASGIApp:
    query, view = visit.form, visit.broker.topics.get(topic)
    begin = number_of(query.text("offset") or "0", "offset", limits.OFFSET_MAX)
    end = number_of(query.text("end") or str(limits.OFFSET_MAX), "end", limits.OFFSET_MAX)
    begin = max(begin, view.log_start_offset)
    await visit.broker.read(topic, ReadRequest(From(offset=begin), max_records=1))  # may refuse
    return Download(
        visit.broker,
        visit.options,
        partial(visit.desk.sessions.find, visit.token, used=False),
        topic,
        begin,
        min(end, view.log_end_offset),
        number_of(query.text("most", "1000"), "most", limits.DOWNLOADED_RECORDS_MAX),
        filter_of(query),
        cast("FileFormat", _one_of(query.text("format", "NDJSON"), FILE_FORMATS, "format")),
        paths_of(query.text("columns")),
    )


async def _page(visit: Visit, topic: str) -> ASGIApp:
    """Nothing is read before the user has chosen where to begin."""
    view, query = visit.broker.topics.get(topic), visit.form
    found, problem, asked = None, None, {**_ASKED_ALL, **query.values}
    bounds = Range(view.log_start_offset, view.log_end_offset)
    if query.text("start"):
        try:
            asked |= _times(visit)
            bounds = await _range(visit, topic, asked)
            found = await _found(visit, topic, bounds)
        except (BadRequestError, OffsetExpiredError, OffsetOutOfRangeError) as error:
            problem = FormProblem(error.detail, query.values)
    filtered = any(query.text(name) for name in FILTER)
    columns = [path.name for path in paths_of(query.text("columns"))] if found else []
    return visit.page(
        "records",
        parts=["record-rows"],
        view=view,
        found=found,
        problem=problem,
        filtered=filtered,
        backwards=query.text("start", "end") == "end",
        bounds=bounds,
        columns=columns,
        asked=asked,
        starts=STARTS,
        lasts=_LAST,
        shows=SHOWS,
        mosts=_MOST,
        formats=FILE_FORMATS,
        ways=_ways(topic, asked, found, bounds, columns) if found else None,
        live=link(f"/ui/topics/{topic}/live", **{name: asked[name] for name in FILTER}),
    )


def _times(visit: Visit) -> dict[str, str]:
    """`from` and `to` as fields show them; the last minutes, hours or days as times. Raises
    BadRequestError."""
    last = visit.form.text("last")
    if last:
        _one_of(last, tuple(_LAST), "last")
        return {"from": time_field(visit.now_us - duration_ms(last) * 1000), "to": "", "last": ""}
    return {name: time_field(time_us(visit.form.text(name), name.capitalize())) for name in _TIMES}


async def _range(visit: Visit, topic: str, asked: dict[str, str]) -> Range:
    """Raises what `Broker.offset_at` raises."""
    view, offsets = visit.broker.topics.get(topic), []
    for name, default in (("from", view.log_start_offset), ("to", view.log_end_offset)):
        at_us = time_us(asked[name], name)
        found = (
            None if at_us is None else await visit.broker.offset_at(topic, From(timestamp_us=at_us))
        )
        offsets.append(default if found is None else found.offset)
    return Range(*offsets)


async def _found(visit: Visit, topic: str, bounds: Range) -> Found:
    """Raises BadRequestError, and what `Broker.read` raises."""
    query = visit.form
    most = int(_one_of(query.text("most", "25"), _MOST, "most"))
    kind = _one_of(query.text("start"), tuple(STARTS), "start")
    look = Look(_show(query), columns=paths_of(query.text("columns")), members=_MEMBERS_OFFERED)
    search = Search(visit.broker, topic, filter_of(query), most, look)
    at = query.text("at").replace(",", "")
    offset = number_of(at, "The offset", limits.OFFSET_MAX) if at else None
    if kind == "end":
        before = bounds.end if offset is None else min(bounds.end, offset + 1)
        return await search.backwards(before, bounds.begin)
    begin = bounds.begin if offset is None else max(bounds.begin, offset)
    return await search.forwards(From(offset=begin), From(offset=bounds.end))


def filter_of(query: Form) -> Filter:
    """Raises BadRequestError."""
    where = query.text("where")
    return Filter(
        query.raw("text").encode(),
        query.text("header"),
        query.raw("key").encode() or None,
        condition_of(where) if where else None,
    )


def _offset(text: str) -> int:
    """The offset in the path of a record's page. Raises NotFoundError."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _OFFSET_DIGITS):
        raise NotFoundError("The path must end with the offset of a record.")
    return int(text)


def number_of(text: str, name: str, largest: int) -> int:
    """Raises BadRequestError."""
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > largest:
        raise BadRequestError(f"{name} is a number from 0 to {largest:,}.")
    return int(text)


def _one_of(text: str, choices: tuple[str, ...], name: str) -> str:
    if text not in choices:
        raise BadRequestError(f"{name} is one of {', '.join(choices)}.")
    return text


def _show(query: Form) -> Show:
    return cast("Show", _one_of(query.text("show", "json"), SHOWS, "show"))


def _ways(
    topic: str, asked: dict[str, str], found: Found, bounds: Range, columns: Sequence[str]
) -> Ways:
    """Links to the previous and the next page; the previous page of the oldest ignores the
    filter."""

    def path(**changed: str) -> str:
        return link(f"/ui/topics/{topic}/records", **{**asked, "start": start, **changed})

    start, back, on = asked["start"], "", ""
    if start == "end":
        back = path(at="") if asked["at"] else ""
        on = path(at=str(found.begin - 1)) if found.begin > bounds.begin else ""
    else:
        on = path(at=str(found.end)) if found.end < bounds.end else ""
        if found.begin > bounds.begin and not any(asked[name] for name in FILTER):
            back = path(at=str(max(bounds.begin, found.begin - int(asked["most"]))))
    offered = [name for row in found.rows for name in row.members]
    new = [name for name in dict.fromkeys(offered) if name not in columns][:_MEMBERS_OFFERED]
    return Ways(
        back,
        on,
        {name: path(columns=", ".join([*columns, name])) for name in new},
        {name: path(columns=", ".join(n for n in columns if n != name)) for name in columns},
    )
