"""Types of columns: in Arrow, with field ids as Parquet keeps them, and bounds as Iceberg does."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from seb_appliance.formats.lake.tables import HEADERS_KEY_ID, HEADERS_VALUE_ID, Column


def _id(number: int) -> dict[bytes, bytes]:
    return {b"PARQUET:field_id": str(number).encode()}


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Of a data file with these columns."""
    kinds = {
        "long": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "json": pa.string(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
        "headers": pa.map_(
            pa.field("key", pa.string(), nullable=False, metadata=_id(HEADERS_KEY_ID)),
            pa.field("value", pa.binary(), metadata=_id(HEADERS_VALUE_ID)),
        ),
    }
    return pa.schema(
        [
            pa.field(
                one.name, kinds[one.type], nullable=not one.required, metadata=_id(one.field_id)
            )
            for one in columns
        ]
    )


def single_value(kind: str, value: Any) -> bytes:
    """Iceberg's single-value serialization. A timestamp is in us."""
    if kind in ("long", "timestamp"):
        return struct.pack("<q", value)
    if kind == "double":
        return struct.pack("<d", value)
    if kind == "boolean":
        return b"\x01" if value else b"\x00"
    return value.encode() if isinstance(value, str) else bytes(value)
