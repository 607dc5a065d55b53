"""Kafka's Produce, Fetch and the offsets of partitions, over real sockets."""

from __future__ import annotations

import asyncio
import gzip

import cramjam
import pytest
import pytest_asyncio

from seb_appliance import limits, zstd
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.records.reading import read_batches
from seb_appliance.protocols.sockets import limits as socket_limits
from tests.support.kafka_client import api_key, connected, of, offsets, serving, to, values
from tests.unit.protocols.kafka.record_sets import (
    ATTRIBUTES_AT,
    T_MS,
    Sent,
    changed,
    made,
    with_body,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("kafka"), linger="1ms") as both:
        yield both


@pytest_asyncio.fixture(loop_scope="module")
async def topic(running, request):
    """A new one for each test."""
    name = f"t{abs(hash(request.node.name)) % 10**12}"
    answer = await running[0].client.put(f"/v1/topics/{name}", json={})
    assert answer.status_code < 300, answer.text
    return name


async def stored(running, topic):
    answer = await running[0].client.get(f"/v1/topics/{topic}/records")
    return answer.json()["records"]


# --- Produce ---


@pytest.mark.parametrize("acks", [-1, 1])
async def test_an_answer_means_that_the_bucket_has_the_records(running, topic, acks):
    async with connected(running) as client:
        for version in range(3, 12):
            part = await client.produce(topic, made(Sent(b"v", b"k")), acks=acks, version=version)
            assert (part["error_code"], part["base_offset"]) == (0, version - 3)
    (first, *_) = await stored(running, topic)
    assert (first["key"], first["value"]) == ("k", "v")


async def test_acks_0_has_no_answer_and_is_stored_in_its_place(running, topic):
    async with connected(running) as client:
        for number in range(20):
            client.send("Produce", **to(topic, made(Sent(b"%d" % number)), acks=0))
        client._asked.clear()
        assert (await client.produce(topic, made(Sent(b"20"))))["base_offset"] == 20
    found = [one["value"] for one in await stored(running, topic)]
    assert found == [str(number) for number in range(21)]


async def test_other_acks_are_refused_with_21(running, topic):
    async with connected(running) as client:
        part = await client.produce(topic, made(Sent()), acks=2)
    assert part["error_code"] == ErrorCode.INVALID_REQUIRED_ACKS
    assert await stored(running, topic) == []


async def test_pipelined_requests_are_stored_and_answered_in_their_order(running, topic):
    """Small ones and those that are read in slices, which take longer."""
    sizes = (1, 100_000, 1, 300_000, 2, 1, 70_000, 1)
    async with connected(running) as client:
        for number, size in enumerate(sizes):
            client.send("Produce", **to(topic, made(Sent(b"%d" % number + b"x" * size))))
        answers = [await client.answer() for _ in sizes]
    found = [one["responses"][0]["partition_responses"][0]["base_offset"] for one in answers]
    assert found == list(range(len(sizes)))
    assert [one["value"][0] for one in await stored(running, topic)] == list("01234567")


async def test_a_repeated_request_of_an_idempotent_producer_is_stored_once(running, topic):
    async with connected(running) as client:
        pid = (await client.call("InitProducerId", transactional_id=None))["producer_id"]
        first = made(Sent(b"0"), Sent(b"1"), producer=(pid, 0, 0))
        second = made(Sent(b"2"), producer=(pid, 0, 2))
        offsets_of = [
            (await client.produce(topic, one))["base_offset"]
            for one in (first, second, first, second)
        ]
        assert offsets_of == [0, 2, 0, 2]
    assert [one["value"] for one in await stored(running, topic)] == ["0", "1", "2"]


async def test_a_gap_of_an_idempotent_producer_is_refused_with_45(running, topic):
    async with connected(running) as client:
        pid = (await client.call("InitProducerId", transactional_id=None))["producer_id"]
        unknown = await client.produce(topic, made(Sent(), producer=(pid, 0, 5)))
        assert unknown["error_code"] == ErrorCode.UNKNOWN_PRODUCER_ID
        assert (await client.produce(topic, made(Sent(), producer=(pid, 0, 0))))["error_code"] == 0
        gap = await client.produce(topic, made(Sent(), producer=(pid, 0, 2)))
        assert gap["error_code"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await client.produce(topic, made(Sent(), producer=(pid, 1, 0))))["error_code"] == 0
        stale = await client.produce(topic, made(Sent(), producer=(pid, 0, 1)))
        assert stale["error_code"] == ErrorCode.INVALID_PRODUCER_EPOCH
        asked = {"name": topic, "partition_indexes": [0]}
        part = (await client.call("DescribeProducers", topics=[asked]))["topics"][0]["partitions"]
        (active,) = part[0]["active_producers"]
        found = active["producer_id"], active["producer_epoch"], active["last_sequence"]
        assert found == (pid, 1, 0)
    assert len(await stored(running, topic)) == 2


async def test_a_producer_id_of_another_api_key_takes_no_sequences_from_it(running, topic):
    """They would be taken for repeats, and be acknowledged and lost."""
    theirs = await api_key(running, ("produce", topic))
    async with connected(running) as client, connected(running, theirs["secret"]) as other:
        pid = (await client.call("InitProducerId", transactional_id=None))["producer_id"]
        for epoch in (0, 1):
            for sequence in range(7):
                await other.produce(topic, made(Sent(b"x"), producer=(pid, epoch, sequence)))
            part = await client.produce(topic, made(Sent(b"mine"), producer=(pid, 0, epoch)))
            assert part["error_code"] == 0
    assert [one["value"] for one in await stored(running, topic)] == [*"xxxxxxx", "mine"] * 2


async def test_damaged_and_forbidden_record_sets_are_refused_and_nothing_is_stored(running, topic):
    good = made(Sent(b"value", b"key"))
    headers = [(b"h%d" % number, b"") for number in range(limits.RECORD_HEADERS_MAX + 1)]
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    async with connected(running) as client:
        for records, code in (
            (damaged, ErrorCode.CORRUPT_MESSAGE),
            (good[:-1], ErrorCode.CORRUPT_MESSAGE),
            (b"", ErrorCode.INVALID_RECORD),
            (changed(good, ATTRIBUTES_AT, ">h", 0x20), ErrorCode.INVALID_RECORD),
            (changed(good, ATTRIBUTES_AT, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            (changed(good, ATTRIBUTES_AT, ">h", 0x10), ErrorCode.INVALID_RECORD),
            (good[:16] + b"\1" + good[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
            (made(Sent(headers=headers)), ErrorCode.INVALID_RECORD),
            (made(Sent(headers=[(b"h", b"x" * limits.RECORD_HEADERS_BYTES_MAX)])),
             ErrorCode.INVALID_RECORD),
            (made(Sent(b"x" * (limits.RECORD_BYTES_DEFAULT + 1))), ErrorCode.MESSAGE_TOO_LARGE),
            (made(Sent(key=b"x" * (limits.RECORD_KEY_BYTES_MAX + 1))),
             ErrorCode.MESSAGE_TOO_LARGE),
            (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):  # fmt: skip
            part = await client.produce(topic, records)
            assert part["error_code"] == code, (code, part)
    assert await stored(running, topic) == []


async def test_a_record_without_a_key_is_refused_in_a_compacted_topic(running, topic):
    await running[0].client.patch(f"/v1/topics/{topic}", json={"cleanup": "compact"})
    async with connected(running) as client:
        keyed = Sent(b"a", b"k")
        part = await client.produce(topic, made(keyed, Sent(), keyed, Sent()))
        assert (part["error_code"], part["base_offset"]) == (ErrorCode.INVALID_RECORD, -1)
        assert [one["batch_index"] for one in part["record_errors"]] == [1, 3]
        assert all(one["batch_index_error_message"] for one in part["record_errors"])
        part = await client.produce(topic, made(Sent(), Sent()), version=7)
        assert part["error_code"] == ErrorCode.INVALID_RECORD
        assert (await client.produce(topic, made(keyed, keyed)))["error_code"] == 0
        assert values(await client.fetch(topic)) == [b"a", b"a"]


async def test_a_partition_that_does_not_exist_is_refused_beside_others(running, topic):
    parts = [
        {"index": index, "records": made(Sent(b"%d" % index))} for index in (0, 1, -1, 2**31 - 1)
    ]
    body = to(topic, b"") | {"topic_data": [
        {"name": topic, "partition_data": parts},
        {"name": f"{topic}.missing", "partition_data": parts[:1]},
        {"name": "not a name", "partition_data": parts[:1]},
    ]}  # fmt: skip
    async with connected(running) as client:
        answer = await client.call("Produce", **body)
    codes = [[one["error_code"] for one in t["partition_responses"]] for t in answer["responses"]]
    assert codes == [[0, 3, 3, 3], [3], [3]]
    assert [one["value"] for one in await stored(running, topic)] == ["0"]


async def test_a_partition_is_a_topic_of_its_own_by_http(running, topic):
    async with connected(running) as client:
        asked = {"topics": [{"name": topic, "count": 3}]}
        assert (await client.call("CreatePartitions", **asked))["results"][0]["error_code"] == 0
        for index in range(3):
            assert (await client.produce(topic, made(Sent(b"%d" % index)), index))[
                "error_code"
            ] == 0
        assert values(await client.fetch(topic, index=2)) == [b"2"]
        (shown,) = (await client.call("Metadata", topics=[{"name": topic}]))["topics"]
        assert [one["partition_index"] for one in shown["partitions"]] == [0, 1, 2]
    found = [await stored(running, f"{topic}{end}") for end in ("", ".kafka-1", ".kafka-2")]
    assert [[one["value"] for one in part] for part in found] == [["0"], ["1"], ["2"]]


async def test_records_keep_their_keys_headers_times_and_tombstones(running, topic):
    sent = made(
        Sent(b"v", b"k", [(b"a", b"1"), (b"b", None)], T_MS),
        Sent(None, b"k", time_ms=T_MS + 5),
        Sent(b"\xff\0", None, [(b"a", b"1"), (b"a", b"2")], T_MS + 9),
    )
    async with connected(running) as client:
        assert (await client.produce(topic, sent))["error_code"] == 0
        part = await client.fetch(topic)
    assert read_batches(bytes(part["records"]), limits.MIB) == read_batches(sent, limits.MIB)


@pytest.mark.parametrize(
    ("codec", "compress"),
    [
        (1, gzip.compress),
        (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
        (3, lambda data: bytes(cramjam.lz4.compress(data))),
        (4, zstd.compress),
    ],
)
async def test_a_compressed_bomb_is_refused(running, topic, codec, compress):
    bomb = with_body(made(Sent()), compress(bytes(64 * limits.MIB)), codec)
    assert len(bomb) < 4 * limits.MIB
    async with connected(running) as client:
        part = await client.produce(topic, bomb)
        assert part["error_code"] == ErrorCode.MESSAGE_TOO_LARGE
        assert (await client.produce(topic, made(Sent())))["base_offset"] == 0
    assert running[0].appliance.broker.pending.used == 0


async def test_records_that_find_no_room_wait_for_it_and_are_refused_in_the_end(
    running, topic, monkeypatch
):
    pending = running[0].appliance.broker.pending
    async with connected(running) as client:
        monkeypatch.setattr(pending, "limit", 0)
        part = await client.produce(topic, made(Sent()), timeout_ms=150)
        assert part["error_code"] == ErrorCode.REQUEST_TIMED_OUT
        monkeypatch.setattr(socket_limits, "NO_ROOM_S_MAX", 0)
        part = await client.produce(topic, made(Sent()), timeout_ms=2**31 - 1)
        assert part["error_code"] == ErrorCode.REQUEST_TIMED_OUT
        monkeypatch.undo()
        monkeypatch.setattr(pending, "limit", 0)
        client.send("Produce", **to(topic, made(Sent(b"late"))))
        served = list(running[1]._all)[-1]
        async with asyncio.timeout(5):
            while served._holding is None:
                await asyncio.sleep(0)
        monkeypatch.undo()
        answer = await client.answer()
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


# --- Fetch ---


async def test_a_fetch_at_the_end_waits_and_a_record_wakes_it(running, topic):
    async with connected(running) as reader, connected(running) as writer:
        reader.send("Fetch", 12, **of((topic, 0, 0), max_wait_ms=20_000))
        served = list(running[1]._all)[-2]
        async with asyncio.timeout(5):
            while served._holding is None:
                await asyncio.sleep(0)
        await writer.produce(topic, made(Sent(b"woken")))
        part = (await reader.answer())["responses"][0]["partitions"][0]
    assert (values(part), part["high_watermark"], part["last_stable_offset"]) == ([b"woken"], 1, 1)


async def test_a_fetch_waits_for_min_bytes_but_no_longer_than_max_wait(running, topic):
    async with connected(running) as client, connected(running) as writer:
        empty = await client.fetch(topic, max_wait_ms=50)
        assert (empty["error_code"], bytes(empty["records"])) == (0, b"")
        await writer.produce(topic, made(Sent(b"a")))
        some = await client.fetch(topic, max_wait_ms=50, min_bytes=10_000)
        assert values(some) == [b"a"]
        client.send("Fetch", 12, **of((topic, 0, 0), max_wait_ms=20_000, min_bytes=10_000))
        await writer.produce(topic, made(Sent(b"b" * 10_000)))
        part = (await client.answer())["responses"][0]["partitions"][0]
        assert len(values(part)) == 2


async def test_an_offset_out_of_range_is_refused_with_1(running, topic):
    async with connected(running) as client:
        await client.produce(topic, made(Sent(), Sent(), Sent()))
        assert (await client.fetch(topic, 4))["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await client.fetch(topic, 3))["error_code"] == 0
        for offset in (-1, -(2**63), 2**63 - 1):
            part = await client.fetch(topic, offset)
            assert part["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE, offset
        await running[0].client.post(f"/v1/topics/{topic}/trim", json={"before_offset": 2})
        trimmed = [{"partition_index": 0, "offset": 2}]
        answer = await client.call(
            "DeleteRecords", topics=[{"name": topic, "partitions": trimmed}], timeout_ms=1000
        )
        assert answer["topics"][0]["partitions"][0]["low_watermark"] == 2
        part = await client.fetch(topic, 1)
        assert part["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_fetch_begins_in_the_middle_of_what_was_sent_together(running, topic):
    async with connected(running) as client:
        await client.produce(topic, made(*[Sent(b"%d" % number) for number in range(10)]))
        part = await client.fetch(topic, 7)
        assert (values(part), offsets(part)) == ([b"7", b"8", b"9"], [7])


async def test_a_fetch_gives_at_least_one_record_and_not_much_more_than_asked(running, topic):
    async with connected(running) as client:
        for _ in range(5):
            await client.produce(topic, made(Sent(b"x" * 1_000)))
        assert len(values(await client.fetch(topic, partition_max_bytes=1))) == 1
        assert len(values(await client.fetch(topic, max_bytes=2_500))) in {2, 3}
        assert len(values(await client.fetch(topic, partition_max_bytes=2_500))) in {2, 3}
        assert len(values(await client.fetch(topic, max_bytes=-5, partition_max_bytes=-5))) == 1


async def test_partitions_of_several_topics_are_read_at_once(running, topic):
    async with connected(running) as client:
        await running[0].client.put(f"/v1/topics/{topic}.b", json={})
        await client.produce(topic, made(Sent(b"a")))
        await client.produce(f"{topic}.b", made(Sent(b"b")))
        asked = [(topic, 0, 0), (f"{topic}.b", 0, 0), (f"{topic}.c", 0, 0), (topic, 9, 0)]
        answer = await client.call("Fetch", 12, **of(*asked, max_wait_ms=10_000))
    parts = [one["partitions"][0] for one in answer["responses"]]
    assert [values(one) for one in parts[:2]] == [[b"a"], [b"b"]]
    assert [one["error_code"] for one in parts] == [0, 0, 3, 3]


async def test_every_version_of_fetch_reads_by_name_or_by_id(running, topic):
    async with connected(running) as client:
        await client.produce(topic, made(Sent(b"a")))
        (shown,) = (await client.call("Metadata", topics=[{"name": topic}]))["topics"]
        for version in range(4, 17):
            body = of((topic, 0, 0))
            body["topics"][0]["topic_id"] = shown["topic_id"]
            answer = await client.call("Fetch", version, **body)
            assert values(answer["responses"][0]["partitions"][0]) == [b"a"]
        body["topics"][0]["topic_id"] = b"x" * 16
        answer = await client.call("Fetch", **body)
        assert answer["responses"][0]["partitions"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


async def test_fetch_sessions_are_refused_cleanly_and_answers_are_whole(running, topic):
    async with connected(running) as client:
        answer = await client.call("Fetch", 12, **of((topic, 0, 0), session_id=7, session_epoch=3))
        assert answer["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        answer = await client.call("Fetch", 12, **of((topic, 0, 0), session_id=0, session_epoch=0))
        assert (answer["error_code"], answer["session_id"]) == (0, 0)


async def test_a_fetch_of_too_many_partitions_is_refused(running, topic, monkeypatch):
    monkeypatch.setattr(kafka_limits, "FETCH_PARTITIONS_MAX", 2)
    async with connected(running) as client:
        asked = [(topic, index, 0) for index in range(3)]
        answer = await client.call("Fetch", 12, **of(*asked))
        assert answer["error_code"] == ErrorCode.INVALID_REQUEST
        assert (await client.call("Fetch", 12, **of(*asked[:2])))["error_code"] == 0


async def test_a_fetch_takes_no_more_than_so_much(running, topic, monkeypatch):
    async with connected(running) as client:
        for _ in range(3):
            await client.produce(topic, made(Sent(b"x" * 100_000)))
        monkeypatch.setattr(kafka_limits, "FETCH_BYTES_MAX", 150_000)
        assert len(values(await client.fetch(topic))) == 1
        monkeypatch.undo()
        assert len(values(await client.fetch(topic))) == 3


# --- ListOffsets, OffsetForLeaderEpoch ---


async def test_list_offsets_finds_ends_times_and_the_newest_record(running, topic):
    async with connected(running) as client:

        async def at(time_ms: int, version: int = 8):
            part = [{"partition_index": 0, "timestamp": time_ms}]
            answer = await client.call(
                "ListOffsets", version, replica_id=-1, topics=[{"name": topic, "partitions": part}]
            )
            found = answer["topics"][0]["partitions"][0]
            return found["error_code"], found["offset"], found["timestamp"]

        assert await at(-1) == (0, 0, -1)
        assert await at(-3) == (0, -1, -1)
        times = [T_MS, T_MS + 50, T_MS + 20]
        await client.produce(topic, made(*[Sent(time_ms=one) for one in times]))
        for version in range(1, 9):
            assert await at(-1, version) == (0, 3, -1)
            assert await at(-2, version) == (0, 0, -1)
        assert await at(-3) == (0, 1, T_MS + 50)
        assert await at(-4) == (0, 0, -1)
        assert await at(-7) == (ErrorCode.INVALID_TIMESTAMP, -1, -1)
        assert await at(0) == (0, 0, T_MS)
        assert await at(T_MS + 1) == (0, 1, T_MS + 50)
        assert await at(T_MS + 51) == (0, -1, -1)
        assert await at(2**63 - 1) == (0, -1, -1)


async def test_the_only_leader_epoch_ends_where_the_log_ends(running, topic):
    async with connected(running) as client:
        await client.produce(topic, made(Sent(), Sent()))
        for version in (2, 3, 4):
            asked = [
                {"partition": index, "leader_epoch": e} for index, e in ((0, 0), (0, 5), (7, 0))
            ]
            answer = await client.call(
                "OffsetForLeaderEpoch", version, topics=[{"topic": topic, "partitions": asked}]
            )
            found = [
                (one["error_code"], one["leader_epoch"], one["end_offset"])
                for one in answer["topics"][0]["partitions"]
            ]
            assert found == [(0, 0, 2), (0, -1, -1), (3, -1, -1)]


async def test_records_that_came_by_http_are_read(running, topic):
    body = {"records": [{"value": "a", "key": "k"}, {"value": "b"}]}
    await running[0].client.post(f"/v1/topics/{topic}/records", json=body)
    async with connected(running) as client:
        assert values(await client.fetch(topic)) == [b"a", b"b"]
