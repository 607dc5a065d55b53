"""What the fast lane does beside answering: waiting, leaving, order, time-outs, revocation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.api.server import http_protocol
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.lanes import Lane

pytestmark = pytest.mark.asyncio(loop_scope="module")

BATCH = "application/vnd.seb.batch"


def produce(key: str, body: bytes = b"x", topic: str = "t") -> bytes:
    head = f"POST /v1/topics/{topic}/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def consume(key: str, query: str = "", topic: str = "t") -> bytes:
    head = f"GET /v1/topics/{topic}/records{query} HTTP/1.1\r\nHost: x\r\n"
    return (
        f"{head}Authorization: Bearer {key}\r\nAccept: application/vnd.seb.batch\r\n\r\n".encode()
    )


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def end_of(seb: RunningAppliance, topic: str) -> int:
    return int((await seb.client.get(f"/v1/topics/{topic}")).json()["log_end_offset"])


async def test_records_of_a_client_that_left_are_stored_and_nobody_is_told(
    seb: RunningAppliance,
) -> None:
    await seb.client.put("/v1/topics/left", json={})
    lane = Lane(seb)
    lane.protocol.data_received(produce(seb.admin_key, topic="left"))
    lane.leave()
    while not await end_of(seb, "left"):
        await asyncio.sleep(0)
    assert lane.said == b""
    assert seb.appliance.broker.pending.used == 0


async def test_what_arrives_behind_a_waiting_append_is_answered_after_it(
    seb: RunningAppliance,
) -> None:
    await seb.client.put("/v1/topics/t", json={})
    lane = Lane(seb)
    lane.protocol.data_received(produce(seb.admin_key))
    assert not lane.paused
    health = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    lane.protocol.data_received(health[:10])
    assert lane.paused
    lane.protocol.data_received(health[10:])
    said = await lane.answers(b"", count=2)
    assert said.startswith(b"HTTP/1.1 201")
    assert b"\r\n\r\n{" in said
    assert b'"}\nHTTP/1.1 200 OK' in said
    assert not lane.paused
    lane.leave()


async def test_a_changed_api_key_is_looked_at_anew(seb: RunningAppliance) -> None:
    await seb.client.put("/v1/topics/t", json={})
    grants = [{"operation": "produce", "topics": "**"}]
    made = (await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})).json()
    request, path = produce(made["secret"]), f"/v1/api-keys/{made['api_key_id']}"
    expected = [
        ({}, b"201"),
        ({"grants": [{"operation": "consume", "topics": "**"}]}, b"403"),
        ({"grants": grants}, b"201"),
        ({"disabled": True}, b"401"),
        ({"disabled": False, "quotas": {"requests_per_second": 1}}, b"201"),
        ({}, b"429"),
    ]
    for change, status in expected:
        if change:
            assert (await seb.client.patch(path, json=change)).status_code == 200
        lane = Lane(seb)
        assert (await lane.answers(request))[9:12] == status, change
        lane.leave()
    await seb.client.delete(path)
    lane = Lane(seb)
    assert (await lane.answers(request))[9:12] == b"401"
    lane.leave()


async def test_a_head_of_an_expired_api_key_is_forgotten(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as seb:
        broker = seb.appliance.broker
        await seb.client.put("/v1/topics/t", json={})
        now_us = seb.appliance.clock.wall_us()
        key = broker.access.get(seb.admin_key.split("_")[1])
        assert broker.access.still_holds(key, broker.access.holds_until_us(key))
        assert not broker.access.still_holds(key, now_us)


async def test_a_bucket_that_is_too_slow_is_told_as_an_unknown_outcome(tmp_path: Path) -> None:
    async with running_appliance(tmp_path, ack_timeout="1s", linger="50ms") as seb:
        await seb.client.put("/v1/topics/t", json={})
        create = seb.appliance.store.create
        stuck = asyncio.Event()

        async def late(key: str, body: bytes) -> None:
            await stuck.wait()
            await create(key, body)

        seb.appliance.store.create = late  # type: ignore[method-assign]
        lanes = [Lane(seb), Lane(seb)]
        answers = await asyncio.gather(*(lane.answers(produce(seb.admin_key)) for lane in lanes))
        for answer in answers:
            assert answer.startswith(b"HTTP/1.1 504")
            assert b'"code":"outcome_unknown"' in answer
        assert seb.appliance.broker.counters.deadlines_passed == 2
        assert seb.appliance.broker.pending.used == 2 * (limits.PENDING_REQUEST_BYTES + 1)
        stuck.set()
        while seb.appliance.broker.pending.used:
            await asyncio.sleep(0)
        seb.appliance.store.create = create  # type: ignore[method-assign]
        assert (await lanes[0].answers(produce(seb.admin_key), count=2)).count(b"HTTP/1.1 201") == 1
        for lane in lanes:
            lane.leave()


async def test_a_fenced_writer_answers_those_who_wait(tmp_path: Path) -> None:
    async with running_appliance(tmp_path, linger="10s") as seb:
        await seb.client.put("/v1/topics/t", json={})
        lane = Lane(seb)
        lane.protocol.data_received(produce(seb.admin_key))
        await seb.appliance.broker.stop()
        assert (await lane.answers(b"")).startswith(b"HTTP/1.1 504")
        lane.leave()
        lane = Lane(seb)
        assert b"503 Service" in await lane.answers(produce(seb.admin_key))
        lane.leave()


async def test_an_answer_under_way_is_the_last_one_when_the_server_stops(tmp_path: Path) -> None:
    async with running_appliance(tmp_path, linger="100ms") as seb:
        await seb.client.put("/v1/topics/t", json={})
        lane = Lane(seb)
        lane.protocol.data_received(produce(seb.admin_key))
        lane.protocol.shutdown()
        assert not lane.closed
        said = await lane.answers(b"")
        assert b"201 Created" in said
        assert b"connection: close" in said
        assert lane.closed
        lane.leave()


async def test_an_answer_holds_its_bytes_until_the_client_took_them(seb: RunningAppliance) -> None:
    await seb.client.put("/v1/topics/big", json={"compression": "none"})
    await seb.client.post("/v1/topics/big/records", content=b"x" * 100_000)
    await seb.client.get("/v1/topics/big/records")  # from now on it is in memory
    lane = Lane(seb)
    write = lane.write

    def full(data: bytes) -> None:
        write(data)
        lane.protocol.pause_writing()

    lane.write = full  # type: ignore[method-assign]
    reading = seb.appliance.broker.reading
    lane.protocol.data_received(consume(seb.admin_key, topic="big"))
    assert reading.used > 100_000
    lane.protocol.data_received(consume(seb.admin_key, topic="big"))
    assert lane.paused
    assert lane.said.count(b"HTTP/1.1") == 1
    lane.write = write  # type: ignore[method-assign]
    lane.protocol.resume_writing()
    await turns()
    assert reading.used == 0
    assert lane.said.count(b"HTTP/1.1 200") == 2
    lane.leave()


async def test_a_client_that_leaves_gives_back_what_it_held(seb: RunningAppliance) -> None:
    await seb.client.put("/v1/topics/t", json={})
    broker = seb.appliance.broker
    lane = Lane(seb)
    lane.protocol.data_received(produce(seb.admin_key, b"x" * 1_000)[:-10])
    assert broker.pending.used == 990
    lane.leave()
    assert broker.pending.used == 0


async def test_a_connection_at_rest_is_closed_when_its_time_is_up(
    seb: RunningAppliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seb.client.put("/v1/topics/t", json={})
    monkeypatch.setattr(seb.server.config, "timeout_keep_alive", 1)  # longer than to the next one
    lane = Lane(seb)
    for count in (1, 2):
        await lane.answers(produce(seb.admin_key), count=count)
    assert not lane.closed
    async with asyncio.timeout(60):
        while not lane.closed:
            await asyncio.sleep(0)
    lane.leave()


async def test_a_body_that_stays_away_is_timed_out(
    seb: RunningAppliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(http_protocol._ALLOWED_S, "body", 0.05)
    await seb.client.put("/v1/topics/t", json={})
    lane = Lane(seb)
    assert b'"code":"request_timeout"' in await lane.answers(produce(seb.admin_key)[:-1])
    assert seb.appliance.broker.pending.used == 0
    lane.leave()


async def test_more_heads_than_are_kept_are_answered_as_well(
    seb: RunningAppliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seb_appliance.api.server.plain_answers.HEADS_KEPT", 3)
    await seb.client.put("/v1/topics/t", json={})
    lane = Lane(seb)
    for i in range(10):
        await lane.answers(produce(seb.admin_key, b"x" * i), count=i + 1)
    assert lane.said.count(b"HTTP/1.1 201") == 10
    lane.leave()


async def test_a_reader_gets_the_offset_it_asks_for_also_when_its_head_was_seen_before(
    seb: RunningAppliance,
) -> None:
    await seb.client.put("/v1/topics/seen", json={})
    lane = Lane(seb)
    for count, value in enumerate((b"zero", b"one", b"two"), 1):
        await lane.answers(produce(seb.admin_key, value, topic="seen"), count=count)
    lane.leave()
    for offset, value in ((0, b"zero"), (2, b"two"), (1, b"one"), (2, b"two")):
        said = await read_lines(seb, f"offset={offset}&max_records=1")
        assert b'{"offset":%d,' % offset in said
        assert b'"value":"%b"' % value in said
        assert said.count(b'"value"') == 1
    for wrong in ("", "-", "x", "1&offset=2", "1" * 17):
        assert (await read_lines(seb, f"offset={wrong}&max_records=1")).startswith(b"HTTP/1.1 400")


async def read_lines(seb: RunningAppliance, query: str) -> bytes:
    lane = Lane(seb)
    request = consume(seb.admin_key, "?" + query, topic="seen")
    said = await lane.answers(request.replace(BATCH.encode(), b"application/x-ndjson"))
    lane.leave()
    return bytes(said)


async def test_a_head_of_the_go_brokers_api_is_remembered_without_its_boundary(
    seb: RunningAppliance,
) -> None:
    """Its clients draw a new one for each body."""
    await seb.client.put("/v1/topics/t", json={})
    heads = seb.server.plain_answers
    before = len(heads._young)
    for boundary in ("a1b2", "c3d4", "e5f6"):
        parts = [("sizes", b"[4]"), ("records", boundary.encode())]
        body = b"".join(
            b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
            % (boundary.encode(), name.encode(), content)
            for name, content in parts
        )
        body += f"--{boundary}--\r\n".encode()
        head = (
            f"POST /records?topic-name=t HTTP/1.1\r\nHost: x\r\nAuthorization: {seb.admin_key}\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"Content-Type: multipart/form-data; boundary={boundary}\r\n\r\n"
        )
        answered = seb.server.plain_answers.answered
        lane = Lane(seb)
        assert (await lane.answers(head.encode() + body)).startswith(b"HTTP/1.1 201")
        assert seb.server.plain_answers.answered == answered + 1
        lane.leave()
        newest = await seb.client.get("/v1/topics/t/records?offset=-1")
        assert newest.json()["records"][0]["value"] == boundary
    assert len(heads._young) <= before + 2  # of the appends, and of the reads


async def test_records_that_grow_much_when_they_are_encoded_are_not_answered_here(
    seb: RunningAppliance,
) -> None:
    """A control character takes six bytes in JSON, and ten times as long as a letter."""
    for topic, value in (("letters", b"x" * 900_000), ("escapes", b"\1" * 900_000)):
        await seb.client.put(f"/v1/topics/{topic}", json={})
        await seb.client.post(f"/v1/topics/{topic}/records", content=value)
        answer = await seb.client.get(f"/v1/topics/{topic}/records")  # now they are in memory
        assert answer.json()["records"][0]["value"] == value.decode()
        lane, before = Lane(seb), seb.server.plain_answers.answered
        asked = consume(seb.admin_key, topic=topic).replace(BATCH.encode(), b"application/json")
        lane.protocol.data_received(asked)
        assert (seb.server.plain_answers.answered > before) == (topic == "letters")
        lane.leave()


async def test_a_small_body_of_many_records_is_checked_in_a_child_process(
    seb: RunningAppliance,
) -> None:
    """100,000 tombstones without a byte, compressed to 25 KB, take 40 ms."""
    await seb.client.put("/v1/topics/nothing", json={})
    for count, here in ((100, True), (100_000, False)):
        columns = Columns(
            int64s([1] * count), BinaryColumn.of([None] * count), BinaryColumn.of([b""] * count)
        )
        body = batch.encode(columns, base_offset=0, created_us=0, zstd_level=3)
        assert len(body) < limits.PARSED_AT_ONCE_BYTES
        lane, before = Lane(seb), seb.server.plain_answers.answered
        parsed = seb.appliance.parser.parsed
        head, _, _ = produce(seb.admin_key, topic="nothing").partition(b"Content-Length")
        head += b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n" % (BATCH.encode(), len(body))
        assert (await lane.answers(head + body)).startswith(b"HTTP/1.1 201")
        assert (seb.server.plain_answers.answered > before) == here
        assert (seb.appliance.parser.parsed > parsed) != here
        lane.leave()
    assert await end_of(seb, "nothing") == 100_100
