"""What needs no API key: health, metrics, the OpenAPI page; and answers that no route makes."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from seb_appliance import tasks
from seb_appliance.api.routes.schema import ASSETS
from seb_appliance.broker.counters import Histogram
from seb_appliance.broker.upkeep import due
from seb_appliance.ops.serve.status import samples, telemetry

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_health_and_readiness_need_no_key(seb):
    async with seb.client_with(None) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"ready": True}
        assert (await client.head("/healthz")).status_code == 200


async def test_an_appliance_that_is_not_ready_tells_its_own_machine_why(seb):
    seb.appliance.broker._writes.stopping = True
    try:
        answer = await seb.client.get("/readyz")
        outside = await seb.client.get("/readyz", headers={"x-forwarded-for": "192.0.2.1"})
    finally:
        seb.appliance.broker._writes.stopping = False
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert answer.json()["problems"]
    assert "problems" not in outside.json()


async def test_metrics_are_text_for_this_machine_only(seb):
    async with seb.client_with(None) as client:
        answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert re.search(r"^seb_records_total \d+$", answer.text, re.MULTILINE)
        assert re.search(
            r'^seb_store_requests_total\{kind="\w+",outcome="\w+",purpose="\w+"\} \d',
            answer.text,
            re.MULTILINE,
        )
        for headers in ({"x-forwarded-for": "192.0.2.1"}, {"host": "rebound.example:51313"}):
            refused = await client.get("/metrics", headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


async def test_metrics_are_told_to_an_admin_key_wherever_it_asks(seb):
    elsewhere = {"host": "seb.example"}
    assert (await seb.client.get("/metrics", headers=elsewhere)).status_code == 200
    made = await seb.client.post(
        "/v1/api-keys", json={"name": "x", "grants": [{"operation": "consume"}]}
    )
    async with seb.client_with(made.json()["secret"]) as client:
        refused = await client.get("/metrics", headers=elsewhere)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


async def test_others_have_turns_while_metrics_look_at_all_topics(seb, monkeypatch):
    topics = [f"looked-at-{n}" for n in range(20)]
    for topic in topics:
        await seb.client.put(f"/v1/topics/{topic}", json={"cleanup": "compact"})
    monkeypatch.setattr(tasks, "SLICE_S", 0.0)
    loop, turns, looked_at = asyncio.get_running_loop(), [0], list[int]()
    monkeypatch.setattr(due, "_clean_rows", lambda _: looked_at.append(turns[0]) or 0)

    def turn():
        turns[0] += 1
        again[0] = loop.call_soon(turn)

    again = [loop.call_soon(turn)]
    await telemetry(seb.appliance)
    again[0].cancel()
    # Four looks at each topic, with a pause of two turns behind each.
    assert turns[0] >= 8 * len(seb.appliance.broker.topics.names())
    assert len(set(looked_at)) == len(topics)


async def test_metrics_are_told_while_the_first_request_of_a_kind_goes_to_the_bucket(
    seb, monkeypatch
):
    """It comes in a pause between two metrics."""
    latencies = {"GET": Histogram()}
    monkeypatch.setattr(seb.appliance.store, "latencies", latencies)
    told = []
    for sample in samples(seb.appliance, await telemetry(seb.appliance), 0, 0):
        told.append(sample.name)
        if sample.name == "seb_store_request_seconds":
            latencies["DELETE"] = Histogram()
    assert told[-1] == "seb_loop_delay_seconds"


async def test_metrics_name_topics_and_groups_only_when_asked(seb):
    await seb.client.post("/v1/topics/named-in-metrics/records", content=b"x")
    offsets = {"offsets": {"named-in-metrics": 0}}
    await seb.client.put("/v1/groups/group-in-metrics/offsets", json=offsets)
    plain = (await seb.client.get("/metrics")).text
    assert "in-metrics" not in plain
    assert "seb_group_lag_worst_records 1" in plain
    named = (await seb.client.get("/metrics?names=true")).text
    assert 'seb_group_lag_records{group="group-in-metrics",topic="named-in-metrics"} 1' in named


async def test_a_name_that_is_wrong_is_told_as_it_was_meant(seb):
    answer = await seb.client.get("/v1/topics/t%C3%A4st")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_name")
    assert "'täst'" in answer.json()["detail"]


CLIENTS = {
    "curl": "curl -sS --fail --anyauth -u any:{key} {url}",
    "wget": "wget -q -O - --user any --password {key} {url}",
    "urllib": f"{sys.executable} -c '"
    "import urllib.request as u; "
    "known = u.HTTPPasswordMgrWithDefaultRealm(); "
    'known.add_password(None, "{url}", "any", "{key}"); '
    "opener = u.build_opener(u.HTTPBasicAuthHandler(known)); "
    'print(opener.open("{url}").read().decode())\'',
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_that_waits_for_a_basic_challenge_gets_in(seb, client):
    if client != "urllib" and shutil.which(client) is None:
        pytest.skip(f"there is no {client} here")
    command = CLIENTS[client].format(key=seb.admin_key, url=f"{seb.base_url}/v1/topics")
    asked = await asyncio.create_subprocess_exec(
        *shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asked.communicate()
    assert (asked.returncode, err) == (0, b"")
    assert b'"topics":' in out


async def test_the_schema_page_asks_no_other_server(seb):
    async with seb.client_with(None) as client:
        page = await client.get("/schema")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert not re.search(r"https?://|//[a-z]", page.text)
        assert not re.search(r"<script(?! src=)", page.text), "no script in the page itself"
        links = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        served = [link for link in links if not link.startswith("data:")]
        assert len(served) == len(ASSETS) + 1
        for link in served:
            answer = await client.get(f"/{link}")
            assert answer.status_code == 200
            if "assets" in link:
                tag = {"if-none-match": answer.headers["etag"]}
                assert (await client.get(f"/{link}", headers=tag)).status_code == 304
        assert "https://" not in (await client.get("/schema/assets/schema.js")).text
        assert (await client.get("/schema/assets/openapi.py")).json()["code"] == "not_found"


@pytest.mark.parametrize(
    "path",
    [
        "//",
        "//../x",
        "/v1",
        "/v2/topics",
        "/v1/topics/a/b",
        "/v1/topics/a/records/1/x",
        "/healthz/x",
    ],
)
async def test_an_unknown_route_is_a_problem_document(seb, path):
    async with seb.client_with(None) as client:
        for method in ("GET", "POST", "HEAD", "PROPFIND"):
            answer = await client.request(method, f"{str(client.base_url).rstrip('/')}{path}")
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/v1/topics", "GET, HEAD, OPTIONS"),
        ("POST", "/v1/topics/a", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("PUT", "/v1/topics/a/records", "GET, HEAD, OPTIONS, POST"),
        ("TRACE", "/healthz", "GET, HEAD, OPTIONS"),
        ("PROPFIND", "/v1/api-keys", "GET, HEAD, OPTIONS, POST"),
    ],
)
async def test_a_wrong_method_is_told_which_are_allowed(seb, method, path, allow):
    answer = await seb.client.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allow


async def test_options_names_every_method_of_a_path(seb):
    answer = await seb.client.request("OPTIONS", "/v1/topics/a/records")
    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")


async def test_a_bug_is_logged_and_not_shown(seb, monkeypatch, caplog):
    def broken(_names):
        raise RuntimeError("the inside of /var/lib/secret")

    monkeypatch.setattr(seb.appliance.broker.topics, "some", broken)
    made = await seb.client.post(
        "/v1/api-keys", json={"name": "x", "grants": [{"operation": "consume"}]}
    )
    async with seb.client_with(made.json()["secret"]) as client:
        answer = await client.get("/v1/topics")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.json()["side_effects"] == "unknown"
    assert "secret" not in answer.text
    [logged] = [r for r in caplog.records if r.name == "seb.api"]
    assert answer.headers["seb-request-id"] in logged.getMessage()
    assert "the inside" in str(logged.exc_info)
    to_admin = await seb.client.get("/v1/topics")
    assert "the inside" in to_admin.json()["detail"]


async def test_request_ids_differ(seb):
    ids = {(await seb.client.get("/healthz")).headers["seb-request-id"] for _ in range(5)}
    assert len(ids) == 5
