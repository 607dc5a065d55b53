"""The Iceberg REST catalog: what is in it for whom, and how it refuses."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio

from seb_appliance.protocols.iceberg import catalog
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.documented import check_documented

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.asyncio(loop_scope="module")

CATALOG = "/iceberg/v1"
TABLES = f"{CATALOG}/namespaces/topics/tables"
TOKENS = f"{CATALOG}/oauth/tokens"
READER_KEY = {"table_reader_key": "reader:of-tables"}


async def make_table(seb: RunningAppliance, topic: str) -> str:
    """Of three records; its id, once it is published."""
    made = await seb.client.put(f"/v1/topics/{topic}", json={"table": "iceberg"})
    assert made.status_code == 201, made.text
    records = {"records": [{"value": {"total": i}} for i in range(3)]}
    await seb.client.post(f"/v1/topics/{topic}/records", json=records)
    return await published(seb, topic, 3)


async def published(seb: RunningAppliance, topic: str, rows: int) -> str:
    """Once so many rows are: the id of the table."""
    async with asyncio.timeout(30):
        while True:
            shown = (await seb.client.get(f"/v1/tables/{topic}")).json()
            head = seb.appliance.broker.tables.published(shown.get("table_id", ""))
            if head is not None and head.newest is not None and head.newest.records == rows:
                return head.table_id
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningAppliance]:
    """With a table of the topic Orders.eu."""
    folder = tmp_path_factory.mktemp("seb")
    async with running_appliance(folder / "data", bucket=f"file:{folder}/bucket") as running:
        running.client.event_hooks = {"response": [check_documented]}
        await make_table(running, "Orders.eu")
        yield running


async def make_key(seb: RunningAppliance, topics: str, **more: Any) -> str:
    grants = [{"operation": "consume", "topics": topics}]
    answer = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["secret"])


def error_of(answer: httpx2.Response) -> tuple[int, str]:
    """Status and type; every error has these members and no other."""
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "code"}
    assert error["code"] == answer.status_code
    assert error["message"]
    return answer.status_code, error["type"]


async def test_a_reader_is_led_from_the_config_to_the_metadata_file(seb: RunningAppliance) -> None:
    config = (await seb.client.get(f"{CATALOG}/config?warehouse=seb")).json()
    assert config["defaults"] == config["overrides"] == {}
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}" in config["endpoints"]
    assert not any(one.startswith(("POST", "DELETE")) for one in config["endpoints"])
    listed = (await seb.client.get(f"{CATALOG}/namespaces?pageToken=")).json()
    assert listed == {"namespaces": [["topics"]]}
    below = await seb.client.get(f"{CATALOG}/namespaces?parent=topics")
    assert below.json() == {"namespaces": []}
    tables = (await seb.client.get(f"{TABLES}?pageToken=&pageSize=10")).json()
    assert tables == {"identifiers": [{"namespace": ["topics"], "name": "orders_eu"}]}
    loaded = (await seb.client.get(f"{TABLES}/orders_eu")).json()
    assert loaded.keys() == {"metadata-location", "metadata", "config"}
    shown = (await seb.client.get("/v1/tables/Orders.eu")).json()
    assert loaded["metadata-location"] == shown["metadata"]
    stored = httpx2.URL(loaded["metadata-location"])
    assert stored.scheme == "file"
    assert msgspec.json.decode(Path(stored.path).read_bytes()) == loaded["metadata"]
    assert loaded["config"] == {}


async def test_there_are_no_views(seb: RunningAppliance) -> None:
    answer = await seb.client.get(f"{CATALOG}/namespaces/topics/views?pageToken=")
    assert answer.json() == {"identifiers": []}


async def test_head_answers_whether_there_is_one(seb: RunningAppliance) -> None:
    for path, status in (
        (f"{CATALOG}/namespaces/topics", 204),
        (f"{CATALOG}/namespaces/other", 404),
        (f"{TABLES}/orders_eu", 204),
        (f"{TABLES}/orders", 404),
    ):
        answer = await seb.client.head(path)
        assert answer.status_code == status, path


async def test_a_client_that_has_the_metadata_is_told_so(seb: RunningAppliance) -> None:
    first = await seb.client.get(f"{TABLES}/orders_eu")
    same = {"if-none-match": f'"other", {first.headers["etag"]}'}
    again = await seb.client.get(f"{TABLES}/orders_eu", headers=same)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    refs = await seb.client.get(f"{TABLES}/orders_eu?snapshots=refs", headers=same)
    assert refs.status_code == 200


async def test_metadata_is_printed_beside_the_event_loop(
    seb: RunningAppliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 100 schemas of 200 columns it takes 40 ms."""
    print_it, threads = catalog._metadata, list[threading.Thread]()

    def printed(*of: Any) -> Any:
        threads.append(threading.current_thread())
        return print_it(*of)

    monkeypatch.setattr(catalog, "_metadata", printed)
    assert (await seb.client.get(f"{TABLES}/orders_eu")).status_code == 200
    assert threads != [threading.current_thread()]


async def test_refs_are_the_newest_snapshot_alone(seb: RunningAppliance) -> None:
    await make_table(seb, "grows")
    await seb.client.patch("/v1/topics/grows", json={"table_lag_ms": 1_000})
    await seb.client.post("/v1/topics/grows/records", json={"records": [{"value": 4}]})
    await published(seb, "grows", 4)
    whole = (await seb.client.get(f"{TABLES}/grows?snapshots=all")).json()["metadata"]
    assert len(whole["snapshots"]) == 2
    refs = (await seb.client.get(f"{TABLES}/grows?snapshots=refs")).json()["metadata"]
    (only,) = refs["snapshots"]
    assert only["snapshot-id"] == whole["current-snapshot-id"]
    assert refs | {"snapshots": whole["snapshots"]} == whole
    bad = await seb.client.get(f"{TABLES}/grows?snapshots=some")
    assert error_of(bad) == (400, "BadRequestException")


async def test_who_may_not_consume_the_topic_finds_no_table(seb: RunningAppliance) -> None:
    await make_table(seb, "private")
    async with seb.client_with(await make_key(seb, "Orders.**")) as client:
        client.event_hooks = {"response": [check_documented]}
        listed = (await client.get(TABLES)).json()["identifiers"]
        assert [one["name"] for one in listed] == ["orders_eu"]
        assert (await client.get(f"{TABLES}/orders_eu")).status_code == 200
        for method, end in (("GET", ""), ("HEAD", ""), ("POST", "/metrics")):
            hidden = await client.request(method, f"{TABLES}/private{end}")
            absent = await client.request(method, f"{TABLES}/absent{end}")
            assert hidden.text == absent.text.replace("absent", "private")
            assert hidden.status_code == absent.status_code == 404
        assert error_of(await client.get(f"{TABLES}/private")) == (404, "NoSuchTableException")


async def test_a_table_without_a_commit_is_not_there_yet(seb: RunningAppliance) -> None:
    """As after a start, until its metadata is known to be in the bucket."""
    table_id = await make_table(seb, "early")
    tables = seb.appliance.broker.tables
    head = tables.published(table_id)
    assert head is not None
    del tables._published[table_id]
    answer = await seb.client.get(f"{TABLES}/early")
    assert error_of(answer) == (404, "NoSuchTableException")
    assert "yet" in answer.text
    assert "early" not in (await seb.client.get(TABLES)).text
    tables.publish(head)
    assert (await seb.client.get(f"{TABLES}/early")).status_code == 200


async def test_of_two_tables_with_one_name_the_later_one_gets_its_id(
    seb: RunningAppliance,
) -> None:
    await make_table(seb, "a.b_c")
    second = await make_table(seb, "A_b.c")
    names = [one["name"] for one in (await seb.client.get(TABLES)).json()["identifiers"]]
    assert {"a_b_c", f"a_b_c_{second[:8]}"} <= set(names)
    for name, topic in (("a_b_c", "a.b_c"), (f"a_b_c_{second[:8]}", "A_b.c")):
        loaded = (await seb.client.get(f"{TABLES}/{name}")).json()
        assert loaded["metadata"]["properties"]["seb.topic"] == topic
    # The name is that of the table of a topic that is there.
    await seb.client.delete("/v1/topics/a.b_c")
    loaded = (await seb.client.get(f"{TABLES}/a_b_c")).json()
    assert loaded["metadata"]["properties"]["seb.topic"] == "A_b.c"


# --- tokens ---


def basic(secret: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"seb:{secret}".encode()).decode()}


async def test_a_token_is_the_api_key(seb: RunningAppliance) -> None:
    key = await make_key(seb, "Orders.**")
    exchange = "urn:ietf:params:oauth:grant-type:token-exchange"
    form = {"grant_type": "client_credentials", "scope": "PRINCIPAL_ROLE:ALL"}
    async with seb.client_with(None) as client:
        client.event_hooks = {"response": [check_documented]}
        for data, headers in (
            ({**form, "client_id": "seb", "client_secret": key}, {}),
            (form, basic(key)),
            ({"grant_type": exchange, "subject_token": key}, {}),
        ):
            answer = await client.post(TOKENS, data=data, headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.json() == {
                "access_token": key,
                "token_type": "bearer",
                "expires_in": 3600,
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            }
            bearer = {"authorization": f"Bearer {answer.json()['access_token']}"}
            assert (await client.get(f"{TABLES}/orders_eu", headers=bearer)).status_code == 200
            assert (await client.get(f"{TABLES}/orders_eu", headers=basic(key))).status_code == 200


async def test_what_is_no_api_key_gets_no_token(seb: RunningAppliance) -> None:
    form = {"grant_type": "client_credentials", "client_id": "seb"}
    wrong = seb.admin_key[:-6] + "aaaaaa"
    async with seb.client_with(None) as client:
        client.event_hooks = {"response": [check_documented]}
        for data, headers, status, error in (
            ({**form, "client_secret": wrong}, {}, 401, "invalid_client"),
            (form, basic(wrong), 401, "invalid_client"),
            (form, {}, 401, "invalid_client"),
            ({"grant_type": "password"}, {}, 400, "unsupported_grant_type"),
            ({}, {}, 400, "unsupported_grant_type"),
            ({**form, "scope": "x" * 20_000}, {}, 413, "invalid_request"),
        ):
            answer = await client.post(TOKENS, data=data, headers=headers)
            assert answer.status_code == status, answer.text
            assert answer.json().keys() == {"error", "error_description"}
            assert answer.json()["error"] == error
        ended = {"content": b"\xff=\xfe"}
        assert (await client.post(TOKENS, **ended)).json()["error"] == "invalid_request"  # type: ignore[arg-type]


async def test_a_token_does_not_outlive_its_api_key(seb: RunningAppliance) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=100)
    key = await make_key(seb, "Orders.**", expires=soon.isoformat())
    form = {"grant_type": "client_credentials", "client_secret": key}
    answer = await seb.client.post(TOKENS, data=form)
    assert 90 < answer.json()["expires_in"] <= 100


# --- refusals ---


async def test_nobody_comes_in_without_an_api_key(seb: RunningAppliance) -> None:
    async with seb.client_with(None) as client:
        client.event_hooks = {"response": [check_documented]}
        for path in ("config", "namespaces", "namespaces/topics", "namespaces/topics/tables/x"):
            answer = await client.get(f"{CATALOG}/{path}")
            assert error_of(answer) == (401, "NotAuthorizedException"), path


async def test_an_api_key_in_the_query_is_refused_and_others_are_ignored(
    seb: RunningAppliance,
) -> None:
    answer = await seb.client.get(f"{CATALOG}/config?token={seb.admin_key}")
    assert error_of(answer) == (400, "BadRequestException")
    assert (await seb.client.get(f"{CATALOG}/config?newer=option")).status_code == 200


@pytest.mark.parametrize(
    "asked",
    [
        "POST namespaces",
        "DELETE namespaces/topics",
        "POST namespaces/topics/properties",
        "POST namespaces/topics/tables",
        "POST namespaces/topics/tables/orders_eu",
        "DELETE namespaces/topics/tables/orders_eu",
        "GET namespaces/topics/tables/orders_eu/credentials",
        "POST namespaces/topics/register",
        "POST namespaces/topics/views",
        "POST tables/rename",
        "POST transactions/commit",
        "PUT config",
        "GET absent",
    ],
)
async def test_what_would_write_and_what_is_not_there_is_refused(
    seb: RunningAppliance, asked: str
) -> None:
    method, path = asked.split()
    async with seb.client_with(seb.admin_key) as client:  # these answers are in no document
        answer = await client.request(method, f"{CATALOG}/{path}", json={})
    assert error_of(answer) == (403, "ForbiddenException")
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("name", ["other", "TOPICS", "topics%1Feu", "%20", "topics.eu", "a" * 900])
async def test_there_is_one_namespace(seb: RunningAppliance, name: str) -> None:
    for end in ("", "/tables", "/views", "/tables/orders_eu"):
        answer = await seb.client.get(f"{CATALOG}/namespaces/{name}{end}")
        assert error_of(answer) == (404, "NoSuchNamespaceException"), end


async def test_requests_count_in_the_quota_of_the_key(seb: RunningAppliance) -> None:
    key = await make_key(seb, "Orders.**", quotas={"requests_per_second": 1})
    async with seb.client_with(key) as client:
        client.event_hooks = {"response": [check_documented]}
        answers = [await client.get(f"{CATALOG}/config") for _ in range(40)]
        refused = next(one for one in answers if one.status_code != 200)
        assert error_of(refused) == (429, "TooManyRequestsException")
        form = {"grant_type": "client_credentials", "client_secret": key}
        assert (await client.post(TOKENS, data=form)).status_code == 429


# --- properties ---


async def test_a_pair_for_readers_is_handed_out_with_each_table(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("seb")
    address = f"file:{folder}/bucket"
    async with running_appliance(folder / "data", bucket=address, **READER_KEY) as seb:
        await make_table(seb, "orders")
        loaded = (await seb.client.get(f"{TABLES}/orders")).json()
        pair = {"s3.access-key-id": "reader", "s3.secret-access-key": "of-tables"}
        assert loaded["config"] == pair
        shown = [(await seb.client.get(path)).text for path in (f"{CATALOG}/config", "/v1/status")]
        assert "of-tables" not in "".join(shown) + repr(seb.appliance.settings)
