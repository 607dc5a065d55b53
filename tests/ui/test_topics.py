"""The pages of topics: the list, one topic, and what changes it."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from seb_appliance.api.server.app import create_app
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.ports import AuditQuery
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.serve.http_server import api_options, ui_options
from seb_appliance.ui.app import site
from seb_appliance.ui.options import TopicChanges
from tests.support.appliance import RunningAppliance, running_appliance
from tests.ui.pages import Visitor, add_user, visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def produce(seb: RunningAppliance, topic: str, records: int) -> None:
    lines = b"".join(b'{"value":"%d"}\n' % number for number in range(records))
    kind = {"content-type": "application/x-ndjson"}
    answer = await seb.client.post(f"/v1/topics/{topic}/records", content=lines, headers=kind)
    assert answer.status_code == 201, answer.text


async def test_before_there_is_a_topic_the_list_says_how_to_make_one(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "fresh") as fresh:
        await add_user(fresh, "admin", "admin")
        guest = visitor(fresh)
        async with guest.client:
            await guest.log_in("admin")
            assert "/v1/topics/greetings/records" in (await guest.get("/ui/topics")).text


async def test_the_list_counts_records_groups_and_the_largest_lag(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await produce(seb, "counted", 1_234)
    for group, offset in (("near", 1_230), ("far", 34)):
        commit = {"offsets": {"counted": offset}}
        answer = await seb.client.put(f"/v1/groups/{group}/offsets", json=commit)
        assert answer.status_code == 200, answer.text
    await seb.client.post("/v1/topics/counted/trim", json={"before": 4})
    text = (await olga.get("/ui/topics?filter=counted")).text
    row = text[text.index("<tbody>") : text.index("</tbody>")]
    assert ">1,230</td>" in row
    assert ">2</td>" in row
    assert ">1,200</td>" in row
    assert "ago</time>" in row


async def test_a_forks_page_names_its_parent_and_the_parents_counts_its_forks(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await produce(seb, "forked", 3)
    wanted = {"fork_of": {"topic": "forked", "offset": 2}}
    assert (await seb.client.put("/v1/topics/forked.x", json=wanted)).status_code == 201
    text = (await olga.get("/ui/topics/forked.x")).text
    assert "Fork of" in text
    assert "shares its records below offset 2" in text
    assert (
        "shared records are kept when this topic is deleted"
        in (await olga.get("/ui/topics/forked")).text
    )
    await seb.client.delete("/v1/topics/forked")
    assert (await olga.get("/ui/topics/forked")).status_code == 410


async def test_what_comes_into_a_topic_is_told_in_the_list_and_on_its_page(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await produce(seb, "rated", 10)
    part = {"hx-request": "true", "hx-target": "topic-figures"}
    assert "known after 15 s" in (await olga.get("/ui/topics/rated", **part)).text
    topic_id = seb.appliance.broker.topics.get("rated").topic_id
    seb.appliance.history.rates.add(15.0, {topic_id: (300, 45_000)})
    text = (await olga.get("/ui/topics?filter=rated")).text
    row = text[text.index("<tbody>") : text.index("</tbody>")]
    assert "20/s" in row
    assert "2.9 KiB/s" in row
    shown = await olga.get("/ui/topics/rated", **part)
    assert shown.text.startswith('<div id="topic-figures"')
    assert "20/s" in shown.text
    assert "2.9 KiB/s in the last 15 s" in shown.text
    seb.appliance.history.rates.add(15.0, {})
    assert "0/s" in (await olga.get("/ui/topics/rated", **part)).text
    assert "unlimited" in row


async def test_the_list_looks_for_news_by_itself_and_keeps_nobody_logged_in(
    olga: Visitor,
) -> None:
    text = (await olga.get("/ui/topics?filter=f")).text
    assert 'hx-get="/ui/topics?filter=f" hx-trigger="every 15s"' in text
    part = (await olga.get("/ui/topics", **{"hx-request": "true", "hx-target": "topic-rows"})).text
    assert part.lstrip().startswith('<div id="topic-rows">')
    assert """hx-headers='{"Seb-By-Itself": "1"}'""" in part


async def test_an_admin_creates_a_topic_and_a_viewer_does_not(
    seb: RunningAppliance, admin: Visitor, olga: Visitor
) -> None:
    assert (await olga.post("/ui/topics", name="made")).status_code == 403
    assert "Create a topic" not in (await olga.get("/ui/topics")).text
    answer = await admin.post("/ui/topics", name="made", linger_ms="20ms", retention_ms="7d")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/topics/made")
    assert seb.appliance.broker.topics.get("made").settings == TopicSettings(
        linger_ms=20, retention_ms=7 * 86_400_000
    )
    (row,) = await seb.appliance.broker.audit(AuditQuery(10, subject="made"))
    assert (row.actor, row.address) == ("user:admin", "127.0.0.1")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "a..b"}, "empty word between its dots"),
        ({"name": "<script>alert(1)</script>"}, "name"),
        ({"name": "refused", "linger_ms": "20"}, "has no unit"),
        ({"name": "refused", "linger_ms": "9h"}, "Linger: 0 to"),
        ({"name": "refused", "compression": "<b>"}, "Compression must be one of"),
    ],
)
async def test_a_topic_that_is_not_taken_is_shown_again(
    admin: Visitor, fields: dict[str, str], words: str
) -> None:
    answer = await admin.post("/ui/topics", **fields)
    assert answer.status_code == 422
    assert words in answer.text
    assert "<script>alert" not in answer.text
    assert fields["name"].partition("<")[0] in answer.text


async def test_a_change_of_settings_is_told_in_words_and_then_saved(
    seb: RunningAppliance, admin: Visitor, olga: Visitor
) -> None:
    await seb.appliance.broker.topics.create("set", TopicSettings(linger_ms=100), THE_APPLIANCE)
    path = "/ui/topics/set/settings"
    text = (await admin.get(f"{path}?linger_ms=1s&retention_ms=1d&key_index=latest")).text
    assert "Fewer PUTs" in text
    assert "acknowledgements may come later" in text
    assert "Records beyond it are deleted soon after saving" in text
    assert "The newest record of each record key can be looked up" in text
    assert "seb topics change set linger=1s retention=1d key_index=latest" in text
    quoted = 'c:long=$."it\'s"'
    text = (
        await admin.get(f"{path}?{urlencode({'linger_ms': '100ms', 'table_columns': quoted})}")
    ).text
    commands = [
        shlex.split(html.unescape(found))
        for found in re.findall(r"<code>((?:seb|curl) .*?)</code>", text)
    ]
    assert ["seb", "topics", "change", "set", f"table_columns={quoted}"] in commands
    assert any(
        json.dumps({"table_columns": quoted}, separators=(",", ":")) in one for one in commands
    )
    assert seb.appliance.broker.topics.get("set").settings.linger_ms == 100
    assert (await olga.post(path, linger_ms="1s")).status_code == 403
    assert (await admin.post(path, linger_ms="1s")).headers["location"] == "/ui/topics/set"
    assert seb.appliance.broker.topics.get("set").settings == TopicSettings(linger_ms=1_000)
    assert (
        "No changes: the topic already has these settings"
        in (await admin.get(f"{path}?linger_ms=1s")).text
    )
    assert (await admin.get(path)).headers["location"] == "/ui/topics/set"
    for answer in (
        await admin.get(f"{path}?linger_ms=bad"),
        await admin.post(path, retention_ms="1ms"),
    ):
        assert answer.status_code == 422
        assert 'role="alert"' in answer.text


async def test_the_rest_of_the_settings_is_folded_until_one_differs_or_is_refused(
    seb: RunningAppliance, admin: Visitor
) -> None:
    folded, unfolded = '<details class="add">', '<details class="add" open>'
    assert '<label for="dirty_ratio">' in (await admin.get("/ui/topics")).text
    path = "/ui/topics/folds"
    for settings, is_open in (
        ({"linger_ms": 100}, False),
        ({"dirty_ratio": 0.5}, False),  # as the default
        ({"dirty_ratio": 0.2}, True),
    ):
        await seb.client.delete("/v1/topics/folds")
        await seb.client.put("/v1/topics/folds", json=settings)
        text = (await admin.get(path)).text
        assert (unfolded in text, folded in text) == (is_open, not is_open), settings
    await admin.post(f"{path}/settings", linger_ms="100ms")
    refused = await admin.get(f"{path}/settings?dirty_ratio=much")
    assert unfolded in refused.text


async def test_the_effect_of_a_change_is_told_beside_the_form(
    seb: RunningAppliance, admin: Visitor
) -> None:
    await seb.client.put("/v1/topics/beside", json={"linger_ms": 100})
    part = {"hx-request": "true", "hx-target": "setting-effects"}
    path = "/ui/topics/beside/settings?linger_ms="
    told = await admin.get(f"{path}1s", **part)
    assert told.text.startswith('<div id="setting-effects"')
    assert "Fewer PUTs" in told.text
    assert "<form" not in told.text
    wrong = await admin.get(f"{path}%3Cb%3E", **part)
    assert wrong.status_code == 200
    assert wrong.text.startswith('<div id="setting-effects"')
    assert "Linger: &#39;&lt;b&gt;&#39;" in wrong.text
    assert "No changes" in (await admin.get(f"{path}100ms", **part)).text


async def test_settings_that_another_tab_saved_meanwhile_are_not_undone(
    seb: RunningAppliance, admin: Visitor
) -> None:
    await seb.client.put("/v1/topics/tabs", json={"linger_ms": 100})
    page = (await admin.get("/ui/topics/tabs")).text
    assert 'name="stood" value="linger=100ms"' in page.replace("linger_ms=", "linger=")
    stood = page.split('name="stood" value="')[1].split('"')[0]
    path = "/ui/topics/tabs/settings"
    await admin.post(path, linger_ms="2s", stood=stood)
    query = urlencode({"linger_ms": "100ms", "retention_ms": "1d", "stood": stood})
    for answer in (
        await admin.get(f"{path}?{query}"),
        await admin.post(path, retention_ms="1d", stood=stood),
    ):
        assert answer.status_code == 422
        assert "Somebody changed these settings" in answer.text
        assert 'value="1d"' in answer.text
    found = seb.appliance.broker.topics.get("tabs").settings
    assert found == TopicSettings(linger_ms=2_000)


async def test_compaction_is_switched_on_and_its_settings_are_told(
    seb: RunningAppliance, admin: Visitor
) -> None:
    await seb.appliance.broker.topics.create("keyed", TopicSettings(), THE_APPLIANCE)
    path = "/ui/topics/keyed/settings"
    asked = {"cleanup": "compact", "dirty_ratio": "0.2", "tombstone_retention_ms": "2h"}
    text = (await admin.get(f"{path}?{urlencode(asked)}&min_compaction_lag_ms=1h")).text
    for words in (
        "Only the newest record of each record key is kept",
        "→ 0.2. The topic stays smaller",
        "→ 2h. A reader that is further behind than that misses deletions",
        "→ 1h. Records younger than that are all kept",
    ):
        assert words in text
    assert (await admin.post(path, **asked)).status_code == 303
    assert seb.appliance.broker.topics.get("keyed").settings == TopicSettings(
        cleanup="compact", dirty_ratio=0.2, tombstone_retention_ms=7_200_000
    )
    for wrong in ({"dirty_ratio": "much"}, {"dirty_ratio": "1.5"}, {"cleanup": "sometimes"}):
        answer = await admin.post(path, **{**asked, **wrong})
        assert answer.status_code == 422, wrong
    assert 'value="0.2"' in (await admin.get("/ui/topics/keyed")).text


async def test_what_a_change_costs_is_told_where_somebody_knows_it(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "seb") as seb:
        await add_user(seb, "olga", "viewer")
        await seb.client.put("/v1/topics/t")
        asked: list[object] = []

        def cost(topic: str, changes: TopicChanges) -> dict[str, str]:
            asked.append((topic, changes["linger_ms"]))
            return {"linger_ms": "up to 3 EUR a month less"}

        options = replace(ui_options(seb.appliance), setting_cost=cost)
        nobody_asks: Any = lambda: pytest.fail("nobody asks")  # noqa: E731
        app = create_app(
            seb.appliance.broker,
            options=api_options(seb.appliance),
            status=nobody_asks,
            costs=nobody_asks,
            snapshot=nobody_asks,
            samples=nobody_asks,
            site=site(seb.appliance.broker, options),
        )
        transport = httpx2.ASGITransport(app=app)  # type: ignore[arg-type]
        origin = "http://seb.example.org"
        async with httpx2.AsyncClient(transport=transport, base_url=origin) as client:
            guest = Visitor(client, origin)
            await guest.log_in("olga")
            text = (await guest.get("/ui/topics/t/settings?linger_ms=2s")).text
        assert "Linger: up to 3 EUR a month less." in text
        assert asked == [("t", 2_000)]


async def test_a_trim_says_how_many_records_go_and_then_removes_them(
    seb: RunningAppliance, admin: Visitor, olga: Visitor
) -> None:
    await produce(seb, "trimmed", 1_500)
    path = "/ui/topics/trimmed/trim"
    text = (await admin.get(f"{path}?before=1200")).text
    assert "<b>1,200</b> of 1,500 records will be deleted" in text
    assert seb.appliance.broker.topics.get("trimmed").log_start_offset == 0
    assert (await olga.post(path, before="1200")).status_code == 403
    assert (await admin.post(path, before="1200")).status_code == 303
    assert seb.appliance.broker.topics.get("trimmed").log_start_offset == 1_200
    assert "None: the log already starts" in (await admin.get(f"{path}?before=7")).text
    for wrong in ("1501", "-1", "x", "", "9" * 30):
        assert (await admin.get(f"{path}?before={wrong}")).status_code == 422


async def test_a_topic_is_deleted_by_its_whole_name_only(
    seb: RunningAppliance, admin: Visitor, olga: Visitor
) -> None:
    await produce(seb, "doomed", 1)
    path = "/ui/topics/doomed/delete"
    assert (await olga.post(path, name="doomed")).status_code == 403
    answer = await admin.post(path, name="doome")
    assert answer.status_code == 422
    assert "Nothing was deleted" in answer.text
    assert (await admin.post(path, name="doomed")).headers["location"] == "/ui/topics"
    assert (await admin.get("/ui/topics/doomed")).status_code == 404


async def test_the_list_is_filtered_by_text_and_by_pattern(
    seb: RunningAppliance, olga: Visitor
) -> None:
    for name in ("f.eu.a", "f.eu.b", "f.us.a"):
        await seb.appliance.broker.topics.create(name, TopicSettings(), THE_APPLIANCE)
    assert (await olga.get("/ui/topics?filter=f.eu")).text.count("<tr>") == 1 + 2
    assert (await olga.get("/ui/topics?filter=F.Eu")).text.count("<tr>") == 1 + 2
    assert (await olga.get("/ui/topics?filter=f.*.a")).text.count("<tr>") == 1 + 2
    assert (await olga.get("/ui/topics?filter=**.b")).text.count("<tr>") == 1 + 1
    assert "No matching topics" in (await olga.get("/ui/topics?filter=%3Cscript%3E")).text
    assert "<script>" not in (await olga.get("/ui/topics?filter=%3Cscript%3E")).text
    assert (await olga.get("/ui/topics?filter=a..*")).status_code == 422


@pytest.mark.slow
async def test_ten_thousand_topics_are_paged_at_once(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "many") as many:
        broker = many.appliance.broker
        names = [f"t.{number:05}" for number in range(10_000)]
        for begin in range(0, 10_000, 500):
            some = names[begin : begin + 500]
            await asyncio.gather(*(broker.topics.create(name, TopicSettings()) for name in some))
        for begin in range(0, 1_000, 250):
            commits = [
                Commit(f"g{number:04}", dict.fromkeys(names[number : number + 10], 0))
                for number in range(begin, begin + 250)
            ]
            await asyncio.gather(
                *(broker.groups.commit(one, broker.pending.reserve(OPERATOR, 0)) for one in commits)
            )
        await add_user(many, "olga", "viewer")
        guest = visitor(many)
        async with guest.client:
            await guest.log_in("olga")
            shown = {
                "": "1\N{EN DASH}50 of 10,000",
                "?page=101": "5,001\N{EN DASH}5,050 of 10,000",
                "?filter=9999": "1\N{EN DASH}1 of 1",
                "?filter=t.*": "1\N{EN DASH}50 of 10,000",
                "?sort=-lag&page=2": "51\N{EN DASH}100 of 10,000",
                "?sort=written": "1\N{EN DASH}50 of 10,000",
                "?sort=retention": "1\N{EN DASH}50 of 10,000",
                "?sort=-cost": "1\N{EN DASH}50 of 10,000",
                "?sort=-name&page=999": "9,951\N{EN DASH}10,000 of 10,000",
            }
            for path, words in shown.items():
                best_s = 9.0
                for _ in range(5):
                    began_s = time.process_time()
                    answer = await guest.get(f"/ui/topics{path}")
                    best_s = min(best_s, time.process_time() - began_s)
                assert answer.status_code == 200
                assert words in answer.text
                assert best_s < 0.5, path  # generous: 0.1 s on a quiet machine
            assert len(answer.content) < 100_000


async def test_a_closed_stream_is_opened_again(
    seb: RunningAppliance, admin: Visitor, olga: Visitor
) -> None:
    closing = {"content-type": "text/plain", "stream-closed": "true"}
    await seb.client.put("/v1/stream/shut", headers=closing)
    path = "/ui/topics/shut/reopen"
    assert path in (await admin.get("/ui/topics/shut")).text
    assert (await olga.post(path)).status_code == 403
    assert (await admin.post(path)).status_code == 303
    assert not seb.appliance.broker.topics.get("shut").closed
    assert path not in (await admin.get("/ui/topics/shut")).text
