"""Addresses of pages with escapes: they lead to what they name, or to a page that says no."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from tests.support.appliance import RunningAppliance
from tests.ui.looking import looked_through
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
NO_NAMES = ("a/b", "a%2Fb", "ü", "a b", "?", "#", "a&b=c", '"<x>', "//evil.example", "\\")


async def test_an_escaped_name_leads_to_its_page(seb: RunningAppliance, olga: Visitor) -> None:
    await seb.client.post("/v1/topics/orders.eu/records", content=b"x")
    await seb.client.put("/v1/groups/g.a/offsets", json={"offsets": {"orders.eu": 0}})
    for path in ("topics/orders%2Eeu", "topics/orders%2eeu/records", "groups/%67%2Ea"):
        assert (await olga.get(f"/ui/{path}")).status_code == 200, path


@pytest.mark.parametrize("name", NO_NAMES)
async def test_a_name_that_nothing_has_is_answered_by_a_page(olga: Visitor, name: str) -> None:
    for place in ("topics", "groups", "queues", "api-keys", "users", "inlets", "nothing"):
        answer = await olga.get(f"/ui/{place}/{quote(name, safe='')}")
        assert answer.status_code == 404, place
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        looked_through(answer.text)


@pytest.mark.parametrize(
    "path",
    ["topics/orders.eu%2Frecords", "topics/orders.eu%5crecords", "static/%2e%2e/app.py", "a//b"],
)
async def test_an_escaped_slash_or_dots_lead_to_no_other_page(
    seb: RunningAppliance, olga: Visitor, path: str
) -> None:
    answer = await olga.get(f"/ui/{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "orders.eu" not in answer.text


@pytest.mark.parametrize("key", [*NO_NAMES, "..", "."])
async def test_the_link_of_a_record_key_leads_to_it(
    seb: RunningAppliance, olga: Visitor, key: str
) -> None:
    await seb.client.put("/v1/topics/keyed", json={"key_index": "latest"})
    records = {"records": [{"key": key, "value": f"of {key}"}]}
    assert (await seb.client.post("/v1/topics/keyed/records", json=records)).status_code == 201
    await seb.client.get("/v1/topics/keyed/keys?fresh=true")
    found = looked_through((await olga.get("/ui/topics/keyed/keys")).text)
    encoded = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
    way = next(url for url in found.urls if f"key={encoded}" in url)
    shown = await olga.get(way)
    assert shown.status_code == 200
    assert f"of {key}" in looked_through(shown.text).said
