"""The charts in a real browser, of an appliance that was killed before."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from seb_appliance import limits
from seb_appliance.state.local import LocalFile
from seb_appliance.ui.history import History, Sample
from tests.server.serving import Serving, serving
from tests.ui.test_browser import log_in, set_password, visiting

pytestmark = pytest.mark.slow
SAMPLE = Sample(0, 15.0, 300, 15_360, 30, 60, 9, 1, 45, 0.038, 0.11, 4096)


def save_an_hour(file: LocalFile) -> None:
    """Of samples, with a rising rate."""
    history, now_us = History(), time.time_ns() // 1000
    for number in range(240):
        at_us = now_us - (240 - number) * limits.SAMPLE_EVERY_S * 1_000_000
        sample = msgspec.structs.replace(SAMPLE, at_us=at_us, records_in=15 * number)
        history.add(sample)
    rows = [(step, at, msgspec.msgpack.encode(one)) for step, at, one in history.unsaved()]
    with ThreadPoolExecutor(1) as aside:  # Playwright has an event loop in this thread
        aside.submit(lambda: asyncio.run(file.save_samples(rows))).result()


@pytest.fixture(scope="module")
def seb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("seb")
    with serving(folder) as first:
        set_password(first)
        assert first.request("POST", "/v1/topics/t/records", b"hello")[0] == 201
    save_an_hour(LocalFile(first.data / "local.sqlite"))
    with serving(folder) as running:
        yield running


def pointed_at(page: Page, part: float) -> str:
    """What the first chart says when the pointer is at this part of its width."""
    box = page.locator(".plot .u-over").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * part, box["y"] + 40)
    said = page.locator("figcaption").first
    expect(said).to_contain_text(":")  # the time
    return said.inner_text()


def rate_in(said: str) -> float:
    return float(said.split()[-1].removesuffix("/s").replace(",", ""))


def test_a_chart_says_what_is_under_the_pointer_and_is_zoomed_by_dragging(
    chromium: Browser, seb: Serving
) -> None:
    with visiting(chromium, seb, viewport={"width": 1400, "height": 900}) as page:
        log_in(page)
        expect(page.locator(".plot canvas")).to_have_count(6)
        whole = rate_in(pointed_at(page, 0.25)), rate_in(pointed_at(page, 0.75))
        assert whole == (pytest.approx(60, abs=8), pytest.approx(180, abs=8))
        latency = page.locator("figcaption").nth(3)
        expect(latency).to_contain_text("p50 38 ms")
        expect(latency).to_contain_text("p99 110 ms")
        box = page.locator(".plot .u-over").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 40, steps=5)
        page.mouse.up()
        zoomed = rate_in(pointed_at(page, 0.05)), rate_in(pointed_at(page, 0.95))
        assert zoomed == (pytest.approx(122, abs=8), pytest.approx(166, abs=8))
        page.mouse.dblclick(box["x"] + box["width"] * 0.5, box["y"] + 40)
        assert rate_in(pointed_at(page, 0.25)) == pytest.approx(60, abs=8)


def test_another_time_is_drawn_in_place(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/storage")
        page.evaluate("window.stayed = true")
        for span in ("7d", "30d"):
            page.get_by_role("link", name=span).click()
            expect(page.get_by_role("link", name=span)).to_have_attribute("aria-current", "true")
            expect(page.locator(".plot canvas")).to_have_count(3)
        assert page.evaluate("window.stayed")
        assert page.url.endswith("?span=30d")


def test_without_javascript_the_charts_are_a_table(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb, java_script_enabled=False) as page:
        log_in(page)
        expect(page.locator(".chart").first).to_be_hidden()
        page.get_by_text("The same as a table").click()
        expect(page.get_by_role("region", name="Recent activity as a table")).to_contain_text(
            "38 ms"
        )


def test_a_killed_appliance_draws_what_was_before(chromium: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as seb:
        set_password(seb)
        assert seb.request("POST", "/v1/topics/t/records", b"hello")[0] == 201
        file = LocalFile(seb.data / "local.sqlite")
        with ThreadPoolExecutor(1) as aside:
            aside.submit(lambda: asyncio.run(some_samples(file))).result(180)
        seb.stop(signal.SIGKILL)
    with serving(tmp_path) as seb, visiting(chromium, seb) as page:
        log_in(page)
        drawn = page.request.get("/ui/charts/overview").json()
        (values,) = [line["values"] for line in drawn["charts"][0]["lines"]]
        assert max(value for value in values if value is not None) == pytest.approx(1 / 15, rel=0.3)


async def some_samples(file: LocalFile) -> None:
    """Waits until the appliance has saved some."""
    while not await file.load_samples():
        await asyncio.sleep(1)
