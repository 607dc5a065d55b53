"""What needs no API key: health, metrics, the OpenAPI page; and answers that no route makes."""

from __future__ import annotations

import re

import pytest

from seb_appliance.api.openapi.routes import ASSETS

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
        proxied = await client.get("/metrics", headers={"x-forwarded-for": "192.0.2.1"})
        assert (proxied.status_code, proxied.json()["code"]) == (403, "forbidden")


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
    "path", ["/", "/v1", "/v2/topics", "/v1/topics/a/b", "/v1/topics/a/records/1/x", "/healthz/x"]
)
async def test_an_unknown_route_is_a_problem_document(seb, path):
    async with seb.client_with(None) as client:
        for method in ("GET", "POST", "HEAD", "PROPFIND"):
            answer = await client.request(method, path)
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
