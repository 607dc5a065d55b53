"""The consumer: order, groups, leases, patterns, views."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from seb_appliance.client import (
    ApplianceError,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    ClosedError,
    ConfigurationError,
    Consumer,
    LeaseLostError,
    UnreadableAnswerError,
)
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.unreliable import answer, between, body_length, unreliable


async def fill(running: RunningAppliance, topic: str, values: range, **more: str) -> None:
    async with AsyncProducer(running.base_url, running.admin_key) as producer:
        for i in values:
            await producer.send(topic, str(i), **more)


def consumer(running: RunningAppliance, topics: str | list[str], **more) -> AsyncConsumer:
    return AsyncConsumer(running.base_url, running.admin_key, topics, **more)


async def texts(reading: AsyncConsumer, count: int) -> list[str]:
    """The values of the next `count` records."""
    found: list[str] = []
    async for record in reading:
        found.append(record.text())
        if len(found) == count:
            break
    return found


async def test_records_come_in_order_and_then_as_they_are_stored(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await fill(running, "t", range(50))
        async with consumer(running, "t", offset=10) as reading:
            assert await texts(reading, 40) == [str(i) for i in range(10, 50)]
            coming = asyncio.create_task(texts(reading, 2))
            await fill(running, "t", range(50, 52))
            assert await coming == ["50", "51"]


async def test_a_small_answer_at_a_time_leaves_out_nothing(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await fill(running, "t", range(300))
        await fill(running, "t", range(300, 700))
        async with consumer(running, "t", follow=False, max_bytes=500, offset=7) as reading:
            found = [record async for record in reading]
    assert [record.offset for record in found] == list(range(7, 700))
    assert [record.text() for record in found] == [str(i) for i in range(7, 700)]


async def test_it_begins_where_it_is_told_to_also_within_a_batch(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await fill(running, "t", range(100))
        await running.client.post("/v1/topics/t/trim", json={"before": 90})
        for offset, first in (("earliest", 90), ("-3", 97), (95, 95)):
            async with consumer(running, "t", follow=False, offset=offset) as reading:
                found = [record.offset async for record in reading]
            assert found == list(range(first, 100))
        async with consumer(running, "t", follow=False, group="g") as reading:
            assert (await texts(reading, 1)) == ["90"]
        async with consumer(running, "t", follow=False, offset="latest") as reading:
            assert await reading.next_batch() is None


async def test_a_pattern_finds_topics_that_come_later(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await fill(running, "orders.eu", range(3))
        await fill(running, "other", range(3))
        async with consumer(running, ["orders.*", "x"], refresh_s=0.01, follow=True) as reading:
            await fill(running, "x", range(1))
            assert sorted(await texts(reading, 4)) == ["0", "0", "1", "2"]
            await running.client.delete("/v1/topics/orders.eu")
            await fill(running, "orders.us", range(7, 8))
            assert await texts(reading, 1) == ["7"]


async def test_a_batch_is_committed_when_the_next_is_asked_for(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "t", range(20))
        options = {"group": "g", "commit": "after_batch", "follow": False, "max_bytes": 1}
        async with consumer(running, "t", **options) as reading:
            first = await reading.next_batch()
            assert first.records[0].offset == 0
            assert await committed(look, "g") == {}
            second = await reading.next_batch()
            assert second.records[0].offset == first.next_offset
            assert await committed(look, "g") == {"t": first.next_offset}
        async with consumer(running, "t", **options) as reading:
            rest = [record.offset async for record in reading]
        assert rest == list(range(first.next_offset, 20))
        assert await committed(look, "g") == {"t": 20}


def admin(running: RunningAppliance) -> AsyncAdmin:
    return AsyncAdmin(running.base_url, running.admin_key)


async def committed(look: AsyncAdmin, group: str) -> dict[str, int]:
    """By topic; a group that has committed nothing is none."""
    if not await look.groups():
        return {}
    return {row["topic"]: row["committed_offset"] for row in (await look.group(group))["topics"]}


async def test_a_commit_by_hand_is_up_to_the_last_record_that_was_handed_out(
    tmp_path: Path,
) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "a", range(10))
        await fill(running, "b", range(10))
        async with consumer(running, ["a", "b"], group="g") as reading:
            async for record in reading:
                if record.topic == "a" and record.offset == 4:
                    await reading.commit()
                    break
        stands = await committed(look, "g")
    assert stands["a"] == 5


async def test_another_consumer_of_the_group_is_found_out(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "t", range(10))
        async with consumer(running, "t", group="g") as reading:
            await reading.next_batch()
            await look.commit("g", {"t": 3})
            with pytest.raises(ApplianceError, match="offset_conflict"):
                await reading.commit()
        assert await committed(look, "g") == {"t": 3}


async def test_a_commit_whose_answer_was_lost_is_no_conflict_with_oneself(tmp_path: Path) -> None:
    fates = ["lose_answer", "pass"]
    async with (
        running_appliance(tmp_path) as running,
        admin(running) as look,
        unreliable(running.port, lambda: fates.pop(0) if committing.is_set() else "pass") as way,
    ):
        committing = asyncio.Event()
        await fill(running, "t", range(10))
        async with AsyncConsumer(
            way.url, running.admin_key, "t", group="g", follow=False
        ) as reading:
            batches = [batch async for batch in reading.batches()]
            assert sum(map(len, batches)) == 10
            committing.set()
            fates.append("pass")
            await reading.commit()
            assert fates == []
        assert await committed(look, "g") == {"t": 10}


async def test_a_commit_that_was_cancelled_is_no_conflict_with_oneself(tmp_path: Path) -> None:
    """The appliance may have it: the next one is not refused for that."""
    arrived, hold = asyncio.Event(), asyncio.Event()
    async with running_appliance(tmp_path) as running, admin(running) as look:

        async def forward(request: bytes) -> bytes | None:
            reply = await passed_on(running, request)
            if request.startswith(b"PUT "):
                arrived.set()
                await hold.wait()
            return reply

        await fill(running, "t", range(10))
        async with (
            between(forward) as way,
            AsyncConsumer(way.url, running.admin_key, "t", group="g", max_bytes=1) as reading,
        ):
            await reading.next_batch()
            committing = asyncio.create_task(reading.commit())
            await arrived.wait()
            committing.cancel()
            await asyncio.wait([committing])
            hold.set()
            second = await reading.next_batch()
            await reading.commit()
            assert await committed(look, "g") == {"t": second.next_offset}
            await look.commit("g", {"t": second.next_offset + 1})
            await reading.next_batch()
            with pytest.raises(ApplianceError, match="offset_conflict"):
                await reading.commit()


async def passed_on(running: RunningAppliance, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    reply = head + await reader.readexactly(body_length(head))
    writer.close()
    return reply


async def test_a_commit_that_was_given_up_is_no_conflict_with_oneself(tmp_path: Path) -> None:
    committing = False
    async with (
        running_appliance(tmp_path) as running,
        admin(running) as look,
        unreliable(running.port, lambda: "lose_answer" if committing else "pass", b"PUT") as way,
    ):
        await fill(running, "t", range(10))
        async with AsyncConsumer(
            way.url, running.admin_key, "t", group="g", patience_s=0
        ) as reading:
            await reading.next_batch()
            committing = True
            with pytest.raises(ApplianceError, match="no_answer"):
                await reading.commit()
            committing = False
            await fill(running, "t", range(10, 12))
            await reading.next_batch()
            await reading.commit()
        assert await committed(look, "g") == {"t": 12}


async def test_a_loop_that_was_left_goes_on_behind_its_last_record(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "t", range(10))
        options = {"group": "g", "commit": "after_batch", "follow": False}
        async with consumer(running, "t", **options) as reading:
            assert await texts(reading, 3) == ["0", "1", "2"]
            assert await texts(reading, 2) == ["3", "4"]
            rest = await reading.next_batch()
            assert await committed(look, "g") == {"t": 5}
            assert [record.offset for record in rest.records] == list(range(5, 10))
            assert await reading.next_batch() is None
        assert await committed(look, "g") == {"t": 10}


@pytest.mark.parametrize("has_fork", [False, True])
async def test_a_consumer_of_a_pattern_outlives_the_topics_that_it_commits(
    tmp_path: Path, has_fork: bool
) -> None:
    """Also where its reader has not heard yet that the topic is gone."""
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "orders.eu", range(10))
        if has_fork:
            await look.create_topic("fork", fork_of={"topic": "orders.eu"})
        async with consumer(
            running,
            "orders.*",
            group="g",
            commit="after_batch",
            prefetch=1,
            max_bytes=1,
            refresh_s=0.01,
        ) as reading:
            await reading.next_batch()
            await look.delete_topic("orders.eu")
            await fill(running, "orders.us", range(7, 8))
            async with asyncio.timeout(10):
                while (await reading.next_batch()).topic != "orders.us":
                    pass
            await reading.commit()
            assert await committed(look, "g") == {"orders.us": 1}


async def test_what_was_read_of_a_deleted_topic_is_not_committed_for_its_namesake(
    tmp_path: Path,
) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "orders.eu", range(10))
        async with consumer(
            running, "orders.*", group="g", prefetch=20, max_bytes=1, refresh_s=0.01
        ) as reading:
            loop = aiter(reading)
            assert (await anext(loop)).offset == 0
            while reading._ahead.qsize() < 9:
                await asyncio.sleep(0)
            await running.client.delete("/v1/topics/orders.eu")
            await fill(running, "orders.eu", range(20, 22))
            while reading._ahead.qsize() < 10:
                await asyncio.sleep(0)
            for offset in range(1, 10):
                assert (await anext(loop)).offset == offset
                await reading.commit()
            assert await committed(look, "g") == {}
            assert (await anext(loop)).text() == "20"
            await reading.commit()
            assert await committed(look, "g") == {"orders.eu": 1}


async def test_one_consumer_at_a_time_holds_the_lease(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "t", range(10))
        first = consumer(running, "t", group="g", lease="one")
        assert len(await first.next_batch()) == 10
        second = consumer(running, "t", group="g", lease="two")
        waiting = asyncio.create_task(second.next_batch())
        await first.commit()
        assert (await look.group("g"))["lease"]["holder"] == "one"
        await fill(running, "t", range(10, 12))
        assert not waiting.done()
        await first.close()
        assert [record.offset for record in (await waiting).records] == [10, 11]
        await second.close()
        assert (await look.group("g"))["lease"] is None


async def test_a_consumer_whose_lease_is_gone_stops(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "t", range(10))
        async with consumer(running, "t", group="g", lease="one") as reading:
            await reading.next_batch()
            generation = (await look.group("g"))["lease"]["generation"]
            released = await running.client.delete(f"/v1/groups/g/lease?generation={generation}")
            assert released.status_code == 204
            taken = await running.client.post(
                "/v1/groups/g/lease", json={"holder": "two", "ttl_ms": 30_000}
            )
            assert taken.status_code == 200
            with pytest.raises(LeaseLostError):
                await reading.commit()


async def test_a_table_is_rebuilt_and_then_followed(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await look.create_topic("stock", key_index="latest")
        for i in range(3):
            await fill(running, "stock", range(i, i + 1), key="apple", headers={"n": b"\xff"})
            await fill(running, "stock", range(10 + i, 11 + i), key="pear")
        while (await running.client.get("/v1/topics/stock/keys")).headers[
            "seb-indexed-offset"
        ] != "6":
            await asyncio.sleep(0)
        table = {}
        async with consumer(running, "stock", view="latest", max_bytes=1) as reading:
            async for batch in reading.batches():
                table.update({record.key: record.text() for record in batch.records})
                if not batch.is_view:
                    break
                if len(table) == 2:
                    assert table == {b"apple": "2", b"pear": "12"}
                    await fill(running, "stock", range(99, 100), key="pear")
        assert table == {b"apple": "2", b"pear": "99"}


async def test_an_unreliable_way_leaves_out_nothing(tmp_path: Path) -> None:
    fates = random.Random(1)
    dooms = ["pass", "lose_request", "lose_answer"]
    async with (
        running_appliance(tmp_path) as running,
        unreliable(running.port, lambda: fates.choice(dooms)) as way,
    ):
        await fill(running, "t", range(500))
        async with AsyncConsumer(
            way.url,
            running.admin_key,
            "t",
            group="g",
            commit="after_batch",
            follow=False,
            max_bytes=2000,
            random=lambda: -0.99,  # hardly any pause
        ) as reading:
            assert [record.offset async for record in reading] == list(range(500))


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ((200, b"<html>", "Content-Type: text/html"), "foreign_answer"),
        ((404, b"<html>", "Seb-Version: 1"), "foreign_answer"),
        ((302, b"", "Location: https://login"), "foreign_answer"),
        (
            (410, b'{"code":"offset_expired","later":{}}', "Seb-Version: 99"),
            "offset_expired",
        ),
    ],
)
async def test_what_is_no_answer_of_ours_ends_it(given: tuple, code: str) -> None:
    async def answering(_: bytes) -> bytes:
        return answer(*given)

    async with between(answering) as way, AsyncConsumer(way.url, "seb_x", "t") as reading:
        with pytest.raises(ApplianceError) as failure:
            await reading.next_batch()
    assert failure.value.code == code
    assert len(way.requests) == 1


async def test_records_in_a_format_to_come_are_told_as_such() -> None:
    headers = ("Seb-Version: 99", "Seb-Next-Offset: 1", "Seb-Log-End-Offset: 1")

    async def answering(_: bytes) -> bytes:
        return answer(200, b"seb?" + bytes(96), *headers)

    async with (
        between(answering) as way,
        AsyncConsumer(way.url, "seb_x", "t", offset=0) as reading,
    ):
        with pytest.raises(UnreadableAnswerError, match="another version"):
            await reading.next_batch()


async def test_a_topic_that_is_not_there_ends_it(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running, consumer(running, "t") as reading:
        with pytest.raises(ApplianceError, match="topic_not_found"):
            await reading.next_batch()
        assert await reading.next_batch() is None
    with pytest.raises(ClosedError):
        await reading.next_batch()


@pytest.mark.parametrize(
    "options",
    [
        {"commit": "after_batch"},
        {"lease": "one"},
        {"group": "g", "view": "latest"},
        {"group": "g", "offset": 7},
    ],
)
async def test_options_that_do_not_go_together_are_refused(options: dict) -> None:
    with pytest.raises(ConfigurationError):
        AsyncConsumer("http://127.0.0.1:9", "seb_x", "t", **options)


async def test_without_a_group_there_is_nothing_to_commit() -> None:
    async with AsyncConsumer("http://127.0.0.1:9", "seb_x", "t") as reading:
        with pytest.raises(ClientError, match="without a group"):
            await reading.commit()


async def test_a_blocking_consumer_reads_the_same(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await fill(running, "t", range(2_000))
        found = await asyncio.to_thread(by_thread, running.base_url, running.admin_key)
    assert found == [str(i) for i in range(2_000)]


def by_thread(url: str, key: str) -> list[str]:
    with Consumer(url, key, "t", group="g", commit="after_batch", follow=False) as reading:
        return [record.text() for record in reading]


async def test_a_blocking_consumer_that_was_interrupted_commits_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch may be lost on its way to the thread that asked for it."""
    async with running_appliance(tmp_path) as running, admin(running) as look:
        await fill(running, "t", range(5))
        await asyncio.to_thread(interrupted, running.base_url, running.admin_key, monkeypatch)
        assert await committed(look, "g") == {}


def interrupted(url: str, key: str, patch: pytest.MonkeyPatch) -> None:
    with Consumer(url, key, "t", group="g", commit="after_batch") as reading:
        ask = reading._wait_for

        def struck(work):
            ask(work)
            raise KeyboardInterrupt

        with patch.context() as striking:
            striking.setattr(reading, "_wait_for", struck)
            with pytest.raises(KeyboardInterrupt):
                reading.next_batch()
        with pytest.raises(ClosedError):
            reading.next_batch()
