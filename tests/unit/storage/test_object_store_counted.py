"""Every request is counted by kind and outcome, with its bytes and its time."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from seb_appliance.broker.counters import BOUNDS_S
from seb_appliance.errors import ObjectExistsError, ObjectMissingError
from seb_appliance.storage.stores.counted import CountedStore, RequestCount
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import ObjectInfo, ObjectRange


class Ticks:
    """A clock that goes on by a second each time it is asked."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


@pytest.fixture
def store() -> CountedStore:
    return CountedStore(MemoryStore(), monotonic_s=Ticks())


async def test_each_request_is_counted_under_its_kind(store: CountedStore) -> None:
    await store.create("a", b"12345")
    await store.put("b", b"123")
    assert await store.get("a") == b"12345"
    assert await store.get_range("a", 1, 2) == ObjectRange(b"23", 5)
    assert await store.list_after("") == [ObjectInfo("a", 5), ObjectInfo("b", 3)]
    assert await store.head("b") == ObjectInfo("b", 3)
    await store.delete("b")
    assert await store.check_configuration() == []
    assert set(store.counts.rows) == {
        RequestCount("PUT", "ok", requests=2, bytes_sent=8, seconds=2),
        RequestCount("GET", "ok", requests=2, bytes_received=7, seconds=2),
        RequestCount("LIST", "ok", requests=1, seconds=1),
        RequestCount("HEAD", "ok", requests=1, seconds=1),
        RequestCount("DELETE", "ok", requests=1, seconds=1),
        RequestCount("CONFIGURATION", "ok", requests=1, seconds=1),
    }
    assert store.counts.requests() == 8
    assert store.counts.requests("PUT") == 2
    assert (store.counts.bytes_sent, store.counts.bytes_received) == (8, 7)


async def test_a_request_that_fails_is_counted_under_its_error(store: CountedStore) -> None:
    await store.create("a", b"12345")
    with pytest.raises(ObjectExistsError):
        await store.create("a", b"123")
    with pytest.raises(ObjectMissingError):
        await store.get("b")
    assert set(store.counts.rows) == {
        RequestCount("PUT", "ok", requests=1, bytes_sent=5, seconds=1),
        RequestCount("PUT", "ObjectExistsError", requests=1, bytes_sent=3, seconds=1),
        RequestCount("GET", "ObjectMissingError", requests=1, seconds=1),
    }
    assert store.counts.requests("PUT") == 2


async def test_a_request_whose_caller_leaves_is_counted(store: CountedStore) -> None:
    task = asyncio.create_task(store.put("a", b"12345"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (row,) = store.counts.rows
    assert (row.kind, row.outcome, row.requests) == ("PUT", "CancelledError", 1)


async def test_counts_once_read_do_not_change(store: CountedStore) -> None:
    before = store.counts
    await store.put("a", b"")
    assert before.requests() == 0
    assert store.counts.requests() == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        store.counts.rows = ()  # type: ignore[misc]


async def test_the_wrapped_store_shows_through(store: CountedStore) -> None:
    assert store.durability == "memory"
    assert store.description == "memory:"
    assert store.date_ahead_s is None
    await store.close()


async def test_requests_are_counted_by_what_they_are_for(store: CountedStore) -> None:
    await store.put("a", b"1")
    store.purpose = "journal"
    reader = store.used_for("read")
    await store.put("b", b"1")
    await reader.get("a")
    assert await reader.get("b") == b"1"
    counted = {(row.purpose, row.kind): row.requests for row in store.counts.rows}
    assert counted == {("start", "PUT"): 1, ("journal", "PUT"): 1, ("read", "GET"): 2}
    assert reader.counts == store.counts


async def test_a_request_keeps_the_purpose_with_which_it_began(store: CountedStore) -> None:
    task = asyncio.create_task(store.put("a", b"1"))
    await asyncio.sleep(0)
    store.purpose = "journal"
    await task
    (row,) = store.counts.rows
    assert row.purpose == "start"


async def test_latencies_are_kept_by_kind(store: CountedStore) -> None:
    await store.put("a", b"1")
    await store.used_for("read").get("a")
    with pytest.raises(ObjectMissingError):
        await store.get("b")
    assert {kind: sum(found.counts) for kind, found in store.latencies.items()} == {
        "PUT": 1,
        "GET": 2,
    }
    assert store.latencies["GET"].sum_s == 2
    assert store.latencies["GET"].counts[BOUNDS_S.index(1.0)] == 2
