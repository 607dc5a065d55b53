"""The pages of record keys: search, newest record, history with differences."""

from __future__ import annotations

import base64
import re

import msgspec
import pytest
import pytest_asyncio

from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOSTILE = [b"<script>alert(1)</script>", b"\xff\0\"'>", "\u202eevil".encode(), b"a&b=c d+%2F"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(seb: RunningAppliance) -> RunningAppliance:
    for topic, mode in (("stock", "history"), ("newest", "latest"), ("plain", "none")):
        await seb.client.put(f"/v1/topics/{topic}", json={"key_index": mode})
    return seb


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


async def produce(seb: RunningAppliance, topic: str, records: list[dict[str, object]]) -> None:
    lines = msgspec.json.Encoder().encode_lines(records)
    kind = {"content-type": "application/x-ndjson"}
    answer = await seb.client.post(f"/v1/topics/{topic}/records", content=lines, headers=kind)
    assert answer.status_code == 201, answer.text
    await seb.client.get(f"/v1/topics/{topic}/keys?fresh=true")


async def test_keys_are_found_by_their_beginning_and_paged(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await produce(seb, "newest", [{"key": f"p/{n:03}", "value": "v"} for n in range(120)])
    text = (await olga.get("/ui/topics/newest/keys?prefix=p/01")).text
    assert re.findall(r">(p/\d+)<", text) == [f"p/{n:03}" for n in range(10, 20)]
    assert "No matching record keys" in (await olga.get("/ui/topics/newest/keys?prefix=q")).text
    path, seen = "/ui/topics/newest/keys?prefix=p/", []
    while path:
        text = (await olga.get(path)).text
        seen += re.findall(r">(p/\d+)<", text)
        more = re.search(r'<a href="([^"]*)"[^>]*>More<', text)
        path = more[1].replace("&amp;", "&") if more else ""
    assert seen == [f"p/{n:03}" for n in range(120)]


async def test_a_topic_without_a_key_index_says_how_to_get_one(olga: Visitor) -> None:
    assert "key_index=history" in (await olga.get("/ui/topics/plain/keys")).text
    assert (await olga.get(f"/ui/topics/plain/key?key={b64(b'a')}")).status_code == 409


async def test_the_history_shows_what_changed_between_neighbours(
    seb: RunningAppliance, olga: Visitor
) -> None:
    versions = ['{"name":"apple","count":1}', '{"name":"apple","count":2}', None, "plain", "plain"]
    await produce(seb, "stock", [{"key": "apple", "value": value} for value in versions])
    text = (await olga.get(f"/ui/topics/stock/key?key={b64(b'apple')}")).text
    assert "Newest record" in text
    assert "No differences from the previous version." in text
    assert "<del>- (tombstone)</del><ins>+ plain</ins>" in text
    assert "<del>-   &#34;count&#34;: 1</del><ins>+   &#34;count&#34;: 2</ins>" in text
    assert "<span>    &#34;name&#34;: &#34;apple&#34;,</span>" in text
    assert text.count("The oldest stored version.") == 1


async def test_the_history_is_paged_and_each_version_is_compared_with_the_one_before(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await produce(seb, "stock", [{"key": "many", "value": f"v{n}"} for n in range(25)])
    path, pages = f"/ui/topics/stock/key?key={b64(b'many')}", []
    while path:
        text = (await olga.get(path)).text
        pages += re.findall(r"<del>- v(\d+)</del><ins>\+ v(\d+)</ins>", text)
        older = re.search(r'<a href="([^"]*)">Older<', text)
        path = older[1].replace("&amp;", "&") if older else ""
    assert pages == [(str(n - 1), str(n)) for n in range(24, 0, -1)]


async def test_a_deleted_key_still_has_its_history(seb: RunningAppliance, olga: Visitor) -> None:
    await produce(seb, "stock", [{"key": "gone", "value": "v"}, {"key": "gone", "value": None}])
    text = (await olga.get(f"/ui/topics/stock/key?key={b64(b'gone')}")).text
    assert "Deleted: the newest record is a tombstone" in text
    assert "<del>- v</del><ins>+ (tombstone)</ins>" in text


async def test_versions_too_large_are_not_compared(seb: RunningAppliance, olga: Visitor) -> None:
    large = ["\n".join(str(n * by) for n in range(2_000)) for by in (1, 2)]
    await produce(seb, "stock", [{"key": "large", "value": value} for value in large])
    text = (await olga.get(f"/ui/topics/stock/key?key={b64(b'large')}")).text
    assert "Too large to compare" in text


async def test_whatever_a_key_holds_it_has_a_page_where_nothing_runs(
    seb: RunningAppliance, olga: Visitor
) -> None:
    value = "<img src=x onerror=alert(1)>"
    for key in HOSTILE:
        key64 = base64.b64encode(key).decode()
        await produce(
            seb, "stock", [{"key_base64": key64, "value": value + str(n)} for n in (1, 2)]
        )
    text = (await olga.get("/ui/topics/stock/keys")).text
    for key in HOSTILE:
        assert f"key={b64(key)}" in text
        answer = await olga.get(f"/ui/topics/stock/key?key={b64(key)}")
        assert answer.status_code == 200
        text += answer.text
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "\u202e" not in text
    assert "&lt;img src=x" in text
    for wrong in ("%25", "a", "a%0Ab"):
        assert (await olga.get(f"/ui/topics/stock/key?key={wrong}")).status_code == 400
    assert (await olga.get(f"/ui/topics/newest/key?key={b64(b'none')}")).status_code == 404
