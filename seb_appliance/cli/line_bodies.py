"""Lines as the body of a request."""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from seb_appliance.client.producing import BATCH, ZSTD_FROM_BYTES, ZSTD_LEVEL
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns

NDJSON: Final = "application/x-ndjson"


class Body(NamedTuple):
    """`records`: how many are in it."""

    content: bytes
    content_type: str
    records: int


def of_lines(lines: list[bytes], record_key: bytes | None, now_us: int) -> Body:
    """Each line is a value, byte for byte; the time of all is `now_us`."""
    count = len(lines)
    columns = Columns(
        array("q", [now_us]) * count,
        BinaryColumn.of(lines),
        None if record_key is None else BinaryColumn.of([record_key] * count),
    )
    level = ZSTD_LEVEL if sum(map(len, lines)) >= ZSTD_FROM_BYTES else None
    content = batch.encode(columns, base_offset=0, created_us=now_us, zstd_level=level)
    return Body(content, BATCH, count)


def of_objects(lines: list[bytes]) -> Body | None:
    """Each line is a record object, that only the appliance looks into; empty lines are left out.
    None: there is no other."""
    objects = [line for line in lines if line.strip()]
    return Body(b"\n".join(objects), NDJSON, len(objects)) if objects else None
