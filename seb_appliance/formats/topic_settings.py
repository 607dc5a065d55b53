"""The settings of a topic, each declared in one place.

The HTTP API, `seb topics`, the file of `seb apply` and the form of the admin page are made from the
struct below. A new setting is one field there, and the code that follows it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

import msgspec

from seb_appliance import limits
from seb_appliance.formats.declared import Declared, declared
from seb_appliance.formats.numbers import Whole

# What is kept of record keys: the newest record of each, each record of each, or nothing.
KeyIndexMode = Literal["latest", "history", "none"]
# How the batches that the appliance makes are stored.
Compression = Literal["none", "zstd"]
# How the body of a produce request is read: in the API's envelope; or as one record, as JSON items,
# or as lines of text.
BodyShape = Literal["envelope", "value", "items", "lines"]
BODY_SHAPES: Final[tuple[BodyShape, ...]] = get_args(BodyShape)
# Which records may go: by the topic's retention, replaced by a newer record of the same record key,
# both, or none.
Cleanup = Literal["delete", "compact", "compact,delete", "none"]

_MAX: Final = limits.OFFSET_MAX


class TopicSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """Settings of a topic; None means the appliance's default. Only what is set is stored, so that
    an older release reads the events of topics that use no newer setting."""

    linger_ms: Annotated[
        Whole | None,
        Declared(
            "duration",
            "Linger",
            "How long a window waits for more records.",
            (0, limits.LINGER_MS_MAX),
            10,
        ),
    ] = None
    early_flush: Annotated[
        bool | None,
        Declared(
            "switch", "Early flush", "Close the window at once on an idle system.", None, False
        ),
    ] = None
    max_record_bytes: Annotated[
        Whole | None,
        Declared(
            "size",
            "Largest record",
            "Largest value of a record.",
            (1, limits.RECORD_BYTES_MAX),
            limits.RECORD_BYTES_DEFAULT,
        ),
    ] = None
    retention_ms: Annotated[
        Whole | None,
        Declared(
            "duration",
            "Keep for",
            "Delete records that are older.",
            (limits.RETENTION_MS_MIN, _MAX),
        ),
    ] = None
    retention_bytes: Annotated[
        Whole | None,
        Declared("size", "Keep at most", "Delete the oldest records beyond this size.", (1, _MAX)),
    ] = None
    key_index: Annotated[
        KeyIndexMode | None,
        Declared(
            "choice",
            "Key index",
            "Which records can be found by record key: the newest, or all.",
            default="none",
        ),
    ] = None
    compression: Annotated[
        Compression | None,
        Declared("choice", "Compression", "How batches are stored.", default="zstd"),
    ] = None
    cleanup: Annotated[
        Cleanup | None,
        Declared(
            "choice",
            "Clean-up",
            "Delete by age and size, or keep the newest record of each record key.",
            default="delete",
        ),
    ] = None
    min_compaction_lag_ms: Annotated[
        Whole | None,
        Declared(
            "duration",
            "Compact not before",
            "Compaction leaves younger records alone.",
            (0, _MAX),
            0,
        ),
    ] = None
    tombstone_retention_ms: Annotated[
        Whole | None,
        Declared(
            "duration",
            "Keep tombstones for",
            "How long readers can see a deletion.",
            (0, _MAX),
            limits.TOMBSTONE_RETENTION_MS_DEFAULT,
        ),
    ] = None
    dirty_ratio: Annotated[
        float | None,
        Declared(
            "ratio",
            "Compact when",
            "Compact once this part of the topic is new.",
            (limits.DIRTY_RATIO_MIN, limits.DIRTY_RATIO_MAX),
            limits.DIRTY_RATIO_DEFAULT,
        ),
    ] = None

    body: Annotated[
        BodyShape | None,
        Declared(
            "choice",
            "Body",
            "How the body of a produce request is read.",
            default="envelope",
        ),
    ] = None

    @property
    def compacts(self) -> bool:
        """Whether newer records of a record key may replace older ones."""
        return self.cleanup in ("compact", "compact,delete")

    @property
    def deletes(self) -> bool:
        """Whether records may go by age or by bytes."""
        return self.cleanup in (None, "delete", "compact,delete")


SETTINGS: Final = declared(TopicSettings)
