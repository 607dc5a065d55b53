"""Definitions in a real browser: from a file on the user's machine to a topic."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.server.serving import Serving
from tests.ui.test_browser import (
    log_in,
    seb,  # noqa: F401 - a fixture
    visiting,
)

pytestmark = pytest.mark.slow


def test_a_file_is_chosen_previewed_and_applied(
    chromium: Browser,
    seb: Serving,  # noqa: F811
) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.get_by_role("link", name="Settings").click()
        page.get_by_role("link", name="Definitions").click()
        page.get_by_label("From this machine").set_input_files(
            {
                "name": "seb.yaml",
                "mimeType": "application/yaml",
                "buffer": b"topics: {defined.here: {linger: 20ms}}",
            }
        )
        expect(page.get_by_label("File", exact=True)).to_have_value(
            "topics: {defined.here: {linger: 20ms}}"
        )
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("row", name="defined.here")).to_contain_text("linger 20ms")
        page.get_by_role("button", name="Apply 1 change").dblclick()
        expect(page.get_by_role("status")).to_contain_text("1 change made.")
        assert seb.request("GET", "/v1/topics/defined.here")[0] == 200
        with page.expect_download() as saved:
            page.get_by_role("link", name="Download it").click()
        assert "defined.here" in saved.value.path().read_text()


def test_without_scripts_a_pasted_file_is_applied(
    chromium: Browser,
    seb: Serving,  # noqa: F811
) -> None:
    with visiting(chromium, seb, java_script_enabled=False) as page:
        log_in(page)
        page.goto("/ui/definitions")
        expect(page.get_by_label("From this machine")).to_be_hidden()
        page.get_by_label("File", exact=True).fill("topics: {pasted.here: {}}")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("button", name="Apply 1 change").click()
        expect(page.get_by_role("status")).to_contain_text("1 change made.")
        assert seb.request("GET", "/v1/topics/pasted.here")[0] == 200
