"""Records of a topic: a filtered list, one record, and a download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlencode

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import (
    BadRequestError,
    NotFoundError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
)
from seb_appliance.ui.forms import Form, time_us
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.records.downloads import FILE_FORMATS, Download, FileFormat
from seb_appliance.ui.records.json_paths import condition_of, paths_of
from seb_appliance.ui.records.rows import Look, read_one, row
from seb_appliance.ui.records.searching import Filter, Found, Search
from seb_appliance.ui.units import SHOWS, Show

routes = Routes()
_OFFSET_DIGITS: Final = len(str(limits.OFFSET_MAX))
STARTS: Final = {
    "end": "the newest",
    "earliest": "the oldest",
    "offset": "offset",
    "time": "time (UTC)",
    "key": "record key",
}
_MOST: Final = ("25", "50", "100")
FILTER: Final = {"text": "", "header": "", "where": ""}
_ASKED: Final = {
    "start": "end",
    "at": "",
    "until": "",
    "columns": "",
    "show": "json",
    "most": "25",
    **FILTER,
}
_QUERY: Final = frozenset({*_ASKED, "on"})
_DOWNLOAD: Final = frozenset({*FILTER, "key", "columns", "offset", "end", "most", "format"})


@dataclass(frozen=True, slots=True)
class Ways:
    """Paths to other pages of the same list; "" for none. `on`: where the search goes on."""

    back: str
    on: str


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
        topic,
        begin,
        min(end, view.log_end_offset),
        number_of(query.text("most", "1000"), "most", limits.DOWNLOADED_RECORDS_MAX),
        filter_of(query, query.raw("key").encode() or None),
        cast("FileFormat", _one_of(query.text("format", "NDJSON"), FILE_FORMATS, "format")),
        paths_of(query.text("columns")),
    )


async def _page(visit: Visit, topic: str) -> ASGIApp:
    """Nothing is read before the user has chosen where to begin."""
    view, query = visit.broker.topics.get(topic), visit.form
    found, problem = None, None
    if query.text("start"):
        try:
            found = await _found(visit, topic)
        except (BadRequestError, OffsetExpiredError, OffsetOutOfRangeError) as error:
            problem = FormProblem(error.detail, query.values)
    backwards = query.text("start", "end") == "end"
    filtered = any(query.text(name) for name in FILTER) or query.text("start") == "key"
    return visit.page(
        "records",
        parts=["record-rows"],
        view=view,
        found=found,
        problem=problem,
        filtered=filtered,
        backwards=backwards,
        columns=[path.name for path in paths_of(query.text("columns"))] if found else [],
        asked={**_ASKED, **query.values},
        starts=STARTS,
        shows=SHOWS,
        mosts=_MOST,
        formats=FILE_FORMATS,
        ways=_ways(topic, query, found, backwards=backwards, filtered=filtered) if found else None,
    )


async def _found(visit: Visit, topic: str) -> Found:
    """Raises BadRequestError, and what `Broker.read` raises."""
    query = visit.form
    most = int(_one_of(query.text("most", "25"), _MOST, "most"))
    kind = _one_of(query.text("start"), tuple(STARTS), "start")
    wanted = filter_of(query, query.raw("at").encode() if kind == "key" else None)
    look = Look(_show(query), columns=paths_of(query.text("columns")))
    search = Search(visit.broker, topic, wanted, most, look)
    on, until = query.text("on"), _place(query.text("until"), "Until")
    if kind == "end":
        if on:
            return await search.backwards(number_of(on, "on", limits.OFFSET_MAX))
        if until is None:
            return await search.backwards()
        return await search.backwards((await visit.broker.offset_at(topic, until)).offset)
    return await search.forwards(_start(kind, query.text("at"), on), until)


def filter_of(query: Form, key: bytes | None = None) -> Filter:
    """Raises BadRequestError."""
    where = query.text("where")
    return Filter(
        query.raw("text").encode(),
        query.text("header"),
        key,
        condition_of(where) if where else None,
    )


def _offset(text: str) -> int:
    """The offset in the path of a record's page. Raises NotFoundError."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _OFFSET_DIGITS):
        raise NotFoundError("The path must end with the offset of a record.")
    return int(text)


def _start(kind: str, at: str, on: str) -> From:
    """Raises BadRequestError. `on`: where a search for a record key continues."""
    if kind == "earliest" or (kind == "key" and not on):
        return From(earliest=True)
    if kind == "key":
        return From(offset=number_of(on, "on", limits.OFFSET_MAX))
    if kind == "offset":
        return From(offset=number_of(at.replace(",", ""), "The offset", limits.OFFSET_MAX))
    at_us = time_us(at, "The time")
    if at_us is None:
        raise BadRequestError("Enter the time to begin at, in UTC, such as 2026-11-21T10:00.")
    return From(timestamp_us=at_us)


def _place(text: str, name: str) -> From | None:
    """An offset or a time in UTC; None if the field is empty. Raises BadRequestError."""
    if not text:
        return None
    if text.replace(",", "").isdecimal():
        return From(offset=number_of(text.replace(",", ""), name, limits.OFFSET_MAX))
    return From(timestamp_us=time_us(text, name))


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


def _ways(topic: str, query: Form, found: Found, *, backwards: bool, filtered: bool) -> Ways:
    """Links to the previous and the next page; the previous page ignores the filter."""
    kept = {name: query.raw(name) for name in _ASKED.keys() - {"start", "at"} if query.raw(name)}
    if backwards:
        older = {"start": "end", "on": str(found.begin), **kept}
        return Ways(
            _path(topic, {"start": "end", **kept}) if query.text("on") else "",
            _path(topic, older) if found.begin > found.log_start_offset else "",
        )
    later = earlier = ""
    if found.end < found.log_end_offset:
        place = {"start": "offset", "at": str(found.end)}
        if query.text("start") == "key":
            place = {"start": "key", "at": query.raw("at"), "on": str(found.end)}
        later = _path(topic, {**place, **kept})
    if found.begin > found.log_start_offset and not filtered:
        at = max(found.log_start_offset, found.begin - int(query.text("most", "25")))
        earlier = _path(topic, {"start": "offset", "at": str(at), **kept})
    return Ways(earlier, later)


def _path(topic: str, query: dict[str, str]) -> str:
    return f"/ui/topics/{topic}/records?{urlencode(query)}"
