"""The Kafka port: versions, API keys, grants and limits of connections, over real sockets."""

from __future__ import annotations

import asyncio
import struct

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.wire.codec import APIS
from seb_appliance.protocols.sockets import limits as socket_limits
from tests.support.kafka_client import (
    NAMED,
    api_key,
    connected,
    framed,
    head,
    of,
    raw,
    request,
    serving,
    to,
)
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("kafka")) as both:
        yield both


# --- versions ---


async def test_api_versions_lists_every_api_in_each_version_before_an_api_key(running):
    async with raw(running) as client:
        for version in NAMED["ApiVersions"].versions:
            answer = await client.call("ApiVersions", version, client_software_name="test")
            assert answer["error_code"] == 0
            found = {
                one["api_key"]: (one["min_version"], one["max_version"])
                for one in answer["api_keys"]
            }
            assert found == {
                key: (api.versions.start, api.versions.stop - 1) for key, api in APIS.items()
            }


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_35(running):
    async with raw(running) as client:
        client.writer.write(framed(head(NAMED["ApiVersions"], 99)[:-1] + b"\0\4abc\4def\0"))
        client._asked.append((NAMED["ApiVersions"], 0))
        answer = await client.answer()
        assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION
        assert len(answer["api_keys"]) == len(APIS)
        assert (await client.call("ApiVersions", 3))["error_code"] == 0


@pytest.mark.parametrize(("key", "version"), [(3, 13), (3, -1), (0, 2), (99, 0), (-1, 0)])
async def test_another_unknown_version_or_api_ends_the_connection(running, key, version):
    async with connected(running) as client:
        client.writer.write(framed(struct.pack(">hhih", key, version, 7, -1) + bytes(20)))
        assert await client.is_closed()


# --- API keys ---


async def test_an_api_key_is_the_password_of_sasl_plain(running):
    for version in NAMED["SaslAuthenticate"].versions:
        async with raw(running) as client:
            answer = await client.authenticate(running[0].admin_key, version)
            assert (answer["error_code"], answer["auth_bytes"]) == (0, b"")
            assert (await client.call("DescribeCluster"))["error_code"] == 0


async def test_a_bare_token_follows_the_oldest_handshake(running):
    async with raw(running) as client:
        assert (await client.call("SaslHandshake", 0, mechanism="PLAIN"))["error_code"] == 0
        client.writer.write(framed(b"\0anybody\0" + running[0].admin_key.encode()))
        assert await client.reader.readexactly(4) == bytes(4)
        assert (await client.call("DescribeCluster"))["error_code"] == 0


async def test_a_wrong_bare_token_ends_the_connection(running):
    async with raw(running) as client:
        await client.call("SaslHandshake", 0, mechanism="PLAIN")
        client.writer.write(framed(b"\0anybody\0wrong"))
        assert await client.is_closed()


@pytest.mark.parametrize("version", [0, 1])
async def test_another_mechanism_is_refused_with_33_and_plain_named(running, version):
    async with raw(running) as client:
        answer = await client.call("SaslHandshake", version, mechanism="SCRAM-SHA-256")
        assert answer["error_code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer["mechanisms"] == ["PLAIN"]


@pytest.mark.parametrize("token", [b"\0x\0seb_wrong", b"", b"\0\0\0\0", b"\0x\0\xff\xfe"])
async def test_a_wrong_api_key_is_refused_with_58_and_lets_nothing_in(running, token):
    async with raw(running) as client:
        answer = await client.call("SaslAuthenticate", auth_bytes=token)
        assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer["error_message"]
        client.send("Metadata", topics=None)
        assert await client.is_closed()


@pytest.mark.parametrize("name", [one for one in NAMED if not one.startswith(("Sasl", "ApiV"))])
async def test_a_request_before_the_api_key_ends_the_connection(running, name):
    async with raw(running) as client:
        client.send(name)
        assert await client.is_closed()


async def test_a_deleted_api_key_ends_its_connection_at_the_next_request(running):
    key = await api_key(running, ("consume", "**"))
    async with connected(running, key["secret"]) as client:
        assert (await client.call("DescribeCluster"))["error_code"] == 0
        await running[0].client.delete(f"/v1/api-keys/{key['api_key_id']}")
        client.send("DescribeCluster")
        assert await client.is_closed()


async def test_a_connection_may_authenticate_again_with_the_same_api_key_alone(running):
    key = await api_key(running, ("consume", "**"))
    async with connected(running, key["secret"]) as client:
        assert (await client.authenticate(key["secret"]))["error_code"] == 0
        other = await client.authenticate(running[0].admin_key)
        assert other["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (await client.call("DescribeCluster"))["error_code"] == 0


# --- grants ---


async def test_each_operation_needs_its_grant(running):
    await running[0].client.put("/v1/topics/mine", json={})
    nobody = await api_key(running, ("consume", "elsewhere", "elsewhere"))
    part, named = [{"partition_index": 0}], {"name": "mine"}
    topics = [{"name": "mine", "partitions": part}]
    topic, group = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
    async with connected(running, nobody["secret"]) as client:
        assert (await client.produce("mine", made(Sent())))["error_code"] == topic
        assert (await client.fetch("mine"))["error_code"] == topic
        for name, given, code in (
            ("ListOffsets", {"topics": topics}, topic),
            ("OffsetCommit", {"group_id": "mine", "topics": topics}, group),
            ("OffsetFetch", {"groups": [{"group_id": "mine", "topics": None}]}, group),
            ("OffsetDelete", {"group_id": "elsewhere", "topics": topics}, group),
            ("FindCoordinator", {"coordinator_keys": ["mine"]}, group),
            ("FindCoordinator", {"key_type": 1, "coordinator_keys": ["t"]}, 53),
            ("JoinGroup", {"group_id": "mine"}, group),
            ("SyncGroup", {"group_id": "mine"}, group),
            ("Heartbeat", {"group_id": "mine"}, group),
            ("LeaveGroup", {"group_id": "mine"}, group),
            ("DescribeGroups", {"groups": ["mine"]}, group),
            ("DeleteGroups", {"groups_names": ["mine"]}, group),
            ("CreateTopics", {"topics": [{"name": "new", "num_partitions": 1}]}, topic),
            ("DeleteTopics", {"topics": [named]}, topic),
            ("CreatePartitions", {"topics": [named]}, topic),
            ("DeleteRecords", {"topics": topics}, topic),
            ("DescribeConfigs", {"resources": [{"resource_type": 2, "resource_name": "mine"}]},
             topic),
            ("AlterConfigs", {"resources": [{"resource_type": 2, "resource_name": "mine"}]},
             topic),
            ("IncrementalAlterConfigs",
             {"resources": [{"resource_type": 2, "resource_name": "mine"}]}, topic),
            ("InitProducerId", {"transactional_id": None}, 31),
            ("InitProducerId", {"transactional_id": "t"}, 53),
            ("AddPartitionsToTxn", {"topics": [{"name": "mine", "partitions": [0]}]}, topic),
            ("AddOffsetsToTxn", {"group_id": "mine"}, group),
            ("TxnOffsetCommit", {"group_id": "mine", "topics": topics}, group),
            ("OffsetForLeaderEpoch",
             {"topics": [{"topic": "mine", "partitions": [{"partition": 0}]}]}, topic),
            ("DescribeProducers", {"topics": [{"name": "mine", "partition_indexes": [0]}]}, topic),
        ):  # fmt: skip
            answer = await client.call(name, **given)
            assert _codes(answer) == {code}, (name, answer)
        logs = (await client.call("DescribeLogDirs", topics=None))["results"][0]["topics"]
        assert logs == []


def _codes(answer):
    """All codes in an answer, without those that say that nothing is wrong."""
    found = set()
    for name, value in answer.items():
        if name.endswith("error_code") and value:
            found.add(value)
        elif isinstance(value, dict):
            found |= _codes(value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for one in value:
                found |= _codes(one)
    return found


async def test_metadata_shows_the_topics_that_the_api_key_may_see(running):
    for name in ("seen.a", "seen.b", "hidden"):
        await running[0].client.put(f"/v1/topics/{name}", json={})
    key = await api_key(running, ("produce", "seen.*"))
    async with connected(running, key["secret"]) as client:
        every = await client.call("Metadata", topics=None)
        assert [one["name"] for one in every["topics"]] == ["seen.a", "seen.b"]
        asked = [{"name": "hidden"}, {"name": "seen.a"}]
        named = await client.call("Metadata", topics=asked)
        assert [one["error_code"] for one in named["topics"]] == [29, 0]
    async with connected(running) as client:
        (hidden,) = (await client.call("Metadata", topics=[{"name": "hidden"}]))["topics"]
    async with connected(running, key["secret"]) as client:
        asked = [{"name": None, "topic_id": hidden["topic_id"]}]
        (answer,) = (await client.call("Metadata", topics=asked))["topics"]
        assert (answer["error_code"], answer["name"]) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


# --- quotas ---


async def test_a_quota_makes_the_client_wait_and_refuses_nothing(running):
    quotas = {"bytes_in_per_second": 20_000}
    await running[0].client.put("/v1/topics/metered", json={})
    key = await api_key(running, ("produce", "**"), ("consume", "**"), quotas=quotas)
    began = asyncio.get_running_loop().time()
    async with connected(running, key["secret"]) as client:
        for _ in range(4):
            client.send("Produce", **to("metered", made(Sent(b"x" * 10_000))))
        answers = [await client.answer() for _ in range(4)]
    took_s = asyncio.get_running_loop().time() - began
    assert _codes({"all": answers}) == set()
    assert answers[-1]["throttle_time_ms"] > 0
    assert took_s > 0.4, took_s


async def test_a_quota_of_requests_makes_the_client_wait(running):
    key = await api_key(running, ("consume", "**"), quotas={"requests_per_second": 10})
    began = asyncio.get_running_loop().time()
    async with connected(running, key["secret"]) as client:
        for _ in range(15):
            client.send("DescribeCluster")
        answers = [await client.answer() for _ in range(15)]
    assert _codes({"all": answers}) == set()
    assert asyncio.get_running_loop().time() - began > 0.3


# --- limits of a connection ---


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, -1, -(2**31), 2**31 - 1, limits.MIB + 1])
async def test_a_request_of_an_impossible_length_ends_the_connection(running, length):
    async with connected(running) as good, connected(running) as bad:
        bad.writer.write(struct.pack(">ihhih", length, 3, 9, 1, -1) + bytes(20))
        assert await bad.is_closed()
        assert (await good.call("DescribeCluster"))["error_code"] == 0


async def test_requests_are_small_before_an_api_key(running):
    async with raw(running) as client:
        length = kafka_limits.FIRST_REQUEST_BYTES_MAX
        client.writer.write(struct.pack(">ihh", length + 1, 18, 3))
        assert await client.is_closed()
    async with raw(running) as client:
        client.send("ApiVersions", 3, client_software_name="x" * (length - 100))
        assert (await client.answer())["error_code"] == 0


async def test_only_produce_may_be_large(running):
    most = kafka_limits.PRODUCE_BYTES_MAX
    for key, length in ((0, most + 1), (1, kafka_limits.REQUEST_BYTES_MAX + 1)):
        async with connected(running) as client:
            client.writer.write(struct.pack(">ihh", length, key, 9))
            assert await client.is_closed()


@pytest.mark.parametrize(("version", "count"), [(8, 2**31 - 1), (0, -2), (8, 10_001)])
async def test_an_array_with_an_absurd_count_ends_the_connection(running, version, count):
    async with connected(running) as client:
        frame = head(NAMED["Metadata"], version) + struct.pack(">i", count) + bytes(2 * 10_001 + 3)
        client.writer.write(framed(frame))
        assert await client.is_closed()


async def test_arrays_in_arrays_have_so_many_elements_together_and_no_more(running):
    asked = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1] * 4_997}]}] * 2
    async with connected(running) as client:
        assert await client.call("OffsetFetch", groups=asked)
        many = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1] * 4_998}]}]
        client.send("OffsetFetch", groups=[*asked, *many])
        assert await client.is_closed()


async def test_bytes_after_a_message_are_ignored(running):
    async with connected(running) as client:
        client.writer.write(framed(request("DescribeCluster")[4:] + b"\0"))
        assert await client.frame()


async def test_connections_are_shared_out_by_api_key(running, monkeypatch):
    monkeypatch.setattr(running[1].room, "limit", 1)
    key = await api_key(running, ("consume", "**"))
    async with raw(running) as first, raw(running) as second:
        codes = [(await one.authenticate(key["secret"]))["error_code"] for one in (first, second)]
        assert ErrorCode.SASL_AUTHENTICATION_FAILED in codes


async def test_who_has_no_api_key_makes_room_for_others(running, monkeypatch):
    async with connected(running) as good, raw(running) as first, raw(running) as second:
        await second.call("ApiVersions", 0)  # now all of them are known
        kafka = running[1]
        monkeypatch.setattr(kafka._connections, "_most", kafka._connections.open)
        async with connected(running) as late:
            assert await first.is_closed()
            for one in (good, late):
                assert (await one.call("DescribeCluster"))["error_code"] == 0
            await second.call("ApiVersions", 0)
            async with connected(running) as latest:
                assert await second.is_closed()
                async with raw(running) as too_late:
                    assert await too_late.is_closed()
                assert (await latest.call("DescribeCluster"))["error_code"] == 0


async def test_a_client_without_an_api_key_is_ended(running, monkeypatch):
    monkeypatch.setattr(socket_limits, "CONNECT_S_MAX", 0.02)
    async with raw(running) as client:
        assert await client.is_closed()


async def test_a_request_that_does_not_end_ends_the_connection(running, monkeypatch):
    async with connected(running) as client:
        served = list(running[1]._all)[-1]
        client.writer.write(request("DescribeCluster")[:-1])
        async with asyncio.timeout(5):
            while not served._framer.waiting_bytes:
                await asyncio.sleep(0)
        served._check()
        assert not served._closing  # there is time left
        monkeypatch.setattr(socket_limits, "UNFINISHED_S_MAX", 0)
        served._check()
        assert await client.is_closed()


async def test_an_idle_connection_is_ended(running, monkeypatch):
    async with connected(running) as client:
        served = list(running[1]._all)[-1]
        served._check()
        assert (await client.call("DescribeCluster"))["error_code"] == 0
        monkeypatch.setattr(kafka_limits, "IDLE_S_MAX", 0)
        served._check()
        assert await client.is_closed()


async def test_a_connection_is_read_no_further_while_much_is_in_flight(running, monkeypatch):
    monkeypatch.setattr(kafka_limits, "IN_FLIGHT_MAX", 2)
    await running[0].client.put("/v1/topics/flight", json={"linger_ms": 50})
    async with connected(running) as client:
        served = list(running[1]._all)[-1]
        for _ in range(6):
            client.send("Produce", **to("flight", made(Sent())))
        async with asyncio.timeout(5):
            while served.waiting < 2:
                await asyncio.sleep(0)
        most = 0
        for _ in range(6):
            most = max(most, served.waiting)
            answer = await client.answer()
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
        assert most == 2


async def test_a_client_that_does_not_read_is_read_no_further(running, monkeypatch):
    monkeypatch.setattr(socket_limits, "UNSENT_BYTES_MAX", 4_096)
    await running[0].client.put("/v1/topics/unread", json={})
    async with connected(running) as client:
        for _ in range(16):
            await client.produce("unread", made(Sent(b"x" * limits.MIB, b"k")), version=9)
        served = list(running[1]._all)[-1]
        taken = served.received
        client.writer.transport.pause_reading()
        for _ in range(400):
            client.send("Fetch", 12, **of(("unread", 0, 0), max_bytes=limits.MIB))
        async with asyncio.timeout(10):
            while not served._is_clogged:
                await asyncio.sleep(0)
        assert served.received - taken < 100
        assert running[0].appliance.broker.reading.used < 32 * limits.MIB
        client.writer.transport.resume_reading()
        for _ in range(400):
            assert (await client.answer())["responses"][0]["partitions"][0]["error_code"] == 0
    async with asyncio.timeout(5):
        while running[0].appliance.broker.reading.used:
            await asyncio.sleep(0)


async def test_a_client_that_takes_nothing_is_cut_off(running, monkeypatch):
    monkeypatch.setattr(socket_limits, "CLOSE_S_MAX", 0.02)
    async with connected(running) as client:
        served = list(running[1]._all)[-1]
        client.writer.transport.pause_reading()
        served.transport.write(b"x" * 16 * limits.MIB)
        served.end("it is enough")
        async with asyncio.timeout(5):
            while served in running[1]._all:
                await asyncio.sleep(0)
