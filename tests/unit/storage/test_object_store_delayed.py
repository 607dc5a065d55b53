"""A delayed store: every kind of request takes its time, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from seb_appliance.errors import ConfigurationError, ObjectExistsError, ObjectMissingError
from seb_appliance.ops.host.stores import make_store
from seb_appliance.setting_sources import load
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import DelayedStore, ObjectStore
from tests.support.fakes import FakeClock

Ask = Callable[[ObjectStore], Coroutine[Any, Any, object]]
REQUESTS: dict[str, Ask] = {
    "create": lambda store: store.create("new", b"1"),
    "put": lambda store: store.put("key", b"2"),
    "get": lambda store: store.get("key"),
    "get_range": lambda store: store.get_range("key", 0, 1),
    "list": lambda store: store.list_after(""),
    "head": lambda store: store.head("key"),
    "delete": lambda store: store.delete("key"),
}


@pytest.fixture
async def inner() -> MemoryStore:
    store = MemoryStore()
    await store.put("key", b"value")
    return store


@pytest.mark.parametrize("name", REQUESTS)
async def test_every_request_takes_the_latency(name: str, inner: MemoryStore) -> None:
    clock = FakeClock()
    store = DelayedStore(inner, 0.050, clock)
    asking = asyncio.ensure_future(REQUESTS[name](store))
    await clock.advance(0.049)
    assert not asking.done()
    await clock.advance(0.002)
    await asyncio.wait_for(asking, 60)


async def test_an_object_is_there_halfway(inner: MemoryStore) -> None:
    clock = FakeClock()
    asking = asyncio.ensure_future(DelayedStore(inner, 0.050, clock).put("new", b"1"))
    await clock.advance(0.024)
    with pytest.raises(ObjectMissingError):
        await inner.get("new")
    await clock.advance(0.002)
    assert await inner.get("new") == b"1"
    assert not asking.done()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_refusal_is_as_late_as_an_answer(inner: MemoryStore) -> None:
    clock = FakeClock()
    asking = asyncio.ensure_future(DelayedStore(inner, 0.050, clock).create("key", b"1"))
    await clock.advance(0.049)
    assert not asking.done()
    await clock.advance(0.002)
    with pytest.raises(ObjectExistsError):
        await asking


def test_a_bucket_far_away_is_not_made_farther() -> None:
    flags = {"bucket": "s3://bucket/prefix", "store_latency": "50ms"}
    with pytest.raises(ConfigurationError, match="not for s3"):
        load(flags=flags, environment={})


def test_the_setting_says_how_far_away_the_bucket_is() -> None:
    flags = {"bucket": "memory:", "store_latency": "50ms"}
    assert "50 ms away" in make_store(load(flags=flags, environment={})).description
    assert make_store(load(flags={"bucket": "memory:"}, environment={})).description == "memory:"
