"""One topic: its figures and settings, trim, delete, and reopen a closed stream.

A change of settings and a trim have a preview: a GET with the form's fields, whose only button
sends the same fields by POST.
"""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any, Final

import msgspec
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.topics.topics import Readers
from seb_appliance.broker.values import TopicView
from seb_appliance.errors import BadRequestError
from seb_appliance.formats.topic_settings import SETTINGS, TopicSettings
from seb_appliance.quantities import counted
from seb_appliance.ui.forms import Form, parsed
from seb_appliance.ui.history import TopicRate
from seb_appliance.ui.options import Figure, TopicCost
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.units import ago, count, rate, size, size_rate

routes = Routes()
FORM: Final = tuple(SETTINGS.values())
FIELDS: Final = frozenset(SETTINGS)
# In the forms, all others are folded away until one of them is set.
_FIRST: Final = ("linger_ms", "max_record_bytes", "retention_ms", "retention_bytes", "key_index")
MORE: Final = FIELDS - {*_FIRST, "cleanup", "table", "table_columns"}
_SETTINGS: Final = FIELDS | {"stood"}
_EFFECTS_PART: Final = "setting-effects"
_TRIM: Final = frozenset({"before"})


@routes.get("/topics/{topic:str}")
async def show(visit: Visit, topic: str) -> ASGIApp:
    return await _page(visit, topic)


async def _page(
    visit: Visit, topic: str, *, problem: FormProblem | None = None, form: str = ""
) -> ASGIApp:
    """`form`: which of settings, trim and delete has the `problem`."""
    view = visit.broker.topics.get(topic)
    last_us = await visit.broker.topics.last_write_us(topic)
    readers = (await visit.broker.topics.readers([topic])).get(topic, Readers())
    wrong_settings = problem if form == "settings" else None
    return visit.page(
        "topic",
        parts=["topic-figures", _EFFECTS_PART],
        status=200 if visit.part == _EFFECTS_PART else None,  # htmx shows no refusals
        view=view,
        figures=[
            *_figures(view, last_us, readers, visit.now_us),
            _rate(visit.options.rates.of(view.topic_id)),
            _cost(visit.options.topic_costs()(view.topic_id)),
        ],
        lagging=readers.lagging,
        has_table=view.effective.table not in (None, "none"),
        queues=await visit.broker.queues.reading(topic),
        every_s=limits.SAMPLE_EVERY_S,
        form=FORM,
        more=MORE,
        defaults=defaults(visit.broker.topics.effective(TopicSettings())),
        values=wrong_settings.values if wrong_settings else written(view.settings),
        stood=_stood(view),
        settings_problem=wrong_settings,
        trim_problem=problem if form == "trim" else None,
        delete_problem=problem if form == "delete" else None,
    )


_settings_again = partial(_page, form="settings")


@routes.get("/topics/{topic:str}/settings", _SETTINGS, again=_settings_again)
async def preview_settings(visit: Visit, topic: str) -> ASGIApp:
    view = visit.broker.topics.get(topic)
    if not visit.form.values:  # not sent by the form: it must not reset everything
        return visit.see_other(f"/ui/topics/{topic}")
    _require_unchanged(view, visit.form)
    changes = changes_of(visit.form)
    wanted = TopicSettings(**changes)
    after = visit.broker.topics.effective(wanted)
    return visit.page(
        "topic_settings",
        parts=[_EFFECTS_PART],
        view=view,
        effects=effects(view.effective, after),
        costs=visit.options.setting_cost(topic, changes),
        labels={field.name: field.label for field in FORM},
        fields={field: visit.form.text(field) for field in FIELDS} | {"stood": _stood(view)},
        same=wanted == view.settings,
        command=_change_command(view, wanted),
        patch=shlex.quote(msgspec.json.encode(_changed(view, wanted)).decode()),
    )


@routes.post("/topics/{topic:str}/settings", _SETTINGS, again=_settings_again)
async def save(visit: Visit, topic: str) -> ASGIApp:
    _require_unchanged(visit.broker.topics.get(topic), visit.form)
    await visit.broker.topics.change(topic, changes_of(visit.form), visit.actor)
    return visit.see_other(f"/ui/topics/{topic}", "The settings are saved.")


def _stood(view: TopicView) -> str:
    """The topic's settings, to detect that they changed after the form was shown."""
    return " ".join(f"{name}={text}" for name, text in written(view.settings).items() if text)


def _require_unchanged(view: TopicView, form: Form) -> None:
    """Raises BadRequestError."""
    if form.raw("stood", _stood(view)) != _stood(view):
        raise BadRequestError(
            "Somebody changed these settings after you opened the page; nothing was saved. The "
            f"fields show what you entered. Now set: {_stood(view) or 'only defaults'}."
        )


@routes.get("/topics/{topic:str}/trim", _TRIM, again=partial(_page, form="trim"))
async def preview_trim(visit: Visit, topic: str) -> ASGIApp:
    view = visit.broker.topics.get(topic)
    before = _offset(visit.form.text("before"), view)
    goes = max(0, before - view.log_start_offset)
    return visit.page("topic_trim", view=view, before=before, goes=goes)


@routes.post("/topics/{topic:str}/trim", _TRIM)
async def trim(visit: Visit, topic: str) -> ASGIApp:
    before = _offset(visit.form.text("before"), visit.broker.topics.get(topic))
    view = await visit.broker.topics.trim(topic, before, visit.actor)
    said = f"The log of {topic} now starts at offset {count(view.log_start_offset)}."
    return visit.see_other(f"/ui/topics/{topic}", said)


@routes.post("/topics/{topic:str}/reopen")
async def reopen(visit: Visit, topic: str) -> ASGIApp:
    await visit.broker.streams.reopen(topic, visit.actor)
    return visit.see_other(f"/ui/topics/{topic}", f"{topic} is open again.")


@routes.post("/topics/{topic:str}/delete", {"name"}, again=partial(_page, form="delete"))
async def delete(visit: Visit, topic: str) -> ASGIApp:
    visit.broker.topics.get(topic)
    if visit.form.text("name") != topic:
        raise BadRequestError(f"Nothing was deleted: the name that you typed is not {topic}.")
    await visit.broker.topics.delete(topic, visit.actor)
    return visit.see_other("/ui/topics", f"The topic {topic} is deleted.")


def _figures(view: TopicView, last_us: int | None, readers: Readers, now_us: int) -> list[Figure]:
    records = view.log_end_offset - view.log_start_offset
    offsets = f"offsets {count(view.log_start_offset)} to {count(view.log_end_offset - 1)}"
    lag = f"largest lag {counted(readers.largest_lag, 'record')}" if readers.groups else ""
    return [
        Figure("Records", count(records), offsets if records else "none stored"),
        Figure("Stored", size(view.bytes), f"retention: {retention(view.effective)}"),
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
            Figure("Forks", count(view.forks), "shared records are kept when this topic is deleted")
        )
    return found


def _rate(coming: TopicRate | None) -> Figure:
    span_s = f"in the last {limits.SAMPLE_EVERY_S} s"
    if coming is None:
        return Figure("Incoming", rate(None), f"known after {limits.SAMPLE_EVERY_S} s")
    return Figure("Incoming", rate(coming.records), f"{size_rate(coming.bytes)} {span_s}")


def _cost(cost: TopicCost) -> Figure:
    return Figure("Cost this month", cost.words, cost.note)


def _offset(text: str, view: TopicView) -> int:
    """Raises BadRequestError."""
    digits = text.replace(",", "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(limits.OFFSET_MAX)):
        raise BadRequestError("Enter the offset of the first record to keep.")
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
    return f"seb topics change {view.name} {shlex.join(pairs)}"


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


def retention(effective: TopicSettings) -> str:
    """In one cell of a table."""
    shown = written(effective)
    kept = [shown[name] for name in ("retention_ms", "retention_bytes") if shown[name]]
    return " or ".join(kept) or "unlimited"


def effects(before: TopicSettings, after: TopicSettings) -> list[str]:
    """What changes when `after` replaces `before` (both with defaults filled in), one entry for
    each setting that differs."""
    found = []
    for name, one in SETTINGS.items():
        was, will = getattr(before, name), getattr(after, name)
        if was != will:
            sentences = _EFFECTS.get(name, {})
            direction = "less" if was is None or (will is not None and will < was) else "more"
            effect = sentences.get(will) or sentences.get(direction, "")
            change = f"{one.label}: {one.text_or_unlimited(was)} → {one.text_or_unlimited(will)}."
            found.append(f"{change} {effect}".rstrip())
    return found


_DELETES: Final = "Records beyond it are deleted soon after saving. This cannot be undone."
_KEEPS_MORE: Final = "Records that are already deleted do not return."
_COMPACTS: Final = (
    "Only the newest record of each record key is kept. Removed records cannot be restored."
)
# By setting: the sentence for a new value, or for any value that is "more" or "less" than before.
_EFFECTS: Final[dict[str, dict[Any, str]]] = {
    "linger_ms": {
        "more": "Fewer PUTs when records arrive one by one; acknowledgements may come later.",
        "less": "Acknowledgements come earlier; more PUTs when records arrive one by one.",
    },
    "early_flush": {
        True: "A single producer waits less for its acknowledgement; more PUTs.",
        False: "A window stays open for the whole linger; fewer PUTs.",
    },
    "max_record_bytes": {
        "more": "Larger records are accepted from now on.",
        "less": "Larger records are refused from now on. Stored records are kept.",
    },
    "retention_ms": {
        None: "Records are no longer deleted by age.",
        "more": _KEEPS_MORE,
        "less": _DELETES,
    },
    "retention_bytes": {
        None: "Records are no longer deleted by the topic's size.",
        "more": _KEEPS_MORE,
        "less": _DELETES,
    },
    "key_index": {
        "none": "Record keys can no longer be looked up. The index is deleted.",
        "latest": "The newest record of each record key can be looked up.",
        "history": "All records can be looked up by record key. Stored records are indexed first.",
    },
    "compression": {
        "zstd": "New batches need less space and some processor time.",
        "none": "New batches are stored uncompressed. Stored batches do not change.",
    },
    "cleanup": {
        "compact": _COMPACTS,
        "compact,delete": _COMPACTS,
        "none": "Records are no longer removed automatically.",
        "delete": "Records are deleted by age and by the topic's size, if these limits are set.",
    },
    "body": dict.fromkeys(
        ("envelope", "value", "items", "lines"),
        "Requests that name no body parameter are read in this way. Stored records do not change.",
    ),
    "table": {
        "none": "Nothing more is added to the table. It stays readable.",
        "iceberg": "The first commit is made at once, from the log start.",
        "delta": "The first commit is made at once, from the log start.",
        "iceberg,delta": "The first commit is made at once, from the log start.",
    },
    "table_columns": {"more": "New rows have these columns; older rows are null there."},
    "table_rebuild": {True: "Rows with other columns are written anew from the log."},
    "table_lag_ms": {
        "more": "Fewer PUTs; readers of the table see records later.",
        "less": "More PUTs; readers of the table see records sooner.",
    },
    "table_retention_ms": {
        None: "Rows are no longer removed from the table by age.",
        "more": "Rows that are already removed do not return.",
        "less": "Data files of which all rows are older are removed. This cannot be undone.",
    },
    "min_compaction_lag_ms": {
        "more": "Records younger than that are all kept.",
        "less": "Records younger than that are all kept.",
    },
    "tombstone_retention_ms": {
        "more": "A reader may be behind for longer without missing a deletion.",
        "less": "A reader that is further behind than that misses deletions.",
    },
    "dirty_ratio": {
        "more": "Less is rewritten; the topic needs more space.",
        "less": "The topic stays smaller; more is rewritten.",
    },
}
