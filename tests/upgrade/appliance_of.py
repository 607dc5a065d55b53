"""An appliance on a bucket that is a directory, and all that can be asked of it, as plain data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from seb_appliance import setting_sources
from seb_appliance.broker.ports import LoadedState, TopicRow
from seb_appliance.broker.values import From, ReadRequest, TopicView
from seb_appliance.errors import RecordKeyNotFoundError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.settings import Settings

TIDY = {"tidier": "off", "tidy_bytes": "1KiB", "tidy_young": "0ms", "garbage_grace": "0ms"}


def settings_of(bucket: Path, data: Path) -> Settings:
    flags = {"bucket": f"file:{bucket}", "data": str(data), "linger": "0ms", **TIDY}
    return setting_sources.load(flags={**flags, "take_over": True}, environment={})


@asynccontextmanager
async def appliance_of(bucket: Path, data: Path, *, drained: bool) -> AsyncIterator[Appliance]:
    """Started with --take-over; tidied only when it is told to. `drained`: it ends with a
    snapshot."""
    data.mkdir(exist_ok=True)
    chosen = settings_of(bucket, data)
    store = make_store(chosen, NO_FAILPOINTS)
    appliance = await Appliance.open(chosen, store, NO_FAILPOINTS, lambda *_: None)
    try:
        await appliance.start()
        yield appliance
        if drained:
            assert await appliance.drain()
    finally:
        await appliance.close()


def told_state(state: LoadedState) -> dict[str, Any]:
    """What operators know of; in the order in which clients came."""
    return {
        "topics": [_told_topic(row) for row in state.topics],
        "group_offsets": msgspec.to_builtins(state.group_offsets),
        "leases": msgspec.to_builtins(state.leases),
        "api_keys": msgspec.to_builtins(sorted(state.api_keys, key=lambda row: row.api_key_id)),
        "users": msgspec.to_builtins(state.users),
        "requests": msgspec.to_builtins(state.requests),
        "producers": msgspec.to_builtins(state.producers),
        "runs": [(topic_id, base, last) for topic_id, base, last, *_ in state.runs],
        "streams": msgspec.to_builtins(state.streams),
    }


def _told_topic(row: TopicRow) -> dict[str, Any]:
    """What came with forks is told of topics that have something to do with them. Owners, which
    came later, follow from what is told of all actions."""
    told: dict[str, Any] = msgspec.to_builtins(row)
    del told["owner"]
    alone = {
        "parent_id": None,
        "fork_offset": 0,
        "deleted": False,
        "held_offset": row.log_start_offset,
    }
    if all(told[name] == value for name, value in alone.items()):
        return {name: value for name, value in told.items() if name not in alone}
    return told


async def told_records(appliance: Appliance) -> dict[str, Any]:
    """What readers are told, by topic."""
    return {topic.name: await _topic(appliance, topic) for topic in appliance.broker.topics.all()}


async def _topic(appliance: Appliance, view: TopicView) -> dict[str, Any]:
    """`newest`: by record key the offset of its newest record, null for a tombstone; as the key
    index says, where there is one."""
    rows = await _records(appliance, view.name)
    newest: dict[str, int | None] = {}
    if view.settings.key_index is not None:
        for key in sorted({row[2] for row in rows if row[2] is not None}):
            newest[key] = await _newest(appliance, view.name, key)
    ends = [view.log_start_offset, view.log_end_offset]
    return {"log": ends, "newest": newest, "rows": rows}


async def _newest(appliance: Appliance, topic: str, key: str) -> int | None:
    try:
        found = await appliance.broker.record_keys.latest(topic, key.encode(), fresh=True)
    except RecordKeyNotFoundError:
        return None
    (piece,) = found.result.slices
    return list(piece.batch.offsets())[piece.begin]


async def _records(appliance: Appliance, topic: str) -> list[list[Any]]:
    """[offset, timestamp in µs, record key, value, headers in hexadecimal] each."""
    result = await appliance.broker.read(
        topic, ReadRequest(From(earliest=True), max_records=100_000, max_bytes=1 << 24)
    )
    assert result.next_offset == result.log_end_offset
    rows: list[list[Any]] = []
    for piece in result.slices:
        columns, count = piece.batch.columns, piece.batch.header.count
        empty: list[bytes | None] = [None] * count
        keys = empty if columns.keys is None else list(columns.keys.slice())
        headers = empty if columns.headers is None else list(columns.headers.slice())
        values = list(columns.values.slice())
        offsets, times = list(piece.batch.offsets()), list(columns.timestamps_us)
        rows += [
            [offsets[i], times[i], _text(keys[i]), _text(values[i]), (headers[i] or b"").hex()]
            for i in range(piece.begin, piece.end)
        ]
    return rows


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()
