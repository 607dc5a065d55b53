"""Consumer groups and committed offsets by the Kafka protocol, over real sockets."""

from __future__ import annotations

import struct

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from tests.support import kafka_member
from tests.support.kafka_client import NAMED, api_key, connected, serving
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("kafka")) as both:
        for topic in ("orders", "orders.kafka-1"):
            await both[0].client.put(f"/v1/topics/{topic}", json={})
        async with connected(both) as client:
            for index in (0, 1):
                await client.produce("orders", made(*[Sent()] * 10), index)
        yield both


def offsets(*given, name="orders"):
    """Of partitions: index, offset, and perhaps metadata."""
    parts = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_metadata": "".join(metadata) if metadata else None,
        }
        for index, offset, *metadata in given
    ]
    return [{"name": name, "partitions": parts}]


def metadata_of(*topics):
    """What a consumer says of itself that subscribes to them."""
    names = b"".join(struct.pack(">h", len(one)) + one.encode() for one in topics)
    return struct.pack(">hi", 0, len(topics)) + names + bytes(4)


async def asks_to_join(client, group, *topics):
    """The code."""
    answer = await client.call(
        "JoinGroup",
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": metadata_of(*topics)}],
    )
    return answer["error_code"]


@pytest.mark.parametrize("has_committed", [True, False])
async def test_a_key_that_may_read_none_of_a_groups_topics_finds_no_such_group(
    running, has_committed
):
    name = f"theirs.{has_committed}"
    theirs = await api_key(running, ("consume", "orders", name))
    strangers = await api_key(running, ("consume", "elsewhere"))
    port = running[1].port
    async with (
        kafka_member.connected(port, theirs["secret"]) as member,
        connected(running, theirs["secret"]) as colleague,
        connected(running, strangers["secret"]) as stranger,
    ):
        member_id = await member.join(name, ["orders"], {"orders": [0]})
        own = {"generation_id": 1, "member_id": member_id, "group_instance_id": None}
        if has_committed:
            assert await commit(member, name, (0, 3), **own) == [ErrorCode.NONE]
            assert await committed(member, name) == {("orders", 0): (3, "")}
        assert await committed(stranger, name) == {}
        listed = [one["group_id"] for one in (await stranger.call("ListGroups"))["groups"]]
        assert name not in listed
        (shown,) = (await stranger.call("DescribeGroups", groups=[name]))["groups"]
        (missing,) = (await stranger.call("DescribeGroups", groups=["no-group"]))["groups"]
        assert shown == {**missing, "group_id": name}
        left = await stranger.call("LeaveGroup", group_id=name, members=[{**own, "reason": None}])
        assert left["error_code"] == ErrorCode.GROUP_AUTHORIZATION_FAILED
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert await asks_to_join(stranger, name, "orders") == refused
        assert (await member.call("Heartbeat", group_id=name, **own))["error_code"] == 0
        assert await asks_to_join(colleague, name, "orders") == ErrorCode.MEMBER_ID_REQUIRED


async def test_a_group_with_members_and_no_offsets_is_theirs_by_http_as_by_kafka(running):
    """A grant for its name, which covers all by default, shows it to nobody else, and lets nobody
    else commit first: it would stand on a topic of theirs, and its members would be refused."""
    name, appliance = "new.theirs", running[0]
    await appliance.client.put("/v1/topics/elsewhere", json={})
    theirs = await api_key(running, ("consume", "orders", name))
    colleagues = await api_key(running, ("consume", "orders"))
    strangers = await api_key(
        running, ("consume", "elsewhere"), ("manage", "elsewhere"), ("produce", "elsewhere")
    )
    stranger, colleague, admin = (
        {"Authorization": f"Bearer {secret}"} if secret else {}
        for secret in (strangers["secret"], colleagues["secret"], "")
    )

    async def asked(headers, method="GET", path="", **body):
        url = f"/v1/groups/{name}{path}"
        return (await appliance.client.request(method, url, headers=headers, **body)).status_code

    async def listed(headers):
        answer = await appliance.client.get("/v1/groups", headers=headers)
        return name in [one["group"] for one in answer.json()["groups"]]

    async with kafka_member.connected(running[1].port, theirs["secret"]) as member:
        member_id = await member.join(name, ["orders"], {"orders": [0]})
        assert [await listed(one) for one in (stranger, colleague, admin)] == [False, True, True]
        assert [await asked(one) for one in (stranger, colleague, admin)] == [404, 200, 200]
        body = {"json": {"offsets": {"elsewhere": 0}}}
        assert await asked(stranger, "PUT", "/offsets", **body) == 403
        lease = {"json": {"holder": "me", "ttl_ms": 30_000}}
        assert await asked(stranger, "POST", "/lease", **lease) == 403
        reset = {"json": {"to": "earliest"}}
        assert await asked(stranger, "POST", "/reset", **reset) == 404
        assert await asked(stranger, "DELETE") == 404
        own = {"generation_id": 1, "member_id": member_id, "group_instance_id": None}
        assert await commit(member, name, (0, 3), **own) == [ErrorCode.NONE]
        assert [await listed(one) for one in (stranger, colleague, admin)] == [False, True, True]


async def test_two_api_keys_that_may_read_a_topic_begin_a_group_together(running):
    keys = [await api_key(running, ("consume", "orders")) for _ in range(2)]
    for key in keys:
        async with connected(running, key["secret"]) as client:
            code = await asks_to_join(client, "together", "orders")
            assert code == ErrorCode.MEMBER_ID_REQUIRED


async def commit(client, group, *given, version=None, name="orders", **member):
    """The codes, by partition."""
    body = {"group_id": group, "topics": offsets(*given, name=name), **member}
    answer = await client.call("OffsetCommit", version, **body)
    return [one["error_code"] for one in answer["topics"][0]["partitions"]]


async def committed(client, group, *indexes, name="orders", **given):
    """Offset and metadata of each partition; of all that have one if none is named."""
    topics = [{"name": name, "partition_indexes": indexes}] if indexes else None
    answer = await client.call(
        "OffsetFetch", groups=[{"group_id": group, "topics": topics}], **given
    )
    (found,) = answer["groups"]
    assert found["error_code"] == 0, found
    return {
        (topic["name"], one["partition_index"]): (one["committed_offset"], one["metadata"])
        for topic in found["topics"]
        for one in topic["partitions"]
    }


async def join(client, group, member_id="", version=None, **given):
    body = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
        **given,
    }
    return await client.call("JoinGroup", version, **body)


async def joined(client, group, **given):
    """With a member id that was asked for; generation and member id."""
    asked = await join(client, group, **given)
    if asked["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
        asked = await join(client, group, asked["member_id"], **given)
    assert asked["error_code"] == 0, asked
    return {"generation_id": asked["generation_id"], "member_id": asked["member_id"]}


# --- committed offsets ---


async def test_committed_offsets_are_those_of_the_group_by_http(running):
    async with connected(running) as client:
        assert await commit(client, "both", (0, 3, "note"), (1, 4)) == [0, 0]
        shown = (await running[0].client.get("/v1/groups/both")).json()
        listed = shown["topics"]
        found = {one["topic"]: (one["committed_offset"], one["metadata"]) for one in listed}
        assert found == {"orders": (3, "note"), "orders.kafka-1": (4, "")}
        await running[0].client.put("/v1/groups/both/offsets", json={"offsets": {"orders": 5}})
        assert (await committed(client, "both", 0))["orders", 0] == (5, "")
        assert await committed(client, "both") == {("orders", 0): (5, ""), ("orders", 1): (4, "")}


async def test_every_version_commits_and_reads(running):
    async with connected(running) as client:
        for version in NAMED["OffsetCommit"].versions:
            assert await commit(client, "each", (0, version), version=version) == [0]
            if version < 8:
                asked = [{"name": "orders", "partition_indexes": [0, 1]}]
                answer = await client.call("OffsetFetch", version, group_id="each", topics=asked)
            else:
                groups = [{"group_id": "each", "topics": None}]
                answer = (await client.call("OffsetFetch", version, groups=groups))["groups"][0]
            assert answer["topics"][0]["partitions"][0]["committed_offset"] == version


async def test_an_offset_may_go_back_and_one_beyond_the_end_is_refused(running):
    async with connected(running) as client:
        assert await commit(client, "back", (0, 9)) == [0]
        assert await commit(client, "back", (0, 2)) == [0]
        assert await commit(client, "back", (0, 11)) == [ErrorCode.OFFSET_OUT_OF_RANGE]
        assert await commit(client, "back", (0, -1)) == [ErrorCode.OFFSET_OUT_OF_RANGE]
        assert await commit(client, "back", (0, 2**63 - 1)) == [ErrorCode.OFFSET_OUT_OF_RANGE]
        assert await commit(client, "back", (0, 3), (7, 0)) == [0, 3]
        assert await commit(client, "back", (0, 0), name="never") == [3]
        most = limits.COMMIT_METADATA_CHARACTERS_MAX
        assert await commit(client, "back", (0, 3, "x" * most)) == [0]
        too_long = await commit(client, "back", (0, 3, "x" * (most + 1)))
        assert too_long == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        too_long = "x" * (limits.NAME_LENGTH_MAX + 1)
        assert await commit(client, too_long, (0, 3)) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        assert (await committed(client, "back", 0, 9))["orders", 9] == (-1, "")


async def test_offsets_of_a_group_without_members_are_deleted(running):
    async with connected(running) as client:
        await commit(client, "drops", (0, 1), (1, 1))
        asked = [{"name": "orders", "partitions": [{"partition_index": 0}]}]
        answer = await client.call("OffsetDelete", group_id="drops", topics=asked)
        assert (answer["error_code"], answer["topics"][0]["partitions"][0]["error_code"]) == (0, 0)
        assert await committed(client, "drops") == {("orders", 1): (1, "")}
        never = await client.call("OffsetDelete", group_id="never", topics=asked)
        assert never["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
        await joined(client, "drops")
        busy = await client.call("OffsetDelete", group_id="drops", topics=asked)
        assert busy["error_code"] == ErrorCode.NON_EMPTY_GROUP


# --- members ---


async def test_two_members_share_a_topic_and_one_that_leaves_gives_its_part_back(running):
    async with connected(running) as first, connected(running) as second:
        ids = [(await join(one, "pair"))["member_id"] for one in (first, second)]
        for client, member_id in zip((first, second), ids, strict=True):
            client.send("JoinGroup", **_join_body("pair", member_id))
        answers = [await client.answer() for client in (first, second)]
        generation = answers[0]["generation_id"]
        assert [one["generation_id"] for one in answers] == [generation] * 2
        leader = next(one for one in answers if one["leader"] == one["member_id"])
        assert {one["member_id"] for one in leader["members"]} == set(ids)
        assigned = [{"member_id": one, "assignment": one.encode()} for one in ids]
        for client, answer in zip((first, second), answers, strict=True):
            client.send(
                "SyncGroup",
                group_id="pair",
                generation_id=generation,
                member_id=answer["member_id"],
                assignments=assigned if answer is leader else [],
                protocol_type="consumer",
                protocol_name="range",
            )
        found = [(await client.answer())["assignment"] for client in (first, second)]
        assert found == [one.encode() for one in ids]
        for version in NAMED["Heartbeat"].versions:
            beat = {"group_id": "pair", "generation_id": generation, "member_id": ids[0]}
            assert (await first.call("Heartbeat", version, **beat))["error_code"] == 0
        (shown,) = (await first.call("DescribeGroups", groups=["pair"]))["groups"]
        assert (shown["group_state"], shown["protocol_data"]) == ("Stable", "range")
        assert {one["member_assignment"] for one in shown["members"]} == {i.encode() for i in ids}
        left = await second.call("LeaveGroup", group_id="pair", members=[{"member_id": ids[1]}])
        assert left["members"][0]["error_code"] == 0
        assert (await first.call("Heartbeat", **beat))["error_code"] == 27


def _join_body(group, member_id):
    return {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
    }


async def test_members_join_in_every_version(running):
    async with connected(running) as client:
        for version in NAMED["JoinGroup"].versions:
            group = f"v{version}"
            answer = await join(client, group, version=version)
            required = version >= 4
            assert answer["error_code"] == (ErrorCode.MEMBER_ID_REQUIRED if required else 0)
            if required:
                answer = await join(client, group, answer["member_id"], version)
            assert (answer["error_code"], answer["leader"]) == (0, answer["member_id"])


async def test_a_member_of_an_older_generation_commits_nothing(running):
    async with connected(running) as client:
        member = await joined(client, "zombie")
        assert await commit(client, "zombie", (0, 1), **member) == [27]  # not assigned yet
        await client.call("SyncGroup", group_id="zombie", **member)
        assert await commit(client, "zombie", (0, 1), **member) == [0]
        old = member | {"generation_id": member["generation_id"] - 1}
        assert await commit(client, "zombie", (0, 2), **old) == [ErrorCode.ILLEGAL_GENERATION]
        other = member | {"member_id": "nobody"}
        assert await commit(client, "zombie", (0, 2), **other) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await commit(client, "zombie", (0, 2)) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert (await committed(client, "zombie", 0))["orders", 0] == (1, "")


async def test_a_join_that_cannot_be_is_refused(running):
    async with connected(running) as client:
        for given, code in (
            ({"session_timeout_ms": kafka_limits.SESSION_MS_MIN - 1}, 26),
            ({"session_timeout_ms": kafka_limits.SESSION_MS_MAX + 1}, 26),
            ({"protocols": []}, 23),
            ({"protocols": [{"name": f"p{n}"} for n in range(11)]}, 42),
            ({"protocols": [{"name": "p", "metadata": bytes(kafka_limits.METADATA_BYTES_MAX + 1)}]},
             10),
            ({"member_id": "nobody"}, 25),
        ):  # fmt: skip
            asked = _join_body("refuses", "") | given
            assert (await client.call("JoinGroup", **asked))["error_code"] == code, given
        asked = _join_body("", "")
        assert (await client.call("JoinGroup", **asked))["error_code"] == 24


async def test_a_client_that_goes_while_it_waits_to_join_harms_nobody(running):
    async with connected(running) as first, connected(running) as second:
        first_id = (await join(first, "goes"))["member_id"]
        second_id = (await join(second, "goes"))["member_id"]
        first.send("JoinGroup", **_join_body("goes", first_id))
        first.writer.close()
        answer = await second.call("JoinGroup", **_join_body("goes", second_id))
        assert answer["error_code"] == 0


# --- groups ---


async def test_groups_are_listed_with_and_without_members(running):
    async with connected(running) as client:
        await commit(client, "idle", (0, 1))
        await client.call("SyncGroup", group_id="busy", **await joined(client, "busy"))
        for version in NAMED["ListGroups"].versions:
            answer = await client.call("ListGroups", version)
            found = {one["group_id"]: one["group_state"] for one in answer["groups"]}
            assert {"idle", "busy"} <= found.keys()
        assert (found["idle"], found["busy"]) == ("Empty", "Stable")
        stable = await client.call("ListGroups", states_filter=["Stable"])
        assert "idle" not in {one["group_id"] for one in stable["groups"]}
        described = await client.call("DescribeGroups", groups=["idle", "busy", "never"])
        assert [one["group_state"] for one in described["groups"]] == ["Empty", "Stable", "Dead"]
        reader = await api_key(running, ("consume", "**", "mine.*"))
    async with connected(running, reader["secret"]) as client:
        assert (await client.call("ListGroups"))["groups"] == []


async def test_a_group_is_deleted_once_it_has_no_members(running):
    async with connected(running) as client:
        await commit(client, "ends", (0, 1))
        member = await joined(client, "ends")

        async def delete(*names):
            answer = await client.call("DeleteGroups", groups_names=names)
            return [one["error_code"] for one in answer["results"]]

        assert await delete("ends", "never") == [68, 69]
        left = [{"member_id": member["member_id"]}]
        await client.call("LeaveGroup", group_id="ends", members=left)
        assert await delete("ends") == [0]
        assert await committed(client, "ends") == {}


async def test_a_group_id_may_be_any_text_and_is_spelled_out_by_http(running):
    group, name = "my group/1", "kafka-id.my_20group_2F1"
    async with connected(running) as client:
        found = await client.call("FindCoordinator", coordinator_keys=[group])
        assert found["coordinators"][0]["error_code"] == 0
        assert await commit(client, group, (0, 3)) == [0]
        assert await committed(client, group, 0) == {("orders", 0): (3, "")}
        listed = await client.call("ListGroups")
        assert group in [one["group_id"] for one in listed["groups"]]
        described = await client.call("DescribeGroups", groups=[group])
        (one,) = described["groups"]
        assert (one["group_id"], one["group_state"]) == (group, "Empty")
        answer = await running[0].client.get(f"/v1/groups/{name}")
        assert answer.json()["group"] == name
        joining = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
        joined = await client.call(
            "JoinGroup", 3, group_id=group, session_timeout_ms=6_000, **joining
        )
        assert joined["error_code"] == 0
        beating = {"generation_id": joined["generation_id"], "member_id": joined["member_id"]}
        await client.call("SyncGroup", group_id=group, assignments=[], **beating)
        beat = await client.call("Heartbeat", group_id=group, **beating)
        assert beat["error_code"] == 0
        left = await client.call("LeaveGroup", 0, group_id=group, member_id=joined["member_id"])
        assert left["error_code"] == 0
        deleted = await client.call("DeleteGroups", groups_names=[group])
        assert deleted["results"] == [{"group_id": group, "error_code": 0}]
