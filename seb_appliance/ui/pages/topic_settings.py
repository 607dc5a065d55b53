"""Settings of a topic in forms: how they are written, and what a change of them means, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from seb_appliance.errors import BadRequestError, RefusedError
from seb_appliance.formats.operations import TopicSettings
from seb_appliance.quantities import duration_ms, format_duration, format_size, size_bytes
from seb_appliance.ui.forms import Form
from seb_appliance.ui.units import span

_ON: Final = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class Field:
    """One setting of a form. `choices`: none for free text."""

    name: str
    label: str
    help: str
    choices: tuple[str, ...] = ()


FORM: Final = (
    Field("linger_ms", "Linger", "how long a window may wait for more records, such as 20ms"),
    Field("early_flush", "Early flush", "close a window that nobody adds to", ("on", "off")),
    Field("max_record_bytes", "Largest record", "such as 1MiB"),
    Field("retention_ms", "Keep for", "such as 7d"),
    Field("retention_bytes", "Keep at most", "such as 10GiB"),
    Field(
        "key_index",
        "Key index",
        "latest: find the newest record of a record key; history: all of them",
        ("none", "latest", "history"),
    ),
    Field("compression", "Compression", "how batches are stored", ("none", "zstd")),
    Field(
        "cleanup",
        "Clean-up",
        "delete: by age and size; compact: older records of a record key go",
        ("delete", "compact", "compact,delete", "none"),
    ),
    Field("min_compaction_lag_ms", "Compact not before", "younger records stay, such as 1h"),
    Field("tombstone_retention_ms", "Keep tombstones for", "so that readers see them, such as 1d"),
    Field("dirty_ratio", "Compact when", "so much of it is new, 0.01 to 0.99"),
)  # fmt: skip
FIELDS: Final = frozenset(field.name for field in FORM)


def _switch(text: str) -> bool:
    if text not in _ON:
        raise ValueError("is on or off")
    return _ON[text]


def _ratio(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number such as 0.5") from None


_PARSE: Final[dict[str, Callable[[str], Any]]] = {
    "linger_ms": duration_ms,
    "early_flush": _switch,
    "max_record_bytes": size_bytes,
    "retention_ms": duration_ms,
    "retention_bytes": size_bytes,
    "key_index": str,
    "compression": str,
    "cleanup": str,
    "min_compaction_lag_ms": duration_ms,
    "tombstone_retention_ms": duration_ms,
    "dirty_ratio": _ratio,
}


def changes_of(form: Form) -> dict[str, int | bool | str | None]:
    """The settings that a form holds; None for one that was left empty: the appliance's default.
    Raises BadRequestError. Ranges are the broker's to check."""
    found: dict[str, Any] = {}
    for field in FORM:
        text = form.text(field.name)
        if field.choices and text and text not in field.choices:
            raise BadRequestError(f"{field.label} is one of {', '.join(field.choices)}.")
        try:
            found[field.name] = _PARSE[field.name](text) if text else None
        except ValueError as error:
            raise BadRequestError(f"{field.label}: {error}.") from error
    return found


def written(settings: TopicSettings) -> dict[str, str]:
    """As a form shows them; "" for the default."""
    return {name: text_of(name, value) for name, value in msgspec.structs.asdict(settings).items()}


def defaults(effective: TopicSettings) -> dict[str, str]:
    """What an empty field means, given the settings of a topic that sets none."""
    return {**written(effective), "retention_ms": "for ever", "retention_bytes": "all"}


def text_of(name: str, value: object) -> str:
    """One value, as `changes_of` reads it; "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return format_duration(value) if name.endswith("_ms") else format_size(value)
    return str(value)


def in_words(error: RefusedError) -> str:
    """A refusal, with what is wrong with each setting."""
    listed = error.data.get("errors")
    if not isinstance(listed, list):
        return error.detail
    return " ".join([error.detail, *(f"{one['path']}: {one['message']}." for one in listed)])


def retention(effective: TopicSettings) -> str:
    """In one cell of a table."""
    kept = [
        text_of(name, getattr(effective, name))
        for name in ("retention_ms", "retention_bytes")
        if getattr(effective, name) is not None
    ]
    return " or ".join(kept) or "for ever"


def effects(before: TopicSettings, after: TopicSettings) -> list[str]:
    """What changes when `after` is in force instead of `before` (both with defaults filled in), a
    sentence for each setting that differs."""
    return [
        _EFFECTS[name](getattr(before, name), getattr(after, name))
        for name in _EFFECTS
        if getattr(before, name) != getattr(after, name)
    ]


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
        return "Keep for ever: no record goes by its age any more."
    if before is None or after < before:
        return (
            f"Keep for {format_duration(after)}: records older than that go soon after this is "
            "saved, and cannot be brought back."
        )
    return f"Keep for {format_duration(after)}, longer than now: what is gone does not come back."


def _kept_bytes(before: int | None, after: int | None) -> str:
    if after is None:
        return "Keep all: no record goes because of the topic's size any more."
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
