"""An appliance that follows another one on the same bucket, in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance import setting_sources
from seb_appliance.broker.access.audit import AT_THE_MACHINE
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.streams.admission import StreamAppend, WantedStream
from seb_appliance.broker.values import ApiKeyView, From, NewRecords, ReadRequest
from seb_appliance.errors import (
    ConfigurationError,
    OutcomeUnknownError,
    StandbyError,
    TopicNotFoundError,
)
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.ops.serve.status import samples, telemetry
from seb_appliance.settings import Settings
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.ui.pages.overview import appliance_figures
from tests.support.faulty_store import FaultyStore

ADMIN = ApiKeyView("test", "test", (Grant(operation="admin"),), 0)
SAFE = {"get", "get_range", "head", "list_after"}


def flags_of(data: Path) -> Settings:
    data.mkdir(exist_ok=True)
    flags = {"bucket": "memory:", "data": str(data), "linger": "0ms", "follow_poll": "100ms"}
    return setting_sources.load(flags=flags, environment={})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def writer(store: MemoryStore, tmp_path: Path) -> AsyncIterator[Appliance]:
    made = await Appliance.open(
        flags_of(tmp_path / "writer"), CountedStore(store), NO_FAILPOINTS, lambda *_: None
    )
    await made.start()
    await made.broker.topics.create("orders", TopicSettings(key_index="latest"))
    yield made
    await made.close()


@pytest.fixture
def seen(store: MemoryStore) -> FaultyStore:
    """What the standby asks of the bucket."""
    return FaultyStore(store)


@pytest.fixture
async def standby(writer: Appliance, seen: FaultyStore, tmp_path: Path) -> AsyncIterator[Appliance]:
    made = await Appliance.open_standby(
        flags_of(tmp_path / "standby"), CountedStore(seen), NO_FAILPOINTS, lambda *_: None
    )
    assert made is not None
    await made.start()
    yield made
    assert await made.drain()
    await made.close()
    assert {method for method, _ in seen.requests} <= SAFE  # whatever it did, it wrote nothing


async def produce(appliance: Appliance, value: bytes, key: bytes | None = None) -> int:
    new = NewRecords([value], keys=[key] if key else None)
    reservation = appliance.broker.pending.reserve(OPERATOR, 9)
    return (await appliance.broker.appends.append(ADMIN, "orders", new, reservation)).offset


async def test_who_waits_at_a_standby_is_woken_by_what_the_writer_stored(
    writer: Appliance, standby: Appliance
) -> None:
    asked = ReadRequest(From(offset=0), wait_ms=10_000)
    waiting = asyncio.create_task(standby.broker.read("orders", asked))
    with standby.broker.follow("orders", OPERATOR) as follower:
        await produce(writer, b"first")
        await follower.wait()
    result = await waiting
    assert [bytes(v) for s in result.slices for v in s.batch.columns.values.slice(0, 1)] == [
        b"first"
    ]


async def test_record_keys_are_answered_at_a_standby(writer: Appliance, standby: Appliance) -> None:
    await produce(writer, b"old", b"k")
    await produce(writer, b"new", b"k")
    for offset in (0, 1):
        asked = ReadRequest(From(offset=offset), wait_ms=10_000)
        await standby.broker.read("orders", asked)
    found = await standby.broker.record_keys.latest("orders", b"k", fresh=True)
    (piece,) = found.result.slices
    assert piece.batch.columns.values.slice(piece.begin, piece.end) == [b"new"]


async def test_a_stream_that_the_writer_still_has_is_not_over_at_a_standby(
    writer: Appliance, standby: Appliance
) -> None:
    """Whoever uses it uses it at the writer."""
    for name, ttl_s in (("lives", 3_600), ("short", 0)):
        with contextlib.suppress(OutcomeUnknownError):  # this one is over at once
            await writer.broker.streams.create(
                name,
                WantedStream(ttl_s=ttl_s),
                [],
                writer.broker.pending.reserve(OPERATOR, 0),
                AT_THE_MACHINE,
            )
    await produce(writer, b"last")
    await standby.broker.read("orders", ReadRequest(From(offset=0), wait_ms=10_000))
    for name in ("lives", "short"):
        assert standby.broker.streams.get(name).topic == name
    with pytest.raises(TopicNotFoundError):
        writer.broker.streams.get("short")


async def test_every_kind_of_write_is_refused_without_side_effects(standby: Appliance) -> None:
    broker = standby.broker
    for write in (
        produce(standby, b"no"),
        broker.topics.create("other", TopicSettings()),
        broker.topics.change("orders", {"linger_ms": 5}),
        broker.topics.trim("orders", 0),
        broker.topics.delete("orders"),
        broker.groups.commit(Commit("g", {"orders": 0}), broker.pending.reserve(OPERATOR, 9)),
        broker.groups.take_lease("g", "me", 5_000),
        broker.streams.create(
            "s", WantedStream(), [], broker.pending.reserve(OPERATOR, 9), AT_THE_MACHINE
        ),
        broker.streams.append("orders", StreamAppend([b"no"]), broker.pending.reserve(OPERATOR, 9)),
        broker.streams.delete("orders", AT_THE_MACHINE),
        broker.access.create("k", (Grant(operation="admin"),)),
        broker.accounts.add("eve", "admin", "hash", AT_THE_MACHINE),
        standby.publish_snapshot(),
    ):
        with pytest.raises(StandbyError) as told:
            await write
        assert (told.value.retryable, told.value.side_effects) == (False, "none")
    assert broker.pending.used == 0


async def test_it_says_that_it_is_one_and_how_far_it_is(
    writer: Appliance, standby: Appliance
) -> None:
    await produce(writer, b"one")
    await standby.broker.read("orders", ReadRequest(From(offset=0), wait_ms=10_000))
    readiness = await standby.broker.readiness()
    assert not readiness.ready
    assert readiness.problems == []
    assert "seb promote" in readiness.sentences[0]
    shown = (await telemetry(standby)).status.standby
    assert shown is not None
    assert (shown.lag_entries, shown.waits_for) == (0, "")
    assert shown.applied > 0
    assert (await telemetry(standby)).status.journal.seq == writer.journal.position.seq
    on_the_page = {
        figure.name: figure.value for figure in appliance_figures(await telemetry(standby))
    }
    assert "up to date" in on_the_page["Standby"]
    assert "Standby" not in {figure.name for figure in appliance_figures(await telemetry(writer))}
    found = {
        sample.name: sample.value for sample in samples(standby, await telemetry(standby), 0, 0)
    }
    assert found["seb_standby"] == 1
    assert found["seb_standby_lag_entries"] == 0
    of_writer = {
        sample.name: sample.value for sample in samples(writer, await telemetry(writer), 0, 0)
    }
    assert of_writer["seb_standby"] == 0
    assert "seb_standby_lag_entries" not in of_writer
    assert (await telemetry(writer)).status.standby is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"bucket": "file:b", "take_over": True}, "exclude each other"),
        ({"bucket": "memory:"}, "another process"),
    ],
)
def test_what_cannot_be_followed_is_refused(flags: dict[str, str | bool], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        setting_sources.load(flags={"follow": True, **flags}, environment={})
