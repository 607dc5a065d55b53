"""Reads a lake table as a stranger would: from its metadata in the bucket alone, by the rules of
Iceberg and Delta, with nothing of ours but Parquet from pyarrow."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

Get = Callable[[str], Awaitable[bytes]]
Make = Callable[[int, str | None, bytes | None], Any]  # a row, of offset, key and value
_COLUMNS: Final = ["offset", "key", "value", "value_binary"]
_REMOVED: Final = 2
_VERSION: Final = re.compile(r"_delta_log/([0-9]{20})\.(json|checkpoint\.parquet)$")


@dataclass(frozen=True, slots=True)
class Found:
    """A state of the table: all records below `next_offset`, in the order of offsets. `files`: keys
    of the data files."""

    next_offset: int
    rows: list[Any] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    topic: str = ""


class DataFiles:
    """What objects hold. A data file is read once, because none ever changes."""

    def __init__(self, get: Get, make: Make = lambda *row: row) -> None:
        self.get = get
        self._make = make
        self._known: dict[str, list[tuple[int, Any]]] = {}

    async def rows(self, names: Iterable[str]) -> list[Any]:
        """Of all these files, in the order of offsets."""
        rows: list[tuple[int, Any]] = []
        for name in names:
            if name not in self._known:
                body = await self.get(name)
                self._known[name] = await asyncio.to_thread(self._of_file, body)
            rows += self._known[name]
        return [row for _, row in sorted(rows, key=lambda one: one[0])]

    def _of_file(self, body: bytes) -> list[tuple[int, Any]]:
        table = pq.ParquetFile(pa.BufferReader(body)).read(columns=_COLUMNS)
        columns = (table[name].to_pylist() for name in _COLUMNS)
        return [
            (offset, self._make(offset, key, binary if text is None else text.encode()))
            for offset, key, text, binary in zip(*columns, strict=True)
        ]


async def read_iceberg(data: DataFiles, location: str) -> Found:
    """The newest snapshot, from the version hint on. `location`: a key that ends with `/`."""
    get = data.get
    version = int(await get(f"{location}metadata/version-hint.text"))
    metadata = json.loads(await get(f"{location}metadata/v{version}.metadata.json"))
    topic = metadata["properties"]["seb.topic"]
    shown = [one for one in metadata["snapshots"]
             if one["snapshot-id"] == metadata["current-snapshot-id"]]  # fmt: skip
    if not shown:
        return Found(0, topic=topic)
    (snapshot,) = shown
    files: list[str] = []
    for row in avro_rows(await get(_key(snapshot["manifest-list"]))):
        body = await get(_key(row["manifest_path"]))
        assert len(body) == row["manifest_length"], row
        entries = [one for one in avro_rows(body) if one["status"] != _REMOVED]
        assert len(entries) == row["added_files_count"] + row["existing_files_count"], row
        files += [_key(one["data_file"]["file_path"]) for one in entries]
    summary = snapshot["summary"]
    rows = await data.rows(files)
    assert len(files) == int(summary["total-data-files"]), summary
    assert len(rows) == int(summary["total-records"]), (len(rows), summary)
    return Found(int(summary["seb.next-offset"]), rows, files, topic)


async def read_delta(data: DataFiles, names: Iterable[str], location: str) -> Found:
    """The newest version: the newest checkpoint among `names` (all keys below the location), and
    the entries after it."""
    versions: dict[str, dict[int, str]] = {"json": {}, "checkpoint.parquet": {}}
    for name in names:
        if (match := _VERSION.search(name)) is not None:
            versions[match[2]][int(match[1])] = name
    begin = max(versions["checkpoint.parquet"], default=-1)
    actions: list[dict[str, Any]] = []
    if begin >= 0:
        body = await data.get(versions["checkpoint.parquet"][begin])
        actions += pq.read_table(io.BytesIO(body)).to_pylist()
    for version in sorted(number for number in versions["json"] if number > begin):
        lines = (await data.get(versions["json"][version])).splitlines()
        actions += map(json.loads, lines)
    files: dict[str, None] = {}
    next_offset = 0
    for action in actions:
        if action.get("add"):
            files[location + action["add"]["path"]] = None
        if action.get("remove"):
            del files[location + action["remove"]["path"]]
        if action.get("txn"):
            next_offset = action["txn"]["version"]
    return Found(next_offset, await data.rows(files), list(files))


def _key(uri: str) -> str:
    """Below the bucket's folder."""
    return uri[uri.rindex("/tables/") + 1 :]


def avro_rows(body: bytes) -> list[dict[str, Any]]:
    """The rows of an uncompressed Avro container file."""
    reader = _Avro(body)
    assert reader.take(4) == b"Obj\x01"
    facts: dict[str, bytes] = {}
    while count := reader.long():
        assert count > 0
        for _ in range(count):
            name = reader.block().decode()
            facts[name] = reader.block()
    assert facts["avro.codec"] == b"null"
    schema, sync = json.loads(facts["avro.schema"]), reader.take(16)
    rows = []
    while reader.at < len(body):
        count, length = reader.long(), reader.long()
        end = reader.at + length
        rows += [reader.value(schema) for _ in range(count)]
        assert reader.at == end
        assert reader.take(16) == sync
    return rows


class _Avro:
    def __init__(self, body: bytes) -> None:
        self.at = 0
        self._body = body

    def take(self, length: int) -> bytes:
        found = self._body[self.at : self.at + length]
        assert len(found) == length, "the file is cut short"
        self.at += length
        return found

    def long(self) -> int:
        found = shift = 0
        while True:
            (byte,) = self.take(1)
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)

    def block(self) -> bytes:
        return self.take(self.long())

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self.value(schema[self.long()])
        match schema["type"] if isinstance(schema, dict) else schema:
            case "null":
                return None
            case "int" | "long":
                return self.long()
            case "string":
                return self.block().decode()
            case "bytes":
                return self.block()
            case "record":
                return {one["name"]: self.value(one["type"]) for one in schema["fields"]}
            case "array":
                found = []
                while count := self.long():
                    found += [self.value(schema["items"]) for _ in range(count)]
                return found
        raise AssertionError(schema)
