"""An appliance with users, and a browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.sync_api import Browser, expect, sync_playwright

from tests.support.appliance import RunningAppliance, running_appliance
from tests.ui.pages import Visitor, add_user, visitor

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
AXE = ROOT / ".state/axe/node_modules/axe-core/axe.min.js"
SCREENSHOTS = ROOT / ".state/screenshots"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for a module's tests; nothing is downloaded."""
    if not CHROMIUM.exists():
        pytest.skip("no Chromium here: sh .ci/install-browser")
    expect.set_options(timeout=60_000)  # instead of five seconds: a busy machine is no failure
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core, which runs in the page (past its policy) and looks for barriers."""
    if not AXE.exists():
        pytest.skip("no axe-core here: sh .ci/install-browser")
    return AXE.read_text(encoding="utf-8")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningAppliance]:
    async with running_appliance(tmp_path_factory.mktemp("seb")) as running:
        await add_user(running, "admin", "admin")
        await add_user(running, "olga", "viewer")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(seb: RunningAppliance) -> AsyncIterator[Visitor]:
    visiting = visitor(seb)
    async with visiting.client:
        await visiting.log_in("admin")
        yield visiting


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def olga(seb: RunningAppliance) -> AsyncIterator[Visitor]:
    visiting = visitor(seb)
    async with visiting.client:
        await visiting.log_in("olga")
        yield visiting
