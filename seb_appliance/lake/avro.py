"""Avro object container files (Avro 1.11, uncompressed), as far as Iceberg needs them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

Schema = Any  # of JSON: a name, a record, an array, or a union of null and one other

_MAGIC: Final = b"Obj\x01"


def container(
    schema: Schema, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, str], sync: bytes
) -> bytes:
    """A file with these rows in one block. `sync`: its 16 bytes between blocks."""
    head = {"avro.schema": json.dumps(schema), "avro.codec": "null", **facts}
    pairs = b"".join(_text(name) + _text(value) for name, value in head.items())
    parts = [_MAGIC, _long(len(head)), pairs, b"\x00", sync]
    if rows:
        body = b"".join(_encoded(schema, row) for row in rows)
        parts += [_long(len(rows)), _long(len(body)), body, sync]
    return b"".join(parts)


def _encoded(schema: Schema, value: Any) -> bytes:
    body: bytes
    if isinstance(schema, list):  # a union of null and another type
        return b"\x00" if value is None else b"\x02" + _encoded(schema[1], value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "int" | "long":
            return _long(value)
        case "string":
            return _text(value)
        case "bytes":
            body = value
            return _long(len(body)) + body
        case "boolean":
            return b"\x01" if value else b"\x00"
        case "record":
            fields = schema["fields"]
            return b"".join(_encoded(one["type"], value.get(one["name"])) for one in fields)
        case "array":
            if not value:
                return b"\x00"
            items = b"".join(_encoded(schema["items"], one) for one in value)
            return _long(len(value)) + items + b"\x00"
    raise AssertionError(kind)


def _text(value: str) -> bytes:
    body = value.encode()
    return _long(len(body)) + body


def _long(value: int) -> bytes:
    """Zigzag, then seven bits in each byte, the lowest first."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
