"""What a browser page of another host needs: a ticket instead of a header, and CORS."""

from __future__ import annotations

import asyncio
import base64

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.api.server.auth import Call, authenticated_again
from seb_appliance.broker.topics.names import Patterns
from seb_appliance.errors import ConfigurationError, UnauthenticatedError
from seb_appliance.setting_sources import load
from tests.support.appliance import running_appliance
from tests.support.documented import check_documented
from tests.support.events import Events

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = "https://page.example"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory):
    data = tmp_path_factory.mktemp("cors")
    async with running_appliance(data, cors_origins=f"{PAGE},http://other.example:81") as running:
        running.client.event_hooks = {"response": [check_documented]}
        for topic in ("in.a", "in.b", "out.a"):
            await running.client.put(f"/v1/topics/{topic}")
            records = {"records": [{"value": topic}]}
            await running.client.post(f"/v1/topics/{topic}/records", json=records)
        yield running


async def ticket(seb, topics, token=None):
    async with seb.client_with(token or seb.admin_key) as client:
        answer = await client.post("/v1/tickets", json={"topics": topics})
        assert answer.status_code == 201, answer.text
        return answer.json()["ticket"]


async def get(seb, url, **headers):
    async with seb.client_with(None) as client:
        answer = await client.get(url, headers=headers)
        await check_documented(answer)
        return answer


async def test_a_ticket_reads_the_topics_that_it_is_for_again_and_again(seb):
    given = await ticket(seb, "in.*,never.*")
    for _ in range(3):
        answer = await get(seb, f"/v1/topics/in.a/records?ticket={given}")
        assert answer.json()["records"][0]["value"] == "in.a"
    answer = await get(seb, f"/v1/topics/out.a/records?ticket={given}")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def test_a_read_by_ticket_is_a_use_of_its_api_key(seb):
    given = await ticket(seb, "in.*")
    last_used, api_key_id = seb.appliance.broker.access.last_used, seb.admin_key.split("_")[1]
    before_us = last_used.get(api_key_id)
    await get(seb, f"/v1/topics/in.a/records?ticket={given}")
    assert last_used.get(api_key_id) > before_us


async def test_a_stream_by_ticket_holds_the_topics_that_it_is_for(seb):
    given = await ticket(seb, "in.*")
    client = seb.client_with(None)
    url = f"/v1/records?topics=**&ticket={given}"
    async with client, client.stream("GET", url) as response:
        events = Events(response)
        assert sorted(await events.values(2)) == ["in.a", "in.b"]


async def test_a_ticket_does_no_more_than_its_api_key(seb):
    grants = [{"operation": "consume", "topics": "in.a"}]
    key = (await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})).json()
    given = await ticket(seb, "**", key["secret"])
    assert (await get(seb, f"/v1/topics/in.a/records?ticket={given}")).status_code == 200
    assert (await get(seb, f"/v1/topics/in.b/records?ticket={given}")).status_code == 403
    await seb.client.patch(f"/v1/api-keys/{key['api_key_id']}", json={"disabled": True})
    answer = await get(seb, f"/v1/topics/in.a/records?ticket={given}")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_a_ticket_is_for_reading_alone(seb):
    given = await ticket(seb, "**")
    async with seb.client_with(None) as client:
        for method, url in (
            ("POST", "/v1/topics/in.a/records"),
            ("GET", "/v1/topics"),
            ("POST", "/v1/tickets"),
            ("DELETE", "/v1/topics/in.a"),
        ):
            assert (await client.request(method, f"{url}?ticket={given}")).status_code == 401


async def test_a_ticket_ends_after_a_minute_and_makes_room(seb, monkeypatch):
    tickets = seb.appliance.broker.access.tickets
    monkeypatch.setattr(tickets._shares, "limit", 2 * len(tickets._tickets) + 2)
    given = await ticket(seb, "**")
    answer = await seb.client.post("/v1/tickets", json={"topics": "**"})
    assert (answer.status_code, answer.json()["code"]) == (429, "share_exceeded")

    class Later:
        monotonic_s = staticmethod(lambda: clock.monotonic_s() + limits.TICKET_S)
        wall_us = staticmethod(lambda: clock.wall_us())

    clock = tickets._clock
    monkeypatch.setattr(tickets, "_clock", Later())
    assert (await get(seb, f"/v1/topics/in.a/records?ticket={given}")).status_code == 401
    await ticket(seb, "**")
    assert len(tickets._tickets) == 1


@pytest.mark.parametrize(
    ("body", "code"), [({}, "bad_json"), ({"topics": "a..b"}, "bad_parameter")]
)
async def test_a_ticket_is_for_patterns(seb, body, code):
    answer = await seb.client.post("/v1/tickets", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_a_read_by_ticket_counts_for_the_quotas_of_its_api_key(seb):
    grants = [{"operation": "consume"}, {"operation": "produce"}]
    members = {"name": "q", "grants": grants, "quotas": {"bytes_in_per_second": 1}}
    key = (await seb.client.post("/v1/api-keys", json=members)).json()
    given = await ticket(seb, "in.*", key["secret"])
    async with seb.client_with(key["secret"]) as client:
        await client.post("/v1/topics/in.quota/records", content=b"x" * 1_000)
    answer = await get(seb, f"/v1/topics/in.a/records?ticket={given}")
    assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")


async def test_a_read_by_ticket_that_waits_looks_at_the_api_key_again(seb):
    members = {"name": "w", "grants": [{"operation": "consume"}]}
    key = (await seb.client.post("/v1/api-keys", json=members)).json()
    given = await ticket(seb, "in.*", key["secret"])
    url = f"/v1/topics/in.b/records?offset=latest&wait=60s&ticket={given}"
    reading = asyncio.create_task(get(seb, url))
    while not seb.appliance.broker.waiting_readers:
        assert not reading.done(), reading.result().text
        await asyncio.sleep(0)
    await seb.client.delete(f"/v1/api-keys/{key['api_key_id']}")
    await seb.client.post("/v1/topics/in.b/records", content=b"secret")
    answer = await reading
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_ticket_and_api_key_together_are_refused(seb):
    given = await ticket(seb, "**")
    answer = await seb.client.get(f"/v1/topics/in.a/records?ticket={given}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")


async def test_a_page_of_a_listed_origin_may_ask_and_read_all_headers(seb):
    answer = await seb.client.get("/v1/topics/in.a/records", headers={"origin": PAGE})
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-expose-headers"] == "*"
    assert "Origin" in answer.headers["vary"]
    assert "access-control-allow-credentials" not in answer.headers


async def test_a_refusal_can_be_read_by_the_page_too(seb):
    answer = await get(seb, "/v1/topics/in.a/records", origin=PAGE)
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize("origin", ["https://else.example", "null", PAGE + ":81"])
async def test_a_page_of_another_origin_is_told_nothing(seb, origin):
    answer = await seb.client.get("/v1/topics/in.a/records", headers={"origin": origin})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers
    assert "Origin" in answer.headers["vary"]


async def test_a_browser_that_asks_first_is_told_what_goes(seb):
    headers = {"origin": PAGE, "access-control-request-method": "POST"}
    async with seb.client_with(None) as client:
        answer = await client.options("/v1/topics/in.a/records", headers=headers)
        assert answer.status_code == 204
        assert "PATCH" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == "Authorization, *"
        headers["origin"] = "https://else.example"
        answer = await client.options("/v1/topics/in.a/records", headers=headers)
        assert "access-control-allow-methods" not in answer.headers


async def test_the_admin_page_is_not_for_other_origins(seb):
    answer = await get(seb, "/ui/login", origin=PAGE)
    assert "access-control-allow-origin" not in answer.headers


async def test_without_the_setting_no_page_of_another_origin_is_let_in(tmp_path):
    async with running_appliance(tmp_path / "off") as seb:
        headers = {"origin": PAGE, "access-control-request-method": "GET"}
        for answer in (
            await seb.client.get("/v1/topics", headers=headers),
            await seb.client.options("/v1/topics", headers=headers),
        ):
            assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("text", ["page.example", f"{PAGE}/", f"{PAGE},", "https://a, https://b"])
async def test_what_is_no_origin_is_no_setting(text):
    with pytest.raises(ConfigurationError, match="cors_origins"):
        load(flags={"cors_origins": text}, environment={})
    assert load(flags={"cors_origins": "*"}, environment={}).web_origins == {"*"}


async def test_a_long_answer_asks_for_its_ticket_again_and_ends_with_the_api_key(seb):
    """What a live stream does each minute, by the very call of its ticket."""
    broker = seb.appliance.broker
    made = await seb.client.post(
        "/v1/api-keys", json={"name": "goes", "grants": [{"operation": "consume"}]}
    )
    key = broker.access.authenticate(made.json()["secret"])
    given = broker.access.tickets.give(key, broker.access.holds_until_us(key), Patterns(["**"]))
    call = Call(key, {}, {}, "127.0.0.1", given)
    assert authenticated_again(broker, call) is key
    sent = {b"authorization": f"Bearer {made.json()['secret']}".encode()}
    assert authenticated_again(broker, Call(key, sent, {}, "127.0.0.1")) is key
    await seb.client.delete(f"/v1/api-keys/{key.api_key_id}")
    with pytest.raises(UnauthenticatedError):
        authenticated_again(broker, call)


@pytest.mark.asyncio(loop_scope="function")
@pytest.mark.parametrize("origins", [PAGE, "*"])
async def test_a_key_that_a_browser_attaches_is_not_for_pages_of_other_origins(tmp_path, origins):
    async with running_appliance(tmp_path, cors_origins=origins) as seb:
        await seb.client.put("/v1/topics/a")
        basic = base64.b64encode(b"u:" + seb.admin_key.encode()).decode()
        own = str(seb.client.base_url).rstrip("/")
        named = 200 if origins == PAGE else 403
        asked = [
            ({}, 200),
            ({"origin": own}, 200),
            ({"origin": own, "sec-fetch-site": "same-origin"}, 200),
            ({"sec-fetch-site": "none"}, 200),
            ({"origin": PAGE, "sec-fetch-site": "cross-site"}, named),
            ({"origin": "https://evil.example"}, 403),
            ({"origin": "null"}, 403),
            ({"sec-fetch-site": "same-site"}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),
        ]
        async with seb.client_with(None) as browser, seb.client_with(seb.admin_key) as program:
            for url in ("/v1/topics/a/records?offset=0", "/v1/topics/a", "/v1/stream/none"):
                for headers, status in asked:
                    given = {**headers, "authorization": f"Basic {basic}"}
                    expected = 404 if status == 200 and "stream" in url else status
                    for _ in range(2):  # the second may be a head that is remembered
                        answer = await browser.get(url, headers=given)
                        assert answer.status_code == expected, (url, headers, answer.text)
                    assert (await program.get(url, headers=headers)).status_code in (200, 404)
            evil = {"authorization": f"Basic {basic}", "origin": "https://evil.example"}
            answer = await browser.post("/v1/topics/a/trim", headers=evil, content=b"{}")
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
