"""Clients that mean harm to the Kafka port: changed requests, floods, a hostile API key."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.connection import Connection
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.wire.codec import APIS, codec
from seb_appliance.protocols.sockets import limits as socket_limits
from tests.fuzz.kafka_requests import message_of
from tests.support.kafka_client import (
    NAMED,
    api_key,
    connected,
    framed,
    head,
    of,
    request,
    serving,
    to,
    without_faults,
)
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.asyncio(loop_scope="module")

_TURNS = 50  # of the event loop that a request gets before its client goes


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("kafka")) as both:
        await both[0].client.put("/v1/topics/orders", json={})
        yield both


# --- changed requests ---


def _good(chance: random.Random) -> bytes:
    """A request of any API and version."""
    api = chance.choice([*APIS.values()])
    version = chance.choice(api.versions)
    message = message_of(api.request, version, chance)
    if api.name == "Fetch":
        message |= {"max_wait_ms": 0}
    if api.name == "Produce":
        message |= to("orders", made(Sent(b"v")), acks=chance.choice((-1, 0, 1)))
    if api.name in ("JoinGroup", "SyncGroup"):
        message |= {"session_timeout_ms": 1}
    out = bytearray(head(api, version))
    codec(api.key, version, "request")[1](out, message)
    return bytes(out)


def _changed(frame: bytes, chance: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        at = chance.randrange(len(data))
        kind = chance.randrange(4)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            data[at : at + 4] = struct.pack(">I", chance.choice((0, 1, 2**31 - 1, 2**32 - 1)))
        elif kind == 2:
            del data[at : at + chance.randrange(1, 9)]
        else:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        if not data:
            return b"\0"
    return bytes(data)


class _Wire:
    """A transport that takes everything."""

    def __init__(self) -> None:
        self.closed = False
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def nothing(self, **_: object) -> None:
        pass

    set_write_buffer_limits = pause_reading = resume_reading = abort = nothing


async def fuzz(running, count: int, seed: int) -> int:
    """Give connections changed requests, a new one whenever it has closed or waits; how many they
    took."""
    chance, kafka = random.Random(seed), running[1]
    token = b"\0x\0" + running[0].admin_key.encode()
    taken, connection = 0, None
    for number in range(count):
        if connection is None:
            wire = _Wire()
            connection = Connection(kafka)
            connection.connection_made(wire)
            connection.data_received(request("SaslAuthenticate", auth_bytes=token))
        connection.data_received(framed(_changed(_good(chance), chance)))
        for _ in range(_TURNS):
            if connection._holding is None and not connection._scheduled:
                break
            await asyncio.sleep(0)
        if wire.closed or connection._holding is not None or number == count - 1:
            taken += connection.received - 1
            connection.connection_lost(None)
            connection = None
            await asyncio.sleep(0)
    return taken


async def _settled(running):
    broker = running[0].appliance.broker
    async with asyncio.timeout(60):
        while broker.pending.used or broker.reading.used or running[1]._all:
            running[1].transactions.close()
            await asyncio.sleep(0)


async def _works(running):
    await running[0].client.put("/v1/topics/orders", json={})  # some request may have deleted it
    async with connected(running) as client:
        assert (await client.produce("orders", made(Sent())))["error_code"] == 0


async def test_changed_requests_break_nothing(running):
    assert await fuzz(running, 3_000, 1) > 2_500
    await _settled(running)
    await _works(running)


@pytest.mark.slow
async def test_forty_thousand_changed_requests_break_nothing(running):
    assert await fuzz(running, 40_000, 2) > 32_000
    await _settled(running)
    await _works(running)


# --- floods ---


async def test_a_name_that_is_asked_for_many_times_is_answered_once(running):
    async with connected(running) as client:
        for name, key, asked in (
            ("Metadata", "topics", {"name": "orders"}),
            ("DescribeConfigs", "resources", {"resource_type": 2, "resource_name": "orders"}),
            ("OffsetFetch", "groups", {"group_id": "g", "topics": None}),
            ("DescribeGroups", "groups", "g"),
            ("FindCoordinator", "coordinator_keys", "g"),
            ("DeleteGroups", "groups_names", "g"),
        ):
            once = await client.call(name, **{key: [asked]})
            assert await client.call(name, **{key: [asked] * 1_000}) == once, name


async def test_a_long_answer_for_which_there_is_no_memory_ends_the_connection(running, monkeypatch):
    async with connected(running) as client:
        monkeypatch.setattr(running[0].appliance.broker.reading, "limit", 10_000)
        names = [{"name": f"no.such.topic.{number}"} for number in range(3_000)]
        client.send("Metadata", topics=names, allow_auto_topic_creation=False)
        assert await client.is_closed()
    assert running[0].appliance.broker.reading.used == 0


async def test_a_leader_of_many_members_is_told_of_them_if_there_is_memory(running, monkeypatch):
    """Each connection that names it gets the same long answer, and may leave it untaken."""
    reading = running[0].appliance.broker.reading
    given = {"group_id": "large", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    given["protocols"] = [{"name": "range", "metadata": b"x" * kafka_limits.METADATA_BYTES_MAX}]
    given["protocol_type"] = "consumer"
    async with contextlib.AsyncExitStack() as stack:
        members = [await stack.enter_async_context(connected(running)) for _ in range(4)]
        for one in members:
            one.send("JoinGroup", 3, **given)
        (leader,) = [one for one in [await one.answer() for one in members] if one["members"]]
        assert len(leader["members"]) == 4
        monkeypatch.setattr(reading, "limit", 3 * kafka_limits.METADATA_BYTES_MAX)
        members[0].send("JoinGroup", 3, **given, member_id=leader["member_id"])
        assert await members[0].is_closed()
        assert reading.used == 0


async def test_an_answer_in_one_piece_needs_memory_where_it_is_large(running, monkeypatch):
    """Such as the assignment of a member, on each of many connections."""
    reading = running[0].appliance.broker.reading
    given = {"group_id": "assigned", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    given["protocols"] = [{"name": "range", "metadata": b""}]
    async with connected(running) as client:
        joined = await client.call("JoinGroup", 3, **given, protocol_type="consumer")
        asked = {name: joined[name] for name in ("generation_id", "member_id")}
        asked["group_id"] = "assigned"
        most = b"x" * kafka_limits.ASSIGNMENT_BYTES_MAX
        given = [{"member_id": joined["member_id"], "assignment": most}]
        answer = await client.call("SyncGroup", 3, **asked, assignments=given)
        assert answer["assignment"] == most
        assert reading.used == 0
        monkeypatch.setattr(reading, "limit", kafka_limits.ASSIGNMENT_BYTES_MAX)
        client.send("SyncGroup", 3, **asked)
        assert await client.is_closed()


async def test_records_with_large_keys_need_memory_as_those_with_large_values(running, monkeypatch):
    await running[0].client.put("/v1/topics/keyed", json={})
    async with connected(running) as client:
        batch = made(*[Sent(b"", b"k" * limits.RECORD_KEY_BYTES_MAX)] * 10)
        assert (await client.produce("keyed", batch))["error_code"] == 0
        assert (await client.fetch("keyed"))["records"]  # now they are in memory
        monkeypatch.setattr(running[0].appliance.broker.reading, "limit", 100_000)
        part = await client.fetch("keyed")
        assert (part["error_code"], part["records"]) == (0, b"")


async def test_a_refusal_of_many_partitions_is_short(running):
    """A thousand small batches, which say little themselves."""
    await running[0].client.put("/v1/topics/compact", json={"cleanup": "compact"})
    parts = [{"index": 0, "records": made(*[Sent(b"v")] * 1_000, codec=1)}] * 1_000
    body = to("compact", b"") | {"topic_data": [{"name": "compact", "partition_data": parts}]}
    async with connected(running) as client:
        answer = await client.call("Produce", **body)
        found = answer["responses"][0]["partition_responses"]
        assert {one["error_code"] for one in found} == {ErrorCode.INVALID_RECORD}
        assert sum(one["error_message"] is not None for one in found) == 32
        assert sum(len(one["record_errors"]) for one in found) == 3_200


async def test_records_of_many_partitions_need_memory_for_their_answer_first(running, monkeypatch):
    await running[0].client.put("/v1/topics/wide", json={})
    parts = [{"index": 0, "records": made(Sent(b"v"))}] * 1_000
    body = to("wide", b"") | {"topic_data": [{"name": "wide", "partition_data": parts}]}
    async with connected(running) as client:
        monkeypatch.setattr(running[0].appliance.broker.reading, "limit", 10_000)
        client.send("Produce", **body)
        assert await client.is_closed()
    async with connected(running) as client:
        client.send("Produce", **body | {"acks": 0})  # which has no answer
        client._asked.clear()
        assert (await client.produce("wide", made(Sent(b"v"))))["base_offset"] == 1_000


async def test_what_is_read_of_a_long_request_needs_memory(running, monkeypatch):
    pending = running[0].appliance.broker.pending
    names = [{"name": f"{number}"} for number in range(9_000)]
    async with connected(running) as client:
        monkeypatch.setattr(pending, "limit", 2_000_000)
        client.send("Metadata", topics=names, allow_auto_topic_creation=False)
        assert await client.is_closed()
    assert pending.used == 0
    monkeypatch.undo()
    async with connected(running) as client:
        answer = await client.call("Metadata", topics=names, allow_auto_topic_creation=False)
        assert len(answer["topics"]) == 9_000
    await _settled(running)


async def test_half_a_large_request_takes_memory_that_is_counted_and_given_back(running):
    pending = running[0].appliance.broker.pending
    async with connected(running) as client:
        sent = request("Produce", **to("orders", made(Sent(b"x" * limits.MIB))))
        client.writer.write(sent[: limits.MIB // 2])
        async with asyncio.timeout(5):
            while pending.used < limits.MIB // 4:
                await asyncio.sleep(0)
    async with asyncio.timeout(5):
        while pending.used:
            await asyncio.sleep(0)


async def _starved(running, count=1):
    """The connections that wait for memory, once there are so many."""
    async with asyncio.timeout(5):
        while len(found := [one for one in running[1]._all if one._starved_s is not None]) < count:
            await asyncio.sleep(0)
    return found


async def test_a_request_for_which_there_is_no_memory_waits_for_it(running, monkeypatch):
    await running[0].client.put("/v1/topics/orders", json={})
    pending = running[0].appliance.broker.pending
    with monkeypatch.context() as full:
        full.setattr(pending, "limit", 100_000)
        async with connected(running) as client:
            client.send("Produce", **to("orders", made(Sent(b"x" * limits.MIB))))
            (served,) = await _starved(running)
            assert not served.transport.is_reading()
            full.undo()
            answer = await client.answer()
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
            assert running[1].starving.used == 0
    await _settled(running)


async def test_a_request_that_finds_no_memory_for_long_ends_its_connection(running, monkeypatch):
    monkeypatch.setattr(running[0].appliance.broker.pending, "limit", 100_000)
    async with connected(running) as client:
        before = running[1].refusals
        client.writer.write(request("Produce", **to("orders", made(Sent(b"x" * limits.MIB)))))
        await _starved(running)
        monkeypatch.setattr(socket_limits, "NO_ROOM_S_MAX", 0)
        assert await client.is_closed()
        assert running[1].refusals == before + 1
    await _settled(running)
    assert running[1].starving.used == 0


async def test_clients_that_take_no_answers_hold_no_more_than_their_share(running, monkeypatch):
    unsent = running[1].unsent
    monkeypatch.setattr(unsent, "limit", 300_000)
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(running)) for _ in range(6)]
        served = list(running[1]._all)[-6:]
        for client, one in zip(clients, served, strict=True):
            client.writer.transport.pause_reading()
            kept = one.transport.get_extra_info("socket")
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        for _ in range(100):
            for client in clients:
                client.writer.write(request("ApiVersions") * 500)
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            while not all(one._is_clogged for one in served):
                await asyncio.sleep(0)
        assert sum(one.transport.get_write_buffer_size() for one in served) < 800_000
    async with asyncio.timeout(5):
        while unsent.used:
            await asyncio.sleep(0)


async def test_only_so_many_connections_wait_for_memory(running, monkeypatch):
    monkeypatch.setattr(running[0].appliance.broker.pending, "limit", 100_000)
    monkeypatch.setattr(running[1].starving, "limit", 2)
    flood = request("Produce", **to("orders", made(Sent(b"x" * limits.MIB))))
    async with connected(running) as first, connected(running) as second:
        first.writer.write(flood)
        (waiting,) = await _starved(running)
        second.writer.write(flood)
        assert await second.is_closed()
        assert waiting in running[1]._all


async def test_a_hostile_api_key_takes_no_more_than_its_share_from_a_good_one(running, monkeypatch):
    """It fills what it may of the memory of requests; the other one still stores its records."""
    pending = running[0].appliance.broker.pending
    monkeypatch.setattr(pending, "limit", 4 * limits.MIB)
    hostile = await api_key(running, ("produce", "**"))
    good = await api_key(running, ("produce", "**"))
    flood = request("Produce", **to("orders", made(Sent(b"x" * limits.MIB))))
    writers = []
    async with connected(running, good["secret"]) as client:
        for _ in range(8):
            _, writer = await asyncio.open_connection("127.0.0.1", running[1].port)
            token = b"\0x\0" + hostile["secret"].encode()
            writer.write(request("SaslAuthenticate", auth_bytes=token) + flood[:-1])
            writers.append(writer)
        async with asyncio.timeout(10):
            while pending.held_by(hostile["api_key_id"]) < limits.MIB:
                await asyncio.sleep(0)
        assert pending.held_by(hostile["api_key_id"]) <= 2 * limits.MIB
        part = await client.produce("orders", made(Sent(b"y" * 100_000)))
        assert part["error_code"] == 0
    for writer in writers:
        writer.close()
    await _settled(running)


async def test_others_have_turns_while_a_long_answer_is_made(running):
    """Each turn makes some elements of the answer, not all."""
    loop, turns = asyncio.get_running_loop(), 0

    def turn():
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    async with connected(running) as client:
        asked = [{"name": f"no.{number}"} for number in range(9_000)]
        sent = request("Metadata", topics=asked, allow_auto_topic_creation=False)
        served = list(running[1]._all)[-1]
        before = served.sent
        client.writer.write(sent)
        async with asyncio.timeout(20):
            while served.received < 3:
                await asyncio.sleep(0)
            while served.sent == before:
                turns += 1
                await asyncio.sleep(0)
        assert turns > 5
        await client.frame()


async def test_a_client_that_goes_in_the_middle_of_a_long_answer_leaves_nothing(running):
    with without_faults():
        async with connected(running) as client:
            asked = [{"name": f"no.{number}"} for number in range(9_000)]
            client.writer.write(request("Metadata", topics=asked, allow_auto_topic_creation=False))
            client.send("Fetch", 12, **of(("orders", 0, 10**6)))
            await client.writer.drain()
            client.writer.transport.abort()
        await _settled(running)


async def test_ten_thousand_tagged_fields_end_the_connection_or_are_skipped(running):
    async with connected(running) as client:
        start = head(NAMED["DescribeCluster"], 1)
        for count, is_taken in ((1_000, True), (100_000, False)):
            varint = struct.pack("BBB", count & 127 | 128, count >> 7 & 127 | 128, count >> 14)
            client.writer.write(framed(start + b"\0\1" + varint + b"\x63\0" * count))
            assert (await client.is_closed()) is not is_taken
