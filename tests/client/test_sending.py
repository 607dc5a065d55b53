"""What may be given to `send`, and what is refused there before it harms anything."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from seb_appliance.client import (
    ApplianceError,
    AsyncConsumer,
    AsyncProducer,
    BadRecordError,
    ClientError,
    ConfigurationError,
    Producer,
    Record,
)
from tests.support.appliance import RunningAppliance, running_appliance


async def stored(running: RunningAppliance, topic: str) -> list[Record]:
    async with AsyncConsumer(running.base_url, running.admin_key, topic, follow=False) as consumer:
        return [record async for record in consumer]


JSON_VALUES = [
    (
        {"total": 21, "names": ["ä", None], "paid": True},
        '{"total":21,"names":["ä",null],"paid":true}',
    ),
    ([1, 2.5, "x"], '[1,2.5,"x"]'),
    ({}, "{}"),
    (21, "21"),
    (-0.5, "-0.5"),
    (True, "true"),
    (bytearray(b"\xff"), b"\xff"),
    (memoryview(b"abc")[1:], b"bc"),
    ("", ""),
]
CYCLE: list[Any] = []
CYCLE.append(CYCLE)
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]
NAIVE = datetime.datetime(2026, 1, 1)
TOO_EARLY = datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC)
TOO_LATE = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
NO_RECORDS: dict[str, list[Any]] = {
    "topic": ["", "a..b", "a/b", "ä", "caf\udce9", "t\n", "x" * 129, b"t", None, ["t"]],
    "value": [
        *(float("nan"), float("inf"), {"a": float("-inf")}, {"a": b"x"}, [object()], {1, 2}),
        *((1, 2), object(), "\ud800", {"a": "\ud800"}, CYCLE, DEEP, None),
        bytes(16 * 1024 * 1024 + 1),
    ],
    "key": [7, 1.5, True, ["k"], {"k": 1}, "\ud800", b"k" * 65_537],
    "headers": [
        *({"a": 1}, {"a": None}, {"a": ["b"]}, {"a": {}}, {1: b"a"}, {b"a": b"a"}, "ab", 1),
        *({"\ud800": b"a"}, {"a": "\ud800"}, [("a", b"b")], {"a": b"x" * 16_384}),
        {str(i): b"" for i in range(33)},
    ],
    "timestamp": [0, "2026-01-01", datetime.date(2026, 1, 1), NAIVE, TOO_EARLY, TOO_LATE],
}


@pytest.mark.parametrize(("value", "stored_as"), JSON_VALUES)
async def test_what_json_has_is_stored_as_compact_json(
    tmp_path: Path, value: Any, stored_as: str | bytes
) -> None:
    async with running_appliance(tmp_path) as running:
        async with AsyncProducer(running.base_url, running.admin_key) as producer:
            await producer.send("t", value)
        (record,) = await stored(running, "t")
    assert record.value == (stored_as.encode() if isinstance(stored_as, str) else stored_as)


@pytest.mark.parametrize("argument", NO_RECORDS)
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_an_argument_that_is_none_harms_no_other_record(
    tmp_path: Path, argument: str, kind: str
) -> None:
    """It is refused in `send`, which names it; what is beside it in the batch is stored."""
    async with running_appliance(tmp_path) as running:
        options = {"linger_ms": 60_000, "compression": "none"}

        async def try_all(send: Callable[..., Awaitable[Any]]) -> None:
            for bad in NO_RECORDS[argument]:
                given = {"topic": "t", "value": b"v", argument: bad}
                with pytest.raises(BadRecordError, match=argument):
                    await send(given.pop("topic"), given.pop("value"), **given)
                await send("t", "good", key="k", headers={"a": "b", "c": b""})

        if kind == "asyncio":
            async with AsyncProducer(running.base_url, running.admin_key, **options) as producer:
                await try_all(producer.send)
        else:
            blocking = await asyncio.to_thread(
                Producer, running.base_url, running.admin_key, **options
            )
            await try_all(lambda *given, **more: asyncio.to_thread(blocking.send, *given, **more))
            await asyncio.to_thread(blocking.close)
        assert [record.text() for record in await stored(running, "t")] == ["good"] * len(
            NO_RECORDS[argument]
        )


async def test_one_bad_record_of_many_harms_none_of_them(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        producer = AsyncProducer(running.base_url, running.admin_key, linger_ms=60_000)
        sent = [await producer.send("t", "before")]
        with pytest.raises(BadRecordError, match="value"):
            await producer.send("t", {"a": {1, 2}})
        sent.append(await producer.send("t", "after"))
        await producer.close()
        assert [await delivery for delivery in sent] == [0, 1]


async def test_a_wrong_url_or_api_key_is_an_error_of_the_client(tmp_path: Path) -> None:
    for url, key in (("ftp://x", "seb_x"), ("http://127.0.0.1:1", "not one"), ("", "seb_x")):
        with pytest.raises(ConfigurationError) as failure:
            AsyncProducer(url, key)
        assert isinstance(failure.value, ClientError)
    with pytest.raises(ConfigurationError):
        await asyncio.to_thread(Producer, "http://x", "")
    with pytest.raises(ConfigurationError, match="group"):
        AsyncConsumer("http://x", "seb_x", "t", lease="worker")


async def test_a_record_too_large_for_its_topic_fails_alone(tmp_path: Path) -> None:
    """Several batches are on their way, with such records in the middle; the order stays."""
    async with running_appliance(tmp_path) as running:
        await running.client.put("/v1/topics/t", json={"max_record_bytes": 1000})
        producer = AsyncProducer(running.base_url, running.admin_key, batch_bytes=20_000)
        large = {3, 4, 55, 117, 199}
        sent = [await producer.send("t", f"{i:0{1001 if i in large else 300}}") for i in range(200)]
        with pytest.raises(ApplianceError, match="record_too_large"):
            await producer.flush()
        await producer.close()
        found = {record.offset: int(record.text()) for record in await stored(running, "t")}
        assert list(found.values()) == [i for i in range(200) if i not in large]
        for i, delivery in enumerate(sent):
            if i in large:
                with pytest.raises(ApplianceError, match="record_too_large") as failure:
                    await delivery
                assert failure.value.side_effects == "none"
            else:
                assert found[await delivery] == i
