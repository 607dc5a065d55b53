"""One topic: its figures and settings, trim, delete, and reopen a closed stream.

A change of settings and a trim have a preview: a GET with the form's fields, whose only button
sends the same fields by POST.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.topics.topics import Readers
from seb_appliance.broker.values import TopicView
from seb_appliance.errors import BadRequestError, RefusedError
from seb_appliance.formats.topic_settings import SETTINGS, TopicSettings
from seb_appliance.quantities import format_duration, format_size
from seb_appliance.ui.forms import Form, parsed
from seb_appliance.ui.history import TopicRate
from seb_appliance.ui.options import Figure
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.units import ago, count, rate, size, size_rate, span

routes = Routes()
FORM: Final = tuple(SETTINGS.values())
FIELDS: Final = frozenset(SETTINGS)
_TRIM: Final = frozenset({"before"})


@routes.get("/topics/{topic:str}")
async def show(visit: Visit, topic: str) -> ASGIApp:
    return await _page(visit, topic)


@routes.get("/topics/{topic:str}/settings", FIELDS)
async def preview_settings(visit: Visit, topic: str) -> ASGIApp:
    view = visit.broker.topics.get(topic)
    if not visit.form.values:  # not sent by the form: it must not reset everything
        return visit.see_other(f"/ui/topics/{topic}")
    try:
        changes = changes_of(visit.form)
        wanted = TopicSettings(**changes)
        after = visit.broker.topics.effective(wanted)
    except RefusedError as error:
        problem = FormProblem(in_words(error), visit.form.values)
        return await _page(visit, topic, settings_problem=problem)
    return visit.page(
        "topic_settings",
        view=view,
        effects=effects(view.effective, after),
        costs=visit.options.setting_cost(topic, changes),
        labels={field.name: field.label for field in FORM},
        fields={field: visit.form.text(field) for field in FIELDS},
        same=wanted == view.settings,
        command=_change_command(view, wanted),
        patch=msgspec.json.encode(_changed(view, wanted)).decode(),
    )


@routes.post("/topics/{topic:str}/settings", FIELDS)
async def save(visit: Visit, topic: str) -> ASGIApp:
    try:
        await visit.broker.topics.change(topic, changes_of(visit.form), visit.actor)
    except BadRequestError as error:
        problem = FormProblem(in_words(error), visit.form.values)
        return await _page(visit, topic, settings_problem=problem)
    return visit.see_other(f"/ui/topics/{topic}", "The settings are saved.")


@routes.get("/topics/{topic:str}/trim", _TRIM)
async def preview_trim(visit: Visit, topic: str) -> ASGIApp:
    view = visit.broker.topics.get(topic)
    try:
        before = _offset(visit.form.text("before"), view)
    except BadRequestError as error:
        problem = FormProblem(error.detail, visit.form.values)
        return await _page(visit, topic, trim_problem=problem)
    goes = max(0, before - view.log_start_offset)
    return visit.page("topic_trim", view=view, before=before, goes=goes)


@routes.post("/topics/{topic:str}/trim", _TRIM)
async def trim(visit: Visit, topic: str) -> ASGIApp:
    before = _offset(visit.form.text("before"), visit.broker.topics.get(topic))
    view = await visit.broker.topics.trim(topic, before, visit.actor)
    said = f"The log of {topic} starts at offset {count(view.log_start_offset)} now."
    return visit.see_other(f"/ui/topics/{topic}", said)


@routes.post("/topics/{topic:str}/reopen")
async def reopen(visit: Visit, topic: str) -> ASGIApp:
    await visit.broker.streams.reopen(topic, visit.actor)
    return visit.see_other(f"/ui/topics/{topic}", f"{topic} is open again.")


@routes.post("/topics/{topic:str}/delete", {"name"})
async def delete(visit: Visit, topic: str) -> ASGIApp:
    visit.broker.topics.get(topic)
    if visit.form.text("name") != topic:
        detail = f"Nothing was deleted: the name that you typed is not {topic}."
        problem = FormProblem(detail, visit.form.values)
        return await _page(visit, topic, delete_problem=problem)
    await visit.broker.topics.delete(topic, visit.actor)
    return visit.see_other("/ui/topics", f"The topic {topic} is deleted.")


async def _page(
    visit: Visit,
    name: str,
    *,
    settings_problem: FormProblem | None = None,
    trim_problem: FormProblem | None = None,
    delete_problem: FormProblem | None = None,
) -> ASGIApp:
    view = visit.broker.topics.get(name)
    last_us = await visit.broker.topics.last_write_us(name)
    readers = (await visit.broker.topics.readers([name])).get(name, Readers())
    return visit.page(
        "topic",
        parts=["topic-figures"],
        view=view,
        figures=[
            *_figures(view, last_us, readers, visit.now_us),
            _rate(visit.options.rates.of(view.topic_id)),
        ],
        every_s=limits.SAMPLE_EVERY_S,
        form=FORM,
        defaults=defaults(visit.broker.topics.effective(TopicSettings())),
        values=settings_problem.values if settings_problem else written(view.settings),
        settings_problem=settings_problem,
        trim_problem=trim_problem,
        delete_problem=delete_problem,
    )


def _figures(view: TopicView, last_us: int | None, readers: Readers, now_us: int) -> list[Figure]:
    records = view.log_end_offset - view.log_start_offset
    offsets = f"offsets {count(view.log_start_offset)} to {count(view.log_end_offset - 1)}"
    lag = f"largest lag {count(readers.largest_lag)} records" if readers.groups else ""
    return [
        Figure("Records", count(records), offsets if records else "none stored"),
        Figure("Stored", size(view.bytes), f"kept {retention(view.effective)}"),
        Figure("Last write", ago(last_us, now_us), ""),
        Figure("Groups", count(readers.groups), lag),
        Figure("Created", ago(view.created_us, now_us), f"topic id {view.topic_id}"),
        *_lineage(view),
    ]


def _lineage(view: TopicView) -> list[Figure]:
    found = []
    if view.fork_of is not None:
        shared = f"shares its records below offset {count(view.fork_of.offset)}"
        found.append(Figure("Fork of", view.fork_of.topic, shared))
    if view.forks:
        found.append(
            Figure("Forks", count(view.forks), "shared records stay when this topic is deleted")
        )
    return found


def _rate(coming: TopicRate | None) -> Figure:
    span_s = f"in the last {limits.SAMPLE_EVERY_S} s"
    if coming is None:
        return Figure("Comes in", rate(None), f"known after {limits.SAMPLE_EVERY_S} s")
    return Figure("Comes in", rate(coming.records), f"{size_rate(coming.bytes)} {span_s}")


def _offset(text: str, view: TopicView) -> int:
    """Raises BadRequestError."""
    digits = text.replace(",", "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(limits.OFFSET_MAX)):
        raise BadRequestError("Give the offset of the first record that stays.")
    if int(digits) > view.log_end_offset:
        raise BadRequestError(f"The log ends at offset {count(view.log_end_offset)}.")
    return int(digits)


def _changed(view: TopicView, wanted: TopicSettings) -> dict[str, object]:
    before = msgspec.structs.asdict(view.settings)
    after = msgspec.structs.asdict(wanted)
    return {name: after[name] for name in after if after[name] != before[name]}


def _change_command(view: TopicView, wanted: TopicSettings) -> str:
    pairs = [
        f"{SETTINGS[name].word}={'default' if value is None else SETTINGS[name].text(value)}"
        for name, value in _changed(view, wanted).items()
    ]
    return f"seb topics change {view.name} {' '.join(pairs)}"


def changes_of(form: Form) -> dict[str, Any]:
    """The settings of a form; None means the appliance's default. Raises BadRequestError. The
    broker checks ranges."""
    return {one.name: parsed(one, form) for one in FORM}


def written(settings: TopicSettings) -> dict[str, str]:
    """As a form shows them; "" for the default."""
    return {
        name: "" if value is None else SETTINGS[name].text(value)
        for name, value in msgspec.structs.asdict(settings).items()
    }


def defaults(effective: TopicSettings) -> dict[str, str]:
    """What an empty field means, given the settings of a topic that sets none."""
    return {name: text or SETTINGS[name].unset for name, text in written(effective).items()}


def in_words(error: RefusedError) -> str:
    """A refusal, with what is wrong with each setting."""
    listed = error.data.get("errors")
    if not isinstance(listed, list):
        return error.detail
    return " ".join([error.detail, *(f"{one['path']}: {one['message']}." for one in listed)])


def retention(effective: TopicSettings) -> str:
    """In one cell of a table."""
    shown = written(effective)
    kept = [shown[name] for name in ("retention_ms", "retention_bytes") if shown[name]]
    return " or ".join(kept) or "unlimited"


def effects(before: TopicSettings, after: TopicSettings) -> list[str]:
    """What changes when `after` replaces `before` (both with defaults filled in), a sentence for
    each setting that differs."""
    found = []
    for name, one in SETTINGS.items():
        was, will = getattr(before, name), getattr(after, name)
        if was != will:
            say = _EFFECTS.get(name)
            plain = f"{one.label}: {one.text_or_unlimited(was)} → {one.text_or_unlimited(will)}."
            found.append(say(was, will) if say else plain)
    return found


def _linger(before: int, after: int) -> str:
    apart = span(abs(after - before) / 1000)
    if after > before:
        fewer = f"up to {after / before:.3g} times fewer" if before else "fewer"
        return (
            f"Linger {format_duration(before)} → {format_duration(after)}: {fewer} PUTs while this "
            f"topic's records come one by one; an acknowledgement comes up to {apart} later."
        )
    more = f"up to {before / after:.3g} times more" if after else "more"
    return (
        f"Linger {format_duration(before)} → {format_duration(after)}: an acknowledgement comes up "
        f"to {apart} sooner; {more} PUTs while this topic's records come one by one."
    )


def _early_flush(_before: bool, after: bool) -> str:
    if after:
        return "Early flush on: a lone producer waits less for its acknowledgement; more PUTs."
    return "Early flush off: a window stays open for the whole linger; fewer PUTs."


def _max_record(before: int, after: int) -> str:
    told = f"Largest record {format_size(before)} → {format_size(after)}: "
    if after > before:
        return told + "larger records are taken from now on."
    return told + "larger ones are refused from now on; those that are stored stay."


def _kept_for(before: int | None, after: int | None) -> str:
    if after is None:
        return "Keep for: unlimited. Records are no longer deleted by age."
    if before is None or after < before:
        return (
            f"Keep for {format_duration(after)}: records older than that go soon after this is "
            "saved, and cannot be brought back."
        )
    return f"Keep for {format_duration(after)}, longer than now: what is gone does not come back."


def _kept_bytes(before: int | None, after: int | None) -> str:
    if after is None:
        return "Keep at most: unlimited. Records are no longer deleted by the topic's size."
    if before is None or after < before:
        return (
            f"Keep at most {format_size(after)}: the oldest records beyond that go soon after this "
            "is saved, and cannot be brought back."
        )
    return f"Keep at most {format_size(after)}, more than now: what is gone does not come back."


def _key_index(before: str, after: str) -> str:
    if after == "none":
        return "Key index none: record keys can be looked up no more; the index is thrown away."
    known = "the newest record of each record key" if after == "latest" else "all records by key"
    built = "" if before == "history" else " The records that are there are indexed first."
    return f"Key index {after}: {known} can be looked up.{built}"


def _compression(_before: str, after: str) -> str:
    if after == "zstd":
        return "Compression zstd: new batches take less room and some processor time."
    return "Compression none: new batches are stored as they come. What is stored stays as it is."


def _cleanup(_before: str, after: str) -> str:
    if after in ("compact", "compact,delete"):
        return (
            f"Clean-up {after}: of each record key only the newest record stays; what goes cannot "
            "be brought back."
        )
    if after == "none":
        return "Clean-up none: nothing goes by itself any more."
    return "Clean-up delete: records go by their age and the topic's size, if these are set."


def _compaction_lag(_before: int, after: int) -> str:
    return f"Compact not before {format_duration(after)}: younger records all stay."


def _tombstones(_before: int, after: int) -> str:
    kept = format_duration(after)
    return f"Keep tombstones for {kept}: a reader that is further behind misses deletions."


def _dirty_ratio(before: float, after: float) -> str:
    if after < before:
        return f"Compact when {after:g} is new: the topic stays smaller; more is rewritten."
    return f"Compact when {after:g} is new: less is rewritten; the topic takes more room."


_EFFECTS: Final[dict[str, Callable[[Any, Any], str]]] = {
    "linger_ms": _linger,
    "early_flush": _early_flush,
    "max_record_bytes": _max_record,
    "retention_ms": _kept_for,
    "retention_bytes": _kept_bytes,
    "key_index": _key_index,
    "compression": _compression,
    "cleanup": _cleanup,
    "min_compaction_lag_ms": _compaction_lag,
    "tombstone_retention_ms": _tombstones,
    "dirty_ratio": _dirty_ratio,
}
