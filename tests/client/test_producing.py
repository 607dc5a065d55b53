"""The producer: each record is stored once and in order, whatever happens on the way."""

from __future__ import annotations

import asyncio
import datetime
import random
import threading
import time
from pathlib import Path

import pytest

from seb_appliance.client import (
    ApplianceError,
    AsyncConsumer,
    AsyncProducer,
    ClosedError,
    Producer,
    Record,
)
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.unreliable import answer, between, unreliable


async def stored(running: RunningAppliance, topic: str) -> list[Record]:
    async with AsyncConsumer(running.base_url, running.admin_key, topic, follow=False) as consumer:
        return [record async for record in consumer]


async def test_a_record_is_stored_with_all_that_was_given(tmp_path: Path) -> None:
    when = datetime.datetime(2026, 11, 21, 10, 0, 0, 5, datetime.UTC)
    async with running_appliance(tmp_path) as running:
        async with AsyncProducer(running.base_url, running.admin_key) as producer:
            first = await producer.send("t", "ä", key=b"k", headers={"a": b"\xff"}, timestamp=when)
            second = await producer.send("t", None, key="gone")
            assert (await first, await second) == (0, 1)
        (one, two) = await stored(running, "t")
    assert (one.value, one.key, one.headers, one.time) == ("ä".encode(), b"k", {"a": b"\xff"}, when)
    assert (two.value, two.key, two.headers) == (None, b"gone", {})


@pytest.mark.parametrize("compression", ["zstd", "none"])
async def test_what_is_sent_before_the_end_is_acknowledged_at_the_end(
    tmp_path: Path, compression: str
) -> None:
    async with running_appliance(tmp_path) as running:
        async with AsyncProducer(
            running.base_url,
            running.admin_key,
            linger_ms=60_000,
            compression=compression,
        ) as producer:
            sent = [await producer.send(f"t{i % 3}", f"{i:0100}") for i in range(3_000)]
            assert not sent[0].done()
        assert [delivery.result() for delivery in sent[:6]] == [0, 0, 0, 1, 1, 1]
        assert [int(record.text()) for record in await stored(running, "t1")] == list(
            range(1, 3_000, 3)
        )


@pytest.mark.parametrize("seed", range(2))
async def test_on_an_unreliable_way_each_record_is_stored_once_and_in_order(
    tmp_path: Path, seed: int
) -> None:
    """Four batches are on their way at once; they are lost, overtake each other and are sent again.
    Time is not waited for: pauses between attempts are a thousandth."""
    fates = random.Random(seed)
    dooms = ["pass", "pass", "lose_request", "lose_answer", "late"]
    async with (
        running_appliance(tmp_path) as running,
        unreliable(running.port, lambda: fates.choice(dooms)) as way,
    ):
        async with AsyncProducer(
            way.url, running.admin_key, batch_bytes=600, linger_ms=0, clock=HurriedClock()
        ) as producer:
            sent = [await producer.send("t", str(i)) for i in range(400)]
        records = await stored(running, "t")
    assert [int(record.text()) for record in records] == list(range(400))
    assert [delivery.result() for delivery in sent] == [record.offset for record in records]


async def test_a_refused_batch_takes_none_of_the_others_along(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await running.client.put("/v1/topics/t", json={"max_record_bytes": 1000})
        producer = AsyncProducer(running.base_url, running.admin_key, batch_bytes=900)
        sent = [
            await producer.send("t", str(i) if i % 10 else "x" * 2000, key=str(i))
            for i in range(60)
        ]
        with pytest.raises(ApplianceError, match="record_too_large") as failure:
            await producer.flush()
        assert failure.value.side_effects == "none"
        await producer.close()
        records = await stored(running, "t")
    fates = [await outcome(delivery) for delivery in sent]
    assert [record.key for record in records] == [
        str(i).encode() for i, fate in enumerate(fates) if isinstance(fate, int)
    ]
    assert [fate for fate in fates if isinstance(fate, int)] == list(range(54))


async def outcome(delivery) -> int | str:
    try:
        return await delivery
    except ApplianceError as error:
        return error.code


async def test_a_producer_that_was_forgotten_begins_anew(tmp_path: Path) -> None:
    """Deleting a topic forgets who wrote to it."""
    async with (
        running_appliance(tmp_path, auto_create_topics=True) as running,
        AsyncProducer(running.base_url, running.admin_key) as producer,
    ):
        assert await (await producer.send("t", "a")) == 0
        assert await (await producer.send("t", "b")) == 1
        await running.client.delete("/v1/topics/t")
        assert await (await producer.send("t", "c")) == 0
        assert await (await producer.send("t", "d")) == 1


async def test_a_full_buffer_makes_the_sender_wait(tmp_path: Path) -> None:
    hold = asyncio.Event()
    async with running_appliance(tmp_path) as running:

        async def held(request: bytes) -> bytes | None:
            await hold.wait()
            return None

        async with between(held) as way:
            producer = AsyncProducer(
                way.url, running.admin_key, buffer_bytes=1000, patience_s=0, linger_ms=0
            )
            await producer.send("t", b"x" * 900)
            waiting = asyncio.create_task(producer.send("t", b"x" * 900))
            while not way.requests:
                await asyncio.sleep(0)
            assert not waiting.done()
            hold.set()
            await waiting
            with pytest.raises(ApplianceError) as failure:
                await producer.close()
    assert failure.value.code == "no_answer"
    assert failure.value.side_effects == "unknown"


HTML = answer(200, b"<html>Welcome to the airport</html>", "Content-Type: text/html")
GATEWAY = answer(502, b"<html>Bad gateway</html>")
BUSY = answer(
    503,
    b'{"code":"overloaded","detail":"Busy.","retryable":true,"side_effects":"none","more":1}',
    "Seb-Version: 99.0",
    "Retry-After: 7",
)
STORED = answer(201, b'{"offset":41,"news":[]}', "Seb-Version: 99.0", "Seb-News: 1")


async def test_a_page_of_somebody_else_is_no_acknowledgement() -> None:
    async with between(scripted(HTML)) as way:
        producer = AsyncProducer(way.url, "seb_x")
        delivery = await producer.send("t", "a")
        with pytest.raises(ApplianceError, match="is not an appliance") as failure:
            await producer.close()
        assert failure.value.code == "foreign_answer"
        assert failure.value.side_effects == "unknown"
        with pytest.raises(ApplianceError):
            await delivery
    assert len(way.requests) == 1


async def test_it_comes_back_when_it_was_told_to_and_reads_a_later_version() -> None:
    clock = HurriedClock()
    async with between(scripted(GATEWAY, BUSY, STORED)) as way:
        async with AsyncProducer(way.url, "seb_x", clock=clock, random=lambda: 1.0) as producer:
            delivery = await producer.send("t", "a")
        assert delivery.result() == 41
    assert len(way.requests) == 3
    assert clock.slept_s == [0.1, 7.0]
    assert len({numbers(head) for head in way.requests}) == 1


def numbers(head: bytes) -> bytes:
    return head[head.index(b"Producer-Id") : head.index(b"Content-Type")]


def scripted(*answers: bytes):
    left = list(answers)

    async def answering(_: bytes) -> bytes:
        return left.pop(0)

    return answering


async def test_what_was_in_doubt_stays_in_doubt() -> None:
    """An attempt got no answer; that a later one is refused does not say what became of it."""
    refused = answer(
        403,
        b'{"code":"forbidden","detail":"No.","retryable":false,"side_effects":"none"}',
        "Seb-Version: 1",
    )
    async with between(scripted(GATEWAY, refused)) as way:
        producer = AsyncProducer(way.url, "seb_x", clock=HurriedClock())
        await producer.send("t", "a")
        with pytest.raises(ApplianceError) as failure:
            await producer.close()
    assert (failure.value.code, failure.value.side_effects) == ("forbidden", "unknown")


async def test_without_an_appliance_nothing_is_in_doubt() -> None:
    producer = AsyncProducer("http://127.0.0.1:9", "seb_x", patience_s=0)
    await producer.send("t", "a")
    with pytest.raises(ApplianceError) as failure:
        await producer.close()
    assert (failure.value.code, failure.value.side_effects) == ("unreachable", "none")


async def test_a_body_that_fails_says_so_and_what_was_sent_is_sent(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        producer = AsyncProducer(running.base_url, running.admin_key)

        async def body() -> None:
            async with producer:
                await producer.send("t", "a")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await body()
        assert len(await stored(running, "t")) == 1
        with pytest.raises(ClosedError):
            await producer.send("t", "b")


async def test_a_cancelled_body_has_sent_what_it_sent(tmp_path: Path) -> None:
    """As asyncio.run does on Ctrl-C."""
    async with running_appliance(tmp_path) as running:

        async def body() -> None:
            async with AsyncProducer(
                running.base_url, running.admin_key, linger_ms=60_000
            ) as producer:
                await producer.send("t", "a")
                asyncio.current_task().cancel()
                await asyncio.Event().wait()

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(body())
        assert len(await stored(running, "t")) == 1


async def test_what_comes_while_it_closes_is_refused_and_not_dropped() -> None:
    """What was taken is sent before `close` is over."""
    hold = asyncio.Event()

    async def held(_: bytes) -> bytes:
        await hold.wait()
        return STORED

    async with between(held) as way:
        producer = AsyncProducer(way.url, "seb_x", linger_ms=0)
        first = await producer.send("t", "a")
        closing = asyncio.create_task(producer.close())
        while not way.requests:
            await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            await producer.send("t", "b")
        hold.set()
        await closing
    assert first.result() == 41


async def test_a_host_that_cannot_be_one_is_unreachable() -> None:
    producer = AsyncProducer("http://a..b", "seb_x", patience_s=0)
    await producer.send("t", "a")
    async with asyncio.timeout(5):
        with pytest.raises(ApplianceError) as failure:
            await producer.close()
    assert (failure.value.code, failure.value.side_effects) == ("unreachable", "none")


async def test_who_waits_for_a_record_hears_when_the_producer_was_given_up() -> None:
    """The second Ctrl-C, while `with` waits at its end: other threads wait for nothing then."""
    hold = asyncio.Event()

    async def held(_: bytes) -> None:
        await hold.wait()

    async with between(held) as way:
        await asyncio.to_thread(given_up, way.url)
        hold.set()


def given_up(url: str) -> None:
    producer = Producer(url, "seb_x")
    delivery = producer.send("t", "a")
    thread = producer._thread

    def struck(work):
        closing = thread.begin(work)
        while not producer._inner._closed:
            time.sleep(0.001)
        closing.cancel()
        raise KeyboardInterrupt

    thread.wait_for = struck
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    with pytest.raises(ClosedError):
        delivery.result(5)


async def test_threads_share_a_blocking_producer(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await asyncio.to_thread(by_threads, running.base_url, running.admin_key)
        records = await stored(running, "t")
    assert len(records) == 2_000
    for name in "ab":
        mine = [record.text() for record in records if record.text().startswith(name)]
        assert mine == [f"{name}{i}" for i in range(1_000)]


def by_threads(url: str, key: str) -> None:
    with Producer(url, key, buffer_bytes=4_000, batch_bytes=1_000) as producer:

        def work(name: str) -> None:
            for i in range(1_000):
                last = producer.send("t", f"{name}{i}")
            assert last.result(30) is not None

        threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    producer.close()
    with pytest.raises(ClosedError):
        producer.send("t", "late")


class HurriedClock:
    """The machine's clock, but pauses take a thousandth; `slept_s`: how long they were to be."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    def wall_us(self) -> int:
        return 1_700_000_000_000_000

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await asyncio.sleep(seconds / 1000)

    def call_later(self, seconds, callback):
        raise NotImplementedError
