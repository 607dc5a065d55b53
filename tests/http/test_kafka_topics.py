"""Topics, their settings and the cluster by the Kafka protocol, over real sockets."""

from __future__ import annotations

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from tests.support.kafka_client import NAMED, api_key, connected, serving
from tests.unit.protocols.kafka.record_sets import Sent, made

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory):
    async with serving(tmp_path_factory.mktemp("kafka"), partitions=2) as both:
        yield both


async def exists(running, topic):
    return (await running[0].client.get(f"/v1/topics/{topic}")).status_code == 200


async def create(client, name, count=1, version=None, **given):
    """Code, number of partitions and the rest."""
    configs = [{"name": k, "value": v} for k, v in given.pop("configs", {}).items()]
    asked = {"name": name, "num_partitions": count, "replication_factor": 3, "configs": configs}
    answer = await client.call(
        "CreateTopics", version, topics=[asked | given.pop("topic", {})], **given
    )
    return answer["topics"][0]


# --- Metadata ---


async def test_metadata_names_the_broker_and_topics_in_every_version(running):
    await running[0].client.put("/v1/topics/named", json={})
    async with connected(running) as client:
        for version in NAMED["Metadata"].versions:
            answer = await client.call("Metadata", version, topics=[{"name": "named"}])
            (broker,) = answer["brokers"]
            assert (broker["host"], broker["port"]) == ("127.0.0.1", running[1].port)
            (topic,) = answer["topics"]
            assert (topic["error_code"], topic["name"]) == (0, "named")
            (partition,) = topic["partitions"]
            assert partition["leader_id"] == broker["node_id"]
            every = await client.call("Metadata", version, topics=None if version else [])
            assert "named" in {one["name"] for one in every["topics"]}
        none = await client.call("Metadata", 1, topics=[])
        assert none["topics"] == []
        by_id = [{"name": None, "topic_id": topic["topic_id"]}]
        (found,) = (await client.call("Metadata", topics=by_id))["topics"]
        assert found["name"] == "named"


async def test_a_topic_that_is_made_again_has_another_id(running):
    async with connected(running) as client:
        first = (await create(client, "again"))["topic_id"]
        await client.call("DeleteTopics", topics=[{"name": "again"}])
        assert (await create(client, "again"))["topic_id"] != first
        (old,) = (await client.call("Metadata", topics=[{"name": None, "topic_id": first}]))[
            "topics"
        ]
        assert old["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


async def test_metadata_makes_a_missing_topic_if_client_grants_and_setting_allow_it(running):
    reader = await api_key(running, ("consume", "**"))
    async with connected(running, reader["secret"]) as client:
        answer = await client.call("Metadata", topics=[{"name": "auto.no"}])
        assert answer["topics"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    async with connected(running) as client:
        asked = {"topics": [{"name": "auto.yes"}, {"name": "bad name"}]}
        answer = await client.call("Metadata", **asked, allow_auto_topic_creation=False)
        assert [one["error_code"] for one in answer["topics"]] == [3, 3]
        answer = await client.call("Metadata", **asked)
        assert [one["error_code"] for one in answer["topics"]] == [0, 17]
        assert len(answer["topics"][0]["partitions"]) == 2  # as kafka_partitions says
    assert not await exists(running, "auto.no")


async def test_a_topic_that_looks_like_a_partition_has_its_own_name_without_the_others(running):
    for name in ("gap", "gap.kafka-2"):
        await running[0].client.put(f"/v1/topics/{name}", json={})
    async with connected(running) as client:
        every = (await client.call("Metadata", topics=None))["topics"]
    found = {one["name"]: len(one["partitions"]) for one in every}
    assert (found["gap"], found["gap.kafka-2"]) == (1, 1)


# --- topics ---


async def test_topics_are_made_with_partitions_and_settings_in_every_version(running):
    async with connected(running) as client:
        for version in NAMED["CreateTopics"].versions:
            name = f"made.v{version}"
            configs = {"cleanup.policy": "compact", "retention.ms": "-1", "segment.ms": "1"}
            made_one = await create(client, name, 3, version, configs=configs)
            assert (made_one["error_code"], made_one["error_message"]) == (0, None)
            for end in ("", ".kafka-1", ".kafka-2"):
                shown = (await running[0].client.get(f"/v1/topics/{name}{end}")).json()
                assert "compact" in str(shown)
        assert made_one["num_partitions"] == 3
        assert made_one["topic_id"] != bytes(16)
        assert (await create(client, "made.default", -1))["num_partitions"] == 2
        assigned = [{"partition_index": index, "broker_ids": [1]} for index in range(4)]
        four = await create(client, "made.four", -1, topic={"assignments": assigned})
        assert four["num_partitions"] == 4


@pytest.mark.parametrize(
    ("name", "given", "code"),
    [
        ("taken", {}, 36),
        ("not a name", {}, 17),
        ("..", {}, 17),
        ("x" * 200, {}, 17),
        ("orders.kafka-3", {}, 17),
        ("zero", {"count": 0}, 37),
        ("many", {"count": limits.KAFKA_PARTITIONS_MAX + 1}, 37),
        ("config", {"configs": {"cleanup.policy": "eat"}}, 40),
        ("config", {"configs": {"clean.policy": "compact"}}, 40),
        ("config", {"configs": {"seb.nothing": "1"}}, 40),
        ("config", {"configs": {"retention.ms": "soon"}}, 40),
        ("config", {"configs": {"retention.ms": "-5"}}, 40),
        ("config", {"configs": {"compression.type": "zip"}}, 40),
        ("config", {"configs": {"min.cleanable.dirty.ratio": "much"}}, 40),
        ("config", {"configs": {"max.message.bytes": str(2**40)}}, 40),
        ("config", {"configs": {"seb.linger_ms": "x"}}, 40),
    ],
)
async def test_a_topic_that_cannot_be_is_refused_and_not_made(running, name, given, code):
    await running[0].client.put("/v1/topics/taken", json={})
    async with connected(running) as client:
        answer = await create(client, name, **given)
        assert (answer["error_code"], bool(answer["error_message"])) == (code, True)
    assert name == "taken" or not await exists(running, name)


async def test_a_topic_that_is_named_twice_is_refused_and_validate_only_makes_none(running):
    async with connected(running) as client:
        asked = [{"name": "twice", "num_partitions": 1}] * 2
        answer = await client.call("CreateTopics", topics=asked)
        assert {one["error_code"] for one in answer["topics"]} == {ErrorCode.INVALID_REQUEST}
        tried = await create(client, "tried", validate_only=True)
        assert (tried["error_code"], tried["num_partitions"]) == (0, 1)
    assert not await exists(running, "twice")
    assert not await exists(running, "tried")


async def test_topics_are_deleted_by_name_and_id_with_all_their_partitions(running):
    async with connected(running) as client:
        for version in NAMED["DeleteTopics"].versions:
            name = f"gone.v{version}"
            uuid = (await create(client, name, 2))["topic_id"]
            by_id = version == 6
            answer = await client.call(
                "DeleteTopics",
                version,
                topics=[{"name": None, "topic_id": uuid}] if by_id else [],
                topic_names=[] if by_id else [name, "never"],
            )
            codes = [one["error_code"] for one in answer["responses"]]
            assert codes == ([0] if by_id else [0, 3])
            for end in ("", ".kafka-1"):
                assert not await exists(running, name + end)
        unknown = await client.call("DeleteTopics", topics=[{"name": None, "topic_id": b"x" * 16}])
        assert unknown["responses"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID


async def test_all_partitions_of_a_topic_are_deleted_in_one_entry(running):
    async with connected(running) as client:
        await create(client, "at.once", 5)
        catalog = running[0].appliance.broker._catalog
        before = catalog.position.seq
        answer = await client.call("DeleteTopics", topics=[{"name": "at.once"}])
        assert answer["responses"][0]["error_code"] == 0
        assert catalog.position.seq == before + 1
        audit = (await running[0].client.get("/v1/audit?limit=5")).json()
        deleted = [one["subject"] for one in audit["audit"] if one["action"] == "topic_deleted"]
        assert sorted(deleted) == ["at.once", *(f"at.once.kafka-{index}" for index in range(1, 5))]


async def test_partitions_are_added_with_the_settings_of_the_topic(running):
    async with connected(running) as client:
        await create(client, "grows", configs={"retention.ms": "86400000"})

        async def grow(name: str, count: int, **given):
            answer = await client.call(
                "CreatePartitions", topics=[{"name": name, "count": count}], **given
            )
            return answer["results"][0]["error_code"]

        assert await grow("grows", 3, validate_only=True) == 0
        assert not await exists(running, "grows.kafka-2")
        assert await grow("grows", 3) == 0
        assert await grow("grows", 3) == ErrorCode.INVALID_PARTITIONS
        assert await grow("grows", 1) == ErrorCode.INVALID_PARTITIONS
        assert await grow("grows", 2**31 - 1) == ErrorCode.INVALID_PARTITIONS
        assert await grow("never", 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    shown = (await running[0].client.get("/v1/topics/grows.kafka-2")).json()
    assert "86400000" in str(shown)


async def test_records_are_deleted_up_to_an_offset(running):
    async with connected(running) as client:
        await create(client, "cut")
        await client.produce("cut", made(*[Sent()] * 5))

        async def cut(offset: int, name: str = "cut"):
            part = [{"partition_index": 0, "offset": offset}]
            answer = await client.call("DeleteRecords", topics=[{"name": name, "partitions": part}])
            found = answer["topics"][0]["partitions"][0]
            return found["error_code"], found["low_watermark"]

        assert await cut(2) == (0, 2)
        assert await cut(1) == (0, 2)
        assert await cut(6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await cut(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await cut(-1) == (0, 5)
        assert await cut(1, "never") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


# --- configs ---


async def configs(client, name, version=None, keys=None, kind=2):
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    answer = await client.call("DescribeConfigs", version, resources=[asked])
    (found,) = answer["results"]
    return found["error_code"], {one["name"]: one["value"] for one in found["configs"]}


async def alter(client, api, name, *given, kind=2, **members):
    names = ("name", "config_operation", "value") if len(given[0]) == 3 else ("name", "value")
    listed = [dict(zip(names, one, strict=True)) for one in given]
    asked = {"resource_type": kind, "resource_name": name, "configs": listed}
    answer = await client.call(api, resources=[asked], **members)
    return answer["responses"][0]["error_code"]


async def test_settings_have_the_names_of_kafka_and_are_changed_by_them(running):
    async with connected(running) as client:
        await create(client, "configured", 2)
        for version in NAMED["DescribeConfigs"].versions:
            code, found = await configs(client, "configured", version)
            assert (code, found["cleanup.policy"]) == (0, "delete")
        _, some = await configs(client, "configured", keys=["retention.ms", "no.such"])
        assert some.keys() == {"retention.ms"}
        change = "IncrementalAlterConfigs"
        assert await alter(client, change, "configured", ("retention.ms", 0, "3600000")) == 0
        assert await alter(client, change, "configured", ("cleanup.policy", 0, "compact")) == 0
        _, found = await configs(client, "configured")
        assert (found["retention.ms"], found["cleanup.policy"]) == ("3600000", "compact")
        shown = (await running[0].client.get("/v1/topics/configured.kafka-1")).json()
        assert "3600000" in str(shown)
        assert await alter(client, change, "configured", ("retention.ms", 1, None)) == 0
        _, found = await configs(client, "configured")
        assert found["retention.ms"] != "3600000"
        assert await alter(client, "AlterConfigs", "configured", ("retention.bytes", "5000")) == 0
        _, found = await configs(client, "configured")
        assert (found["retention.bytes"], found["cleanup.policy"]) == ("5000", "delete")


async def test_a_clean_up_policy_is_appended_and_taken_away(running):
    async with connected(running) as client:
        await create(client, "appended")
        change, policy = "IncrementalAlterConfigs", "cleanup.policy"
        for operation, value, becomes in (
            (2, "compact", "compact,delete"),
            (2, "compact", "compact,delete"),
            (3, "delete", "compact"),
            (3, "compact", ""),
        ):
            assert await alter(client, change, "appended", (policy, operation, value)) == 0
            _, found = await configs(client, "appended")
            assert found[policy] == becomes
        assert await alter(client, change, "appended", (policy, 2, "eat")) == 40
        assert await alter(client, change, "appended", (policy, 4, "delete")) == 40


@pytest.mark.parametrize("wanted", [True, False])
async def test_settings_have_synonyms_and_documentation_where_they_are_asked_for(running, wanted):
    asked = [{"resource_type": 2, "resource_name": "told", "configuration_keys": None}]
    async with connected(running) as client:
        await create(client, "told")
        answer = await client.call(
            "DescribeConfigs",
            resources=asked,
            include_synonyms=wanted,
            include_documentation=wanted,
        )
    for one in answer["results"][0]["configs"]:
        assert (bool(one["synonyms"]), bool(one["documentation"])) == (wanted, wanted), one


async def test_settings_that_cannot_be_are_refused_and_change_nothing(running):
    async with connected(running) as client:
        await create(client, "kept")
        _, before = await configs(client, "kept")
        change = "IncrementalAlterConfigs"
        assert await alter(client, change, "kept", ("retention.ms", 2, "1")) == 40
        assert await alter(client, change, "kept", ("retention.ms", 0, "x")) == 40
        assert await alter(client, change, "kept", ("no.such", 0, "x")) == 40
        assert await alter(client, change, "kept", ("no.such", 1, None)) == 40
        assert await alter(client, change, "kept", ("segment.bytes", 0, "1000000")) == 0
        assert await alter(client, change, "kept", ("max.message.bytes", 0, str(2**50))) == 40
        assert await alter(client, change, "1", ("a", 0, "1"), kind=4) == 42
        assert await alter(client, change, "never", ("retention.ms", 0, "1")) == 3
        given = ("retention.ms", 0, "3600000")
        assert await alter(client, change, "kept", given, validate_only=True) == 0
        assert await configs(client, "kept") == (0, before)
        assert (await configs(client, "never"))[0] == 3
        code, of_broker = await configs(client, "1", kind=4)
        assert (code, of_broker["num.partitions"]) == (0, "2")
        assert (await configs(client, "7", kind=4))[0] == 42


# --- the cluster ---


async def test_the_cluster_is_one_broker_and_one_log_directory(running):
    async with connected(running) as client:
        for version in (0, 1):
            answer = await client.call("DescribeCluster", version)
            assert [one["port"] for one in answer["brokers"]] == [running[1].port]
            assert answer["cluster_id"] == running[1].cluster_id
        await create(client, "sized", 2)
        await client.produce("sized", made(Sent(b"x" * 1_000)))
        asked = [{"topic": "sized", "partitions": [0, 1]}, {"topic": "never", "partitions": [0]}]
        for version in NAMED["DescribeLogDirs"].versions:
            (logs,) = (await client.call("DescribeLogDirs", version, topics=asked))["results"]
            sizes = {
                (one["name"], part["partition_index"]): part["partition_size"]
                for one in logs["topics"]
                for part in one["partitions"]
            }
            assert sizes.keys() == {("sized", 0), ("sized", 1)}
            assert sizes["sized", 0] > 1_000 > sizes["sized", 1]


async def test_a_client_that_asks_for_acls_is_told_that_there_are_none(running):
    any_acl = {"resource_type_filter": 2, "pattern_type_filter": 1, "operation": 1}
    async with connected(running) as client:
        for version in NAMED["DescribeAcls"].versions:
            answer = await client.call("DescribeAcls", version, **any_acl, permission_type=1)
            assert (answer["error_code"], answer["resources"]) == (54, [])


async def test_coordinators_of_groups_and_transactions_are_this_broker(running):
    async with connected(running) as client:
        for version in range(4):
            for kind in (0, 1):
                answer = await client.call("FindCoordinator", version, key="g", key_type=kind)
                assert (answer["error_code"], answer["port"]) == (0, running[1].port)
        answer = await client.call("FindCoordinator", 4, coordinator_keys=["a", "b"], key_type=2)
        found = [(one["key"], one["error_code"]) for one in answer["coordinators"]]
        assert found == [("a", 42), ("b", 42)]
