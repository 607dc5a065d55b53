"""Buckets that are the same in each run: fixed time, fixed random bytes, one request at a time.

The history is that of tests/upgrade, whose chapters bring in records, API keys, groups, safe
retries, transactions, segments, compaction, forks and streams; and adopted objects. In mode A all
entries stay, in mode B everything old is merged and removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from unittest import mock

import msgspec

from seb_appliance import limits
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.appliance import running_appliance
from tests.support.tidied import FLAGS, Place
from tests.support.whole_bucket import begin_log_in_mode_b
from tests.upgrade.appliance_of import told_records, told_state
from tests.upgrade.make_stored import CHAPTERS, INDEX_PAGE_ENTRIES

MODES: Final[tuple[Mode, ...]] = ("A", "B")
SNAPSHOTS: Final = "_seb/snapshots/"  # their bytes depend on the release of SQLite
START_NS: Final = 1_800_000_000_000_000_000
OPENED_NS: Final = START_NS + 3_600_000_000_000
RESTART_BEFORE: Final = {"_segments", "_forks"}

STORED: Final = Path(__file__).parent / "stored"
FORMATS: Final = STORED / "formats.json"

Objects = dict[str, bytes]


class FixedTime:
    """Wall and monotonic time stand still until a test lets a second pass."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def time_ns(self) -> int:
        return self.now_ns

    def clock_gettime(self, _clock: int) -> float:
        return self.now_ns / 1e9

    async def pass_a_second(self, _request: object = None) -> None:
        self.now_ns += 1_000_000_000


@contextlib.contextmanager
def fixed_machine(seed: str, now_ns: int = START_NS) -> Iterator[FixedTime]:
    """While it lasts, time is fixed, and the nth draw of random bytes of some length is always the
    same, whatever draws of other lengths came in between."""
    fixed, draws = FixedTime(now_ns), Counter[int]()

    def draw(size: int) -> bytes:
        draws[size] += 1
        text = f"{seed} {size} {draws[size]}"
        return hashlib.shake_256(text.encode()).digest(size)

    with (
        mock.patch.object(time, "time_ns", fixed.time_ns),
        mock.patch.object(time, "clock_gettime", fixed.clock_gettime),
        mock.patch.object(os, "urandom", draw),
        mock.patch.object(limits, "OWN_SEGMENT_BYTES_MIN", 2_000),
        mock.patch.object(limits, "INDEX_PAGE_ENTRIES", INDEX_PAGE_ENTRIES),
    ):
        yield fixed


def as_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1).decode() + "\n"


async def written(folder: Path, mode: Mode) -> Objects:
    """All objects of a bucket that today's code writes. `folder`: for data directories."""
    store, data = MemoryStore(), folder / "data"
    folder.mkdir(exist_ok=True)
    with fixed_machine(f"mode {mode}") as fixed:
        if mode == "B":
            await begin_log_in_mode_b(store, folder / "first")
        left = list(CHAPTERS)
        while left:
            async with running_appliance(
                data, store=store, **{**FLAGS, "linger": "0ms", "take_over": True}
            ) as seb:
                seb.client.headers["user-agent"] = "golden"  # the audit names it
                seb.client.event_hooks["request"] = [fixed.pass_a_second]
                await left.pop(0)(seb)
                while left and left[0].__name__ not in RESTART_BEFORE:
                    await left.pop(0)(seb)
        await _adopt(place := _place(store, data))
        if mode == "B":
            await _tidy(place, fixed)
    return await objects_of(store)


def _place(store: MemoryStore, data: Path) -> Place:
    place = Place(data)
    place.store = store
    return place


async def _adopt(place: Place) -> None:
    """Files of a Go broker become a topic, which goes on behind them."""
    await place.start()
    await place.broker.topics.create("adopted", TopicSettings())
    await place.broker.tidying.adopt(await place.old_files("adopted", 0, 3, 1, 4))
    await place.produce("adopted", 2)
    await _stop(place)


async def _tidy(place: Place, fixed: FixedTime) -> None:
    """Each start leaves a snapshot, and removes what is older than the snapshots before it."""
    for _ in range(limits.SNAPSHOTS_KEPT + 1):
        await fixed.pass_a_second()
        await place.start()
        await place.tidy()
        await _stop(place)


async def _stop(place: Place) -> None:
    assert await place.appliance.drain()
    await place.appliance.close()


async def objects_of(store: MemoryStore) -> Objects:
    keys = [info.key for info in await store.list_after("", limit=100_000)]
    return {key: await store.get(key) for key in keys}


async def answers_of(folder: Path, objects: Objects) -> str:
    """What an appliance with an empty data directory says that is in the bucket, as JSON."""
    store = MemoryStore()
    for key, body in objects.items():
        await store.put(key, body)
    with fixed_machine("opened", OPENED_NS):
        place = _place(store, folder)
        folder.mkdir()
        await place.start()
        records = await told_records(place.appliance)
        assert await place.appliance.drain()
        state = await place.appliance.database.load()
        await place.appliance.close()
    told = {"position": state.position.seq, **told_state(state), "records": records}
    return as_json(told)


def comparable(objects: Objects) -> dict[str, str]:
    """Key and SHA-256 of each object. Of a snapshot only as of which entry it is."""
    return {
        _without_digest(key): "" if key.startswith(SNAPSHOTS) else hashlib.sha256(body).hexdigest()
        for key, body in sorted(objects.items())
    }


def _without_digest(key: str) -> str:
    return key.partition("-")[0] if key.startswith(SNAPSHOTS) else key


def stored_at(mode: Mode, suffix: str = ".tar.xz") -> Path:
    return STORED / f"bucket-{mode.lower()}{suffix}"


def pack(objects: Objects) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for key, body in sorted(objects.items()):
            member = tarfile.TarInfo(key)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return packed.getvalue()


def unpack(packed: bytes) -> Objects:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        found = [(member.name, archive.extractfile(member)) for member in archive]
        return {name: file.read() for name, file in found if file is not None}


def stored_formats(objects: Objects) -> str:
    """Magic and version with which each kind of object begins, and what the bucket says itself."""
    kinds = {key.split("/")[1]: body for key, body in objects.items() if key.endswith(".seb")}
    begin = {kind: f"{body[:4].decode()} {body[4]}" for kind, body in kinds.items()}
    info = msgspec.json.decode(objects["_seb/bucket.json"])
    return as_json({"objects": begin, "bucket.json": info["format_versions"]})


async def write(folder: Path) -> None:
    """Store all of this anew. `folder`: an empty one, to work in."""
    for mode in MODES:
        objects = await written(folder / f"written-{mode}", mode)
        stored_at(mode).write_bytes(pack(objects))
        told = await answers_of(folder / f"opened-{mode}", objects)
        stored_at(mode, ".json").write_text(told, encoding="utf-8")
    FORMATS.write_text(stored_formats(objects), encoding="utf-8")
