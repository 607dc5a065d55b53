"""A topic followed in a browser: rows, bounded in number, until the log-in ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from seb_appliance import limits
from seb_appliance.ui.records import downloads
from tests.support.appliance import RunningAppliance, running_appliance
from tests.ui.pages import Visitor, add_user, visitor


@pytest.fixture
async def seb(tmp_path: Path) -> AsyncIterator[RunningAppliance]:
    async with running_appliance(tmp_path / "seb") as running:
        await add_user(running, "olga", "viewer")
        await running.client.put("/v1/topics/t")
        yield running


@pytest.fixture
async def olga(seb: RunningAppliance) -> AsyncIterator[Visitor]:
    visiting = visitor(seb)
    async with visiting.client:
        await visiting.log_in("olga")
        yield visiting


async def produce(seb: RunningAppliance, values: list[str]) -> None:
    lines = msgspec.json.Encoder().encode_lines([{"value": value} for value in values])
    kind = {"content-type": "application/x-ndjson"}
    answer = await seb.client.post("/v1/topics/t/records", content=lines, headers=kind)
    assert answer.status_code == 201


async def event(lines: AsyncIterator[str], name: str) -> str:
    """The data of the next event of that name."""
    async with asyncio.timeout(60):
        async for line in lines:
            if line == f"event: {name}":
                data = []
                async for part in lines:
                    if not part:
                        return "\n".join(data)
                    data.append(part.removeprefix("data: "))
    raise AssertionError(f"the stream ended without {name}")


async def test_rows_come_as_records_are_stored_and_nothing_in_them_runs(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await produce(seb, ["before"])
    async with olga.client.stream("GET", "/ui/topics/t/live/rows") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        await produce(seb, ["<script>alert(1)</script>\r\nevent: ended", "second"])
        rows = await event(lines, "rows")
        assert "before" not in rows
        assert rows.index("second") < rows.index("&lt;script&gt;alert(1)&lt;/script&gt;")
        assert "<script>" not in rows
        assert "/ui/topics/t/records/2" in rows


async def test_a_filter_of_the_live_view_leaves_out_what_does_not_match(
    seb: RunningAppliance, olga: Visitor
) -> None:
    where = "text=zoe&where=%24.total+%3E+1"
    page = await olga.get(f"/ui/topics/t/live?{where}")
    assert f'data-rows="/ui/topics/t/live/rows?{where.replace("&", "&amp;")}"' in page.text
    assert (await olga.get("/ui/topics/t/live?where=1+2")).status_code == 400
    async with olga.client.stream("GET", f"/ui/topics/t/live/rows?{where}") as answer:
        lines = answer.aiter_lines()
        many = [f'{{"total": {n % 100}, "by": "b"}}' for n in range(300)]
        await produce(seb, [*many, '{"total": 1, "by": "zoe"}', '{"total": 2, "by": "zoe"}'])
        rows = await event(lines, "rows")
    assert rows.count("<tr>") == 1
    assert "skipped" not in rows
    assert "2, &#34;by&#34;: &#34;<mark>zoe</mark>" in rows


async def test_what_comes_too_fast_is_left_out_and_counted(
    seb: RunningAppliance, olga: Visitor
) -> None:
    async with olga.client.stream("GET", "/ui/topics/t/live/rows") as answer:
        lines = answer.aiter_lines()
        await produce(seb, [f"value {n}" for n in range(1_200)])
        rows = await event(lines, "rows")
        assert "value 1199<" in rows
        assert rows.count("/records/") == limits.LIVE_ROWS_AT_ONCE
        assert "1,150 records skipped" in rows


async def test_it_ends_with_the_topic(seb: RunningAppliance, olga: Visitor) -> None:
    async with olga.client.stream("GET", "/ui/topics/t/live/rows") as answer:
        lines = answer.aiter_lines()
        await seb.client.delete("/v1/topics/t")
        assert "'t'" in await event(lines, "ended")
    assert (await olga.get("/ui/topics/t/live")).status_code == 404


async def test_it_ends_with_the_log_in(seb: RunningAppliance, olga: Visitor) -> None:
    async with olga.client.stream("GET", "/ui/topics/t/live/rows") as answer:
        lines = answer.aiter_lines()
        await produce(seb, ["one"])
        assert "one" in await event(lines, "rows")
        assert (await olga.post("/ui/logout-everywhere")).status_code == 303
        await produce(seb, ["two"])
        async with asyncio.timeout(60):
            assert "two" not in "".join([line async for line in lines])


async def test_a_client_that_leaves_follows_no_more(seb: RunningAppliance, olga: Visitor) -> None:
    async with olga.client.stream("GET", "/ui/topics/t/live/rows") as answer:
        await anext(answer.aiter_lines())
        assert seb.appliance.broker.followers.count == 1
    async with asyncio.timeout(60):
        while seb.appliance.broker.followers.count:
            await asyncio.sleep(0)


async def test_a_download_ends_with_the_log_in(
    seb: RunningAppliance, olga: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_PART", 2)
    await produce(seb, [str(n) for n in range(10)])
    send = downloads.Download._send

    async def send_and_log_out(*given: Any) -> None:
        await send(*given)
        await olga.post("/ui/logout")

    monkeypatch.setattr(downloads.Download, "_send", send_and_log_out)
    got = bytearray()

    async def download() -> None:
        async with olga.client.stream("GET", "/ui/topics/t/download?offset=0") as answer:
            async for part in answer.aiter_bytes():
                got.extend(part)

    with pytest.raises(httpx2.RemoteProtocolError):
        await download()
    assert got.count(b"\n") == 2
