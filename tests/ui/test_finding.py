"""Pages are found by a few letters, and lead to each other."""

from __future__ import annotations

import re

import pytest

from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")


def found(text: str) -> list[tuple[str, str]]:
    """The path and kind of each."""
    return re.findall(r'<li><a href="([^"]*)">.*?<span class="quiet">(.*?)</span>', text)


async def test_what_has_the_letters_in_its_name_is_found(
    seb: RunningAppliance, admin: Visitor, olga: Visitor
) -> None:
    for topic in ("find.Orders", "find.stock"):
        await seb.client.put(f"/v1/topics/{topic}")
    await seb.client.put("/v1/groups/orderly/offsets", json={"offsets": {"find.Orders": 0}})
    made = {"name": "order desk", "grants": [{"operation": "consume", "topics": "**"}]}
    key = (await seb.client.post("/v1/api-keys", json=made)).json()["api_key_id"]
    assert found((await admin.get("/ui/find?q=ORDER")).text) == [
        ("/ui/topics/find.Orders", "topic"),
        ("/ui/groups/orderly", "group"),
        (f"/ui/api-keys/{key}", "API key"),
    ]
    assert found((await olga.get("/ui/find?q=olg")).text) == [("/ui/users/olga", "user")]
    assert ("/ui/topics#create", "page") in found((await admin.get("/ui/find?q=create")).text)
    assert found((await olga.get("/ui/find?q=create")).text) == []  # she may not
    assert "Nothing has a name" in (await olga.get("/ui/find?q=%3Cscript%3E")).text
    for path, _ in found((await admin.get("/ui/find?q=")).text):
        assert (await admin.get(path)).status_code == 200, path


async def test_many_of_one_kind_leave_room_for_the_others(
    seb: RunningAppliance, olga: Visitor
) -> None:
    for number in range(20):
        await seb.client.put(f"/v1/topics/crowd.{number}")
    kinds = [kind for _, kind in found((await olga.get("/ui/find?q=c")).text)]
    assert kinds.count("topic") == 8
    assert "page" in kinds
    rest = found((await olga.get("/ui/find?q=crowd")).text)[8:]
    assert rest == [("/ui/topics?filter=crowd", "list")]
    assert "crowd.19" in (await olga.get(rest[0][0])).text


async def test_the_audit_names_api_keys_and_leads_to_what_was_changed(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await seb.client.put("/v1/topics/audited")
    key = seb.appliance.broker.access.all()[0]
    text = (await olga.get("/ui/audit?what=audited")).text
    assert f'<a href="/ui/api-keys/{key.api_key_id}">{key.name}</a>' in text
    assert '<a href="/ui/topics/audited">audited</a>' in text


async def test_a_topics_page_says_who_reads_it_and_what_it_costs(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await seb.client.post("/v1/topics/read/records", content=b"x")
    for group, offset in (("near", 1), ("far", 0)):
        await seb.client.put(f"/v1/groups/{group}/offsets", json={"offsets": {"read": offset}})
    text = (await olga.get("/ui/topics/read")).text
    assert re.findall(r'<a href="/ui/groups/(\w+)">', text) == ["far", "near"]
    assert "Cost this month" in text
    assert 'href="/ui/audit?what=read"' in text
