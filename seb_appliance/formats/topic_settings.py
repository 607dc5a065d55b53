"""The settings of a topic, each declared in one place.

The HTTP API, `seb topics`, the file of `seb apply` and the form of the admin page are made from the
struct below. A new setting is one field there, and the code that follows it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, cast, get_args

import msgspec

from seb_appliance import limits
from seb_appliance.formats.declared import Declared, declared
from seb_appliance.formats.lake.tables import TableFormat
from seb_appliance.formats.numbers import Whole

# What is kept of record keys: the newest record of each, each record of each, or nothing.
KeyIndexMode = Literal["latest", "history", "none"]
# How the batches that the appliance makes are stored.
Compression = Literal["none", "zstd"]
# How the body of a produce request is read: in the API's envelope; or as one record, as JSON items,
# or as lines of text.
BodyShape = Literal["envelope", "value", "items", "lines"]
BODY_SHAPES: Final[tuple[BodyShape, ...]] = get_args(BodyShape)
# Whether the topic is also a lake table, and in which formats.
TableSetting = Literal["none", "iceberg", "delta", "iceberg,delta"]
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

    table: Annotated[
        TableSetting | None,
        Declared(
            "choice",
            "Table",
            "Keep the topic as a table in the bucket, too, in these formats.",
            default="none",
        ),
    ] = None
    table_columns: Annotated[
        str | None,
        Declared(
            "text",
            "Columns",
            "Members of JSON values that are columns: total:double=$.order.total, name:string.",
            default="",
        ),
    ] = None
    table_rebuild: Annotated[
        bool | None,
        Declared(
            "switch",
            "Rebuild",
            "When the columns change, write older rows anew from the log.",
            None,
            False,
        ),
    ] = None
    table_lag_ms: Annotated[
        Whole | None,
        Declared(
            "duration",
            "Table lag",
            "How long records wait before they are added to the table.",
            (limits.TABLE_LAG_MS_MIN, _MAX),
            limits.TABLE_LAG_MS_DEFAULT,
        ),
    ] = None
    table_retention_ms: Annotated[
        Whole | None,
        Declared(
            "duration",
            "Keep rows for",
            "Remove data files of which all rows are older.",
            (limits.RETENTION_MS_MIN, _MAX),
        ),
    ] = None
    table_hold_ms: Annotated[
        Whole | None,
        Declared(
            "duration",
            "Hold for the table",
            "For how long retention keeps records that the table does not have yet.",
            (0, _MAX),
            limits.TABLE_HOLD_MS_DEFAULT,
        ),
    ] = None
    table_snapshots: Annotated[
        Whole | None,
        Declared(
            "number",
            "Snapshots",
            "How many older states of the table can be read.",
            (1, limits.TABLE_SNAPSHOTS_MAX),
            limits.TABLE_SNAPSHOTS_DEFAULT,
        ),
    ] = None
    table_file_bytes: Annotated[
        Whole | None,
        Declared(
            "size",
            "Size of data files",
            "Files of the table are merged to about this size.",
            (limits.TABLE_FILE_BYTES_MIN, limits.TABLE_FILE_BYTES_MAX),
            limits.TABLE_FILE_BYTES_DEFAULT,
        ),
    ] = None

    @property
    def table_formats(self) -> tuple[TableFormat, ...]:
        if self.table is None or self.table == "none":
            return ()
        return cast("tuple[TableFormat, ...]", tuple(self.table.split(",")))

    @property
    def compacts(self) -> bool:
        """Whether newer records of a record key may replace older ones."""
        return self.cleanup in ("compact", "compact,delete")

    @property
    def deletes(self) -> bool:
        """Whether records may go by age or by bytes."""
        return self.cleanup in (None, "delete", "compact,delete")


SETTINGS: Final = declared(TopicSettings)
