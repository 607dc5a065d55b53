"""What the pages say."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from seb_appliance.broker.access.audit import Actor
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.queues.queues import QueueSettings
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.appliance import RunningAppliance, running_appliance
from tests.ui.pages import Visitor, add_user, visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
PART = {"hx-request": "true"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningAppliance]:
    async with running_appliance(tmp_path_factory.mktemp("seb"), ack_timeout="40s") as running:
        await add_user(running, "olga", "viewer")
        yield running


async def test_before_there_is_a_user_the_log_in_says_how_to_make_one(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "fresh") as fresh:
        guest = visitor(fresh)
        async with guest.client:
            text = (await guest.get("/ui/login")).text
            assert "seb admin set-password" in text
            assert "<form" not in text
            assert (await guest.log_in("admin", "")).status_code == 401


async def test_the_overview_says_how_the_appliance_is(seb: RunningAppliance, olga: Visitor) -> None:
    await seb.client.post("/v1/topics/t/records", content=b"hello")
    text = (await olga.get("/ui")).text
    assert f"seq {seb.appliance.journal.position.seq:,}" in text
    assert "epoch 1" in text
    assert "1 record<" in text
    assert "everything is gone when it ends" in text  # this bucket is memory
    assert f'curl -H "Authorization: Bearer $KEY" {seb.base_url}/v1/status' in text


async def test_a_part_comes_alone_and_only_when_the_page_has_it(olga: Visitor) -> None:
    part = (await olga.get("/ui", **PART, **{"hx-target": "overview-live"})).text
    assert part.lstrip().startswith('<div id="overview-live"')
    assert "<html" not in part
    for target in ("audit-rows", "../pages/settings", "layout"):
        assert "<html" in (await olga.get("/ui", **PART, **{"hx-target": target})).text


async def test_the_settings_say_where_each_came_from(olga: Visitor) -> None:
    text = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", (await olga.get("/ui/settings")).text))
    assert "ack_timeout 40s --ack-timeout" in text
    assert "port 51313 default" in text
    assert "linger 1ms --linger" in text
    assert "s3_secret_access_key" in text


async def test_the_audit_tells_who_what_and_from_where(
    seb: RunningAppliance, olga: Visitor
) -> None:
    broker, by = seb.appliance.broker, Actor("user:admin", "192.0.2.1", "Browser/1.0")
    await broker.topics.create("audited", TopicSettings(linger_ms=5), by)
    await broker.topics.change("audited", {"linger_ms": 7}, by)
    text = (await olga.get("/ui/audit?who=user%3Aadmin")).text
    assert "192.0.2.1 · Browser/1.0" in text
    assert "<b>linger</b> <del>5ms</del> <ins>7ms</ins>" in text
    assert ">topic changed</td>" in text
    assert ">api key created</td>" not in text


async def test_the_audit_names_keys_and_offers_the_actors_and_actions_that_there_are(
    seb: RunningAppliance, olga: Visitor
) -> None:
    broker, grants = seb.appliance.broker, (Grant(operation="produce", topics="orders.*"),)
    key, _ = await broker.access.create("checkout", grants, 1_893_456_000_000_000)
    by = Actor(key.api_key_id, "192.0.2.1")
    await broker.queues.put("audited-work", QueueSettings(topics=["a", "b"], lease_ms=60_000), by)
    text = (await olga.get("/ui/audit?what=checkout")).text
    assert "<b>grants</b>  <ins>produce:orders.*</ins>" in text
    assert "<ins>2030-01-01 00:00:00Z</ins>" in text
    assert f'<option value="{key.api_key_id}">checkout</option>' in text
    assert '<option value="queue_created">queue created</option>' in text
    text = (await olga.get(f"/ui/audit?who={key.api_key_id}")).text
    assert f'<a href="/ui/api-keys/{key.api_key_id}">checkout</a>' in text
    assert f'<option value="{key.api_key_id}" selected>checkout</option>' in text
    assert "<b>lease</b>  <ins>1m</ins>" in text
    assert "<ins>a, b</ins>" in text


async def test_the_audit_is_paged_down_to_the_first_action(
    seb: RunningAppliance, olga: Visitor
) -> None:
    by = Actor("user:pager", "", "")
    for number in range(60):
        await seb.appliance.broker.topics.create(f"paged-{number}", TopicSettings(), by)
    text = (await olga.get("/ui/audit?who=user:pager")).text
    assert text.count("<tr>") == 1 + 50
    older = re.search(r'href="(/ui/audit\?before=\d+&amp;who=user%3Apager)"', text)
    assert older
    path = older[1].replace("&amp;", "&")
    for headers in ({}, {**PART, "hx-target": "audit-rows"}):
        rest = (await olga.get(path, **headers)).text
        assert rest.count("<tr>") == 1 + 10
        assert "Older" not in rest
        assert "Newest" in rest


async def test_the_audit_is_filtered_by_action_and_time(olga: Visitor) -> None:
    assert ">user added</td>" in (await olga.get("/ui/audit?action=user_added")).text
    assert ">api key created</td>" not in (await olga.get("/ui/audit?action=user_added")).text
    for query in ("from=2999-01-01T00:00", "until=1999-01-01T00:00", "what=nothing"):
        assert "No matching actions" in (await olga.get(f"/ui/audit?{query}")).text
    both = "from=1999-01-01T00:00&until=2999-01-01T00:00:30&what=olga"
    assert ">user added</td>" in (await olga.get(f"/ui/audit?{both}")).text


async def test_a_page_that_is_not_there_is_told_in_words(olga: Visitor) -> None:
    answer = await olga.get("/ui/no/such")
    assert answer.status_code == 404
    assert "no such page" in answer.text


async def test_a_bug_shows_nothing_of_the_inside(
    seb: RunningAppliance, olga: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("the inside")

    monkeypatch.setattr(seb.appliance.broker.topics, "totals", broken)
    answer = await olga.get("/ui")
    assert answer.status_code == 500
    assert "the inside" not in answer.text
    assert answer.headers["seb-request-id"] in answer.text
