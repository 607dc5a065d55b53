"""The form for the settings of a topic, and what a change of them means, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from seb_appliance.errors import RefusedError
from seb_appliance.formats.topic_settings import SETTINGS, TopicSettings
from seb_appliance.quantities import format_duration, format_size
from seb_appliance.ui.forms import Form, parsed
from seb_appliance.ui.units import span

FORM: Final = tuple(SETTINGS.values())
FIELDS: Final = frozenset(SETTINGS)


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
