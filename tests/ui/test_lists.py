"""Lists without a browser: any order, the page that is asked for, and the columns by choice."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio

from seb_appliance.formats.api_key_members import Grant
from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
LISTS = (
    "topics",
    "groups",
    "queues",
    "tables",
    "api-keys",
    "inlets",
    "subscriptions",
    "connections",
    "users",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(seb: RunningAppliance) -> RunningAppliance:
    for topic, records in (("orders", 1), ("Mails", 3), ("bills", 2)):
        for _ in range(records):
            await seb.client.post(f"/v1/topics/{topic}/records", content=b"x")
        offsets = {"offsets": {topic: 0}}
        await seb.client.put(f"/v1/groups/{topic}-readers/offsets", json=offsets)
        await seb.client.put(f"/v1/queues/{topic}-work", json={"topics": [topic]})
        inlet = {"topic": topic, "verify": {"scheme": "github"}}
        assert (await seb.client.put(f"/v1/inlets/{topic}", json=inlet)).status_code == 201
        await seb.appliance.broker.access.create(topic, (Grant(operation="produce"),))
    return seb


def names(text: str) -> list[str]:
    return re.findall(r'<th scope="row"[^>]*>(?:<a[^>]*>)?([^<]*)<', text)


@pytest.mark.parametrize("page", LISTS)
async def test_each_heading_that_is_a_link_orders_the_list_both_ways(
    seb: RunningAppliance, admin: Visitor, page: str
) -> None:
    text = (await admin.get(f"/ui/{page}")).text
    ways = re.findall(r'<a id="sort-\w+" href="([^"]*)"', text)
    assert ways or page in ("tables", "subscriptions", "connections")  # they are empty
    for way in ways:
        once = (await admin.get(way.replace("&amp;", "&"))).text
        assert len(re.findall(r"aria-sort=\"(?:as|des)cending\"", once)) == 1, way
        assert sorted(names(once)) == sorted(names(text))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("topics?sort=records", ["orders", "bills", "Mails"]),
        ("topics?sort=-records", ["Mails", "bills", "orders"]),
        ("topics?sort=-name", ["orders", "bills", "Mails"]),
        ("groups?sort=-lag", ["Mails-readers", "bills-readers", "orders-readers"]),
        ("groups?sort=bytes", ["orders-readers", "bills-readers", "Mails-readers"]),
        ("queues?sort=waiting&filter=LL", ["bills-work"]),
        ("queues?sort=-waiting", ["Mails-work", "bills-work", "orders-work"]),
        ("inlets?sort=topic", ["Mails", "bills", "orders"]),
        ("users?sort=role", ["admin", "olga"]),
    ],
)
async def test_rows_come_in_the_order_that_is_asked_for(
    seb: RunningAppliance, olga: Visitor, path: str, found: list[str]
) -> None:
    assert names((await olga.get(f"/ui/{path}")).text) == found


async def test_what_has_no_value_comes_last_in_both_directions(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await seb.client.put("/v1/topics/empty")
    for sort in ("written", "-written"):
        assert names((await olga.get(f"/ui/topics?sort={sort}")).text)[-1] == "empty"
    await seb.client.delete("/v1/topics/empty")


async def test_an_order_page_or_column_that_is_not_there_is_refused_or_left_out(
    seb: RunningAppliance, olga: Visitor
) -> None:
    assert (await olga.get("/ui/topics?sort=nothing")).status_code == 400
    assert (await olga.get("/ui/api-keys?sort=--name")).status_code == 400
    assert (await olga.get("/ui/topics?page=0")).status_code == 400
    text = (await olga.get("/ui/topics?page=999&column=nothing&column=records")).text
    assert re.findall(r'<a id="sort-(\w+)"', text) == ["name", "records"]
    assert "1\N{EN DASH}3 of 3" in text


async def test_columns_are_remembered_by_the_form_alone_and_by_session(
    seb: RunningAppliance, olga: Visitor, admin: Visitor
) -> None:
    def headings(text: str) -> list[str]:
        return re.findall(r'<a id="sort-(\w+)"', text)

    usual = headings((await olga.get("/ui/topics")).text)
    assert headings((await olga.get("/ui/topics?column=end")).text) == ["name", "end"]
    assert headings((await olga.get("/ui/topics")).text) == usual  # it was somebody's link
    part = {"hx-request": "true", "hx-target": "topic-rows"}
    chosen = await olga.get("/ui/topics?filter=&column=&column=end", **part)
    assert chosen.headers["hx-replace-url"] == "/ui/topics?column=name&column=end"
    assert headings((await olga.get("/ui/topics")).text) == ["name", "end"]
    assert headings((await admin.get("/ui/topics")).text) == usual
    back = "&".join(f"column={name}" for name in usual)
    await olga.get(f"/ui/topics?column=&{back}")
    assert headings((await olga.get("/ui/topics")).text) == usual
