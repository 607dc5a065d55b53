"""The way of a person who has never seen an appliance, from no password to a record, in a real
browser: what the pages show to be typed is typed as it is shown."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.server.serving import ENVIRONMENT, serving
from tests.ui.conftest import SCREENSHOTS
from tests.ui.pages import PASSWORD
from tests.ui.test_browser import check, visiting

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("javascript", [True, False])
def test_a_first_time_user_gets_from_nothing_to_a_record(
    chromium: Browser, tmp_path: Path, javascript: bool
) -> None:
    with (
        serving(tmp_path, data="my data") as seb,
        visiting(chromium, seb, java_script_enabled=javascript) as page,
    ):
        page.goto("/ui")
        command = page.locator("#command").inner_text()
        assert command in seb.shown
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        subprocess.run(
            [*shlex.split(command), "--stdin"],
            input=PASSWORD,
            text=True,
            check=True,
            env=ENVIRONMENT,
            cwd=elsewhere,
            timeout=60,
        )
        if javascript:
            expect(page.get_by_label("Password")).to_be_focused()
            page.keyboard.type(PASSWORD)
        else:
            page.get_by_role("link", name="load it again").click()
            page.get_by_label("User").fill("admin")
            page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_text("There are no topics.")).to_be_visible()
        page.get_by_role("link", name="Create a topic").click()
        page.get_by_label("Name", exact=True).fill("orders.eu")
        page.get_by_role("button", name="Create", exact=True).click()
        page.get_by_role("link", name="Create an API key").click()
        page.get_by_label("Name", exact=True).fill("shop")
        page.get_by_label("Operation 1").select_option("produce")
        page.get_by_label("Topics 1").fill("orders.*")
        page.get_by_role("button", name="Create the API key").click()
        shown = page.locator("#test").inner_text()
        sent = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, timeout=60)
        assert '"offset":0' in sent.stdout, (shown, sent)
        page.get_by_role("link", name="Records of orders.eu").click()
        expect(page.locator(".record summary")).to_have_text("hello")


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_before_the_first_password_is_fit_for_every_eye(
    chromium: Browser, axe: str, tmp_path: Path, theme: str, width: int
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    viewport = {"width": width, "height": 900}
    with (
        serving(tmp_path) as seb,
        visiting(chromium, seb, color_scheme=theme, viewport=viewport) as page,
    ):
        page.goto("/ui/login")
        check(page, axe, f"no-password-{theme}-{width}")
