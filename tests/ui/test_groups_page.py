"""The pages of consumer groups: how far they are behind, reset with a look before, delete."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.broker.ports import AuditQuery
from tests.support.appliance import RunningAppliance, running_appliance
from tests.ui.pages import Visitor, add_user, visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
PART = {"hx-request": "true", "hx-target": "group-rows"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(seb: RunningAppliance) -> RunningAppliance:
    for topic in ("orders.eu", "orders.us"):
        for value in (b"first", b"second", b"third"):
            await seb.client.post(f"/v1/topics/{topic}/records", content=value)
    return seb


async def commit(seb: RunningAppliance, group: str, **more: object) -> None:
    body = {"offsets": {"orders.eu": 1, "orders.us": 3}, "allow_backward": True, **more}
    answer = await seb.client.put(f"/v1/groups/{group}/offsets", json=body)
    assert answer.status_code == 200, answer.text


def words(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", text))


def stood(text: str) -> str:
    found = re.search(r'name="stood" value="([^"]*)"', text)
    assert found
    return found[1]


async def test_no_group_yet_says_how_the_first_is_made(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with running_appliance(tmp_path_factory.mktemp("empty")) as empty:
        await add_user(empty, "olga", "viewer")
        visiting = visitor(empty)
        async with visiting.client:
            await visiting.log_in("olga")
            shown = (await visiting.get("/ui/groups")).text
            assert "seb consume TOPIC --group readers --commit" in shown
            await empty.client.put("/v1/topics/orders")
            shown = (await visiting.get("/ui/groups")).text
            assert "seb consume orders --group readers --commit" in shown


async def test_the_list_tells_lag_and_who_holds_the_lease(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await commit(seb, "billing")
    lease = {"holder": "worker-7", "ttl_ms": 60_000}
    assert (await seb.client.post("/v1/groups/billing/lease", json=lease)).status_code == 200
    shown = words((await olga.get("/ui/groups")).text)
    assert re.search(r"billing 2 2 \d+ B [\d.]+ (ms|s) [\d.]+ (ms|s) ago worker-7", shown)


async def test_a_group_is_told_topic_by_topic_with_its_trend(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await commit(seb, "reports", metadata={"orders.eu": "<script>alert(1)</script>"})
    now_us = seb.appliance.clock.wall_us()
    for age_s in (30, 15):
        lags = seb.appliance.broker.groups.lags(10)
        lags = {pair: lag + age_s - 15 for pair, lag in lags.items()}
        seb.appliance.history.lags.add(now_us - age_s * 1_000_000, lags)
    text = (await olga.get("/ui/groups/reports")).text
    assert re.search(r"orders\.eu \S+ 3 2 -15", words(text))
    drawn = (await olga.get("/ui/groups/reports/lag")).json()
    (chart,) = drawn["charts"]
    assert [line["name"] for line in chart["lines"]] == ["orders.eu", "orders.us"]
    assert [value for value in chart["lines"][0]["values"] if value is not None] == [17, 2]
    assert len(chart["lines"][0]["values"]) == 241
    assert drawn["first_s"] + 240 * drawn["step_s"] in range(
        now_us // 10**6 - 15, now_us // 10**6 + 16
    )
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text
    assert re.search(r"orders\.us 3 3 0 -15 0 B none", words(text))
    assert "Delete the group" not in text  # she is a viewer


async def test_a_group_that_is_not_there_is_told_in_words(olga: Visitor) -> None:
    for path in ("/ui/groups/nobody", "/ui/groups/nobody/reset"):
        answer = await olga.get(path)
        assert answer.status_code == 404
        assert "nobody" in answer.text


@pytest.mark.parametrize(
    ("query", "change"),
    [
        ("how=earliest", "orders.eu 1 0 reads 1 again orders.us 3 0 reads 3 again"),
        ("how=latest", "orders.eu 1 3 skips 2 orders.us 3 3 unchanged"),
        ("how=offset&value=2&topics=orders.eu", "orders.eu 1 2 skips 1"),
        ("how=shift&value=-1&topics=orders.*", "orders.eu 1 0 reads 1 again orders.us 3 2"),
        (
            "how=offset&value=9&topics=orders.eu",
            "skips 2 (offset 9 is outside the log, which ends",
        ),
        ("how=time&value=1999-01-01T00:00&topics=orders.us", "orders.us 3 0 reads 3 again"),
    ],
)
async def test_a_look_at_a_reset_shows_before_and_after_and_changes_nothing(
    seb: RunningAppliance, olga: Visitor, query: str, change: str
) -> None:
    await commit(seb, "looked-at")
    text = words((await olga.get(f"/ui/groups/looked-at/reset?{query}")).text)
    assert change in text
    assert "Only an admin can do this" in text
    offsets = (await seb.client.get("/v1/groups/looked-at")).json()["topics"]
    assert [one["committed_offset"] for one in offsets] == [1, 3]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("how=offset&value=", "The offset must be a whole number"),
        ("how=offset&value=-1", "The offset must be a whole number"),
        ("how=shift&value=1.5", "The shift must be a whole number"),
        ("how=time&value=soon", "The time must be a time in UTC"),
        ("how=time", "Choose where to move"),
        ("how=sideways", "Choose where to move"),
        ("how=earliest&topics=a..b", "empty word"),
        ("how=earliest&topics=nothing", "nothing"),
        ("how=earliest&topics=x**", "not a pattern"),
    ],
)
async def test_a_reset_that_makes_no_sense_is_told_beside_the_form(
    seb: RunningAppliance, admin: Visitor, query: str, problem: str
) -> None:
    await commit(seb, "looked-at")
    answer = await admin.get(f"/ui/groups/looked-at/reset?{query}")
    assert answer.status_code == 422
    assert problem in answer.text
    assert "Reset the group" not in answer.text


async def test_a_reset_does_what_was_shown_and_is_in_the_audit(
    seb: RunningAppliance, admin: Visitor
) -> None:
    await commit(seb, "resettable")
    shown = (await admin.get("/ui/groups/resettable/reset?how=earliest&topics=orders.us")).text
    fields = {"how": "earliest", "value": "", "topics": "orders.us", "stood": stood(shown)}
    answer = await admin.post("/ui/groups/resettable/reset", **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/groups/resettable")
    text = words((await admin.get("/ui/groups/resettable")).text)
    assert "resettable was reset on 1 topic." in text
    assert "orders.us 0 3 3" in text
    assert "orders.eu 1 3 2" in text
    row, made = await seb.appliance.broker.audit(AuditQuery(10, subject="resettable"))
    assert made.action == "group_created"
    assert (row.action, row.actor, row.address) == ("group_reset", "user:admin", "127.0.0.1")


async def test_a_group_that_moved_since_the_look_is_not_reset(
    seb: RunningAppliance, admin: Visitor
) -> None:
    await commit(seb, "moving")
    shown = (await admin.get("/ui/groups/moving/reset?how=earliest")).text
    await commit(seb, "moving", offsets={"orders.eu": 2})
    fields = {"how": "earliest", "value": "", "topics": "", "stood": stood(shown)}
    answer = await admin.post("/ui/groups/moving/reset", **fields)
    assert answer.status_code == 422
    assert "have changed since the preview" in answer.text
    again = await admin.post("/ui/groups/moving/reset", **{**fields, "stood": stood(answer.text)})
    assert again.status_code == 303


async def test_a_group_is_deleted_only_by_its_name(seb: RunningAppliance, admin: Visitor) -> None:
    await commit(seb, "old-group")
    for wrong in ("", "Old-group", '"><script>alert(1)</script>'):
        answer = await admin.post("/ui/groups/old-group/delete", name=wrong)
        assert answer.status_code == 422
        assert "nothing was deleted" in answer.text
        assert "<script>alert" not in answer.text
    answer = await admin.post("/ui/groups/old-group/delete", name="old-group")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/groups")
    assert "The group old-group is deleted." in (await admin.get("/ui/groups")).text
    assert (await seb.client.get("/v1/groups/old-group")).status_code == 404
    rows = await seb.appliance.broker.audit(AuditQuery(10, subject="old-group"))
    assert (rows[0].action, rows[0].actor) == ("group_deleted", "user:admin")
    assert [row.action for row in rows[1:]] == ["group_created"]


async def test_a_viewer_resets_and_deletes_nothing(seb: RunningAppliance, olga: Visitor) -> None:
    await commit(seb, "kept")
    for path, fields in (
        ("/ui/groups/kept/delete", {"name": "kept"}),
        ("/ui/groups/kept/reset", {"how": "earliest", "value": "", "topics": "", "stood": ""}),
    ):
        assert (await olga.post(path, **fields)).status_code == 403
    offsets = (await seb.client.get("/v1/groups/kept")).json()["topics"]
    assert [one["committed_offset"] for one in offsets] == [1, 3]


async def test_a_thousand_groups_are_paged_filtered_and_quick(
    seb: RunningAppliance, olga: Visitor
) -> None:
    for first in range(0, 1_000, 100):
        await asyncio.gather(*(commit(seb, f"many-{n:04}") for n in range(first, first + 100)))
    seen: list[str] = []
    path, pages = "/ui/groups?filter=many-", 0
    while path:
        text = (await olga.get(path, **PART)).text
        assert "<html" not in text
        seen += re.findall(r'href="/ui/groups/(many-\d+)"', text)
        following = re.search(r'href="([^"]*)"[^>]*>Next<', text)
        path, pages = following[1].replace("&amp;", "&") if following else "", pages + 1
    assert seen == [f"many-{n:04}" for n in range(1_000)]
    assert 20 <= pages <= 22
    assert "No group has a name" in (await olga.get("/ui/groups?filter=zzz<b>")).text
    took_s = []
    for _ in range(5):
        began_s = time.process_time()
        assert (await olga.get("/ui/groups")).status_code == 200
        took_s.append(time.process_time() - began_s)
    assert min(took_s) < 0.1, took_s


async def test_of_many_pairs_the_first_are_watched(seb: RunningAppliance) -> None:
    lags = seb.appliance.broker.groups.lags(limits.LAGS_SAMPLED)
    assert len(lags) <= limits.LAGS_SAMPLED
    assert len(seb.appliance.broker.groups.lags(1)) == 1


async def test_a_group_on_many_topics_is_shown_a_hundred_at_a_time(
    seb: RunningAppliance, olga: Visitor
) -> None:
    names = [f"wide.{number:03}" for number in range(230)]
    for name in names:
        await seb.client.put(f"/v1/topics/{name}")
    await commit(seb, "wide", offsets=dict.fromkeys(names, 0))
    path, seen, took_s = "/ui/groups/wide", [], []
    while path:
        began_s = time.process_time()
        text = (await olga.get(path, **{**PART, "hx-target": "group-topics"})).text
        took_s.append(time.process_time() - began_s)
        assert "230 topics" in text
        seen.append(len(re.findall(r'aria-label="Reset on (wide\.\d+)"', text)))
        following = re.search(r'href="([^"]*)"[^>]*>Next<', text)
        path = following[1] if following else ""
    assert seen == [100, 100, 30]
    assert min(took_s) < 0.1
    assert (await olga.get("/ui/groups/wide?page=x")).status_code == 400
