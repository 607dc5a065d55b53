"""Lists in a real browser: their order, filter, pages and columns."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.server.serving import Serving
from tests.ui.test_browser import log_in, visiting
from tests.ui.test_browser import seb as _seb  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seb(_seb: Serving) -> Serving:  # noqa: F811
    for number in range(60):
        _seb.request("PUT", f"/v1/topics/list.{number:02}", b"{}", "application/json")
    for _ in range(3):
        _seb.request("POST", "/v1/topics/list.33/records", b"three", "text/plain")
    _seb.request("POST", "/v1/topics/list.07/records", b"one", "text/plain")
    return _seb


def test_a_click_on_a_heading_orders_the_list_and_the_address_keeps_it(
    chromium: Browser, seb: Serving
) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/topics?filter=list.")
        heading = page.get_by_role("columnheader", name="Records")
        heading.get_by_role("link").click()
        expect(heading).to_have_attribute("aria-sort", "descending")
        expect(page.locator("tbody th").nth(0)).to_have_text("list.33")
        expect(page.locator("tbody th").nth(1)).to_have_text("list.07")
        expect(page).to_have_url(re.compile(r"\?filter=list\.&sort=-records$"))
        expect(heading.get_by_role("link")).to_be_focused()
        page.keyboard.press("Enter")
        expect(heading).to_have_attribute("aria-sort", "ascending")
        expect(page.get_by_text("1\N{EN DASH}50 of 60")).to_be_visible()
        page.get_by_role("link", name="Next").click()
        expect(page.get_by_text("51\N{EN DASH}60 of 60")).to_be_visible()
        expect(page.locator("tbody th").last).to_have_text("list.33")
        page.reload()
        expect(page.locator("tbody th").last).to_have_text("list.33")
        page.go_back()
        expect(page.get_by_text("1\N{EN DASH}50 of 60")).to_be_visible()


def test_a_list_is_filtered_while_one_types_and_the_address_can_be_shared(
    chromium: Browser, seb: Serving
) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/topics?sort=-name")
        page.get_by_label("Name or pattern").press_sequentially("list.1")
        expect(page.get_by_text("1\N{EN DASH}10 of 10", exact=True)).to_be_visible()
        expect(page.locator("tbody th").first).to_have_text("list.19")
        expect(page).to_have_url(re.compile(r"/ui/topics\?filter=list\.1&sort=-name$"))
        expect(page.get_by_label("Name or pattern")).to_be_focused()
        page.get_by_label("Name or pattern").fill("a..*")
        expect(page.get_by_role("alert")).to_contain_text("is not a pattern")
        page.get_by_label("Name or pattern").fill("nothing here")
        expect(page.get_by_text("No matching topics")).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False])
def test_columns_are_chosen_and_remembered(chromium: Browser, seb: Serving, scripts: bool) -> None:
    with visiting(chromium, seb, java_script_enabled=scripts) as page:
        log_in(page)
        page.goto("/ui/topics")
        page.get_by_role("search").get_by_text("Columns").click()
        page.get_by_role("checkbox", name="Created").check()
        page.get_by_role("checkbox", name="Retention").uncheck()
        if not scripts:
            page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("columnheader", name="Created")).to_be_visible()
        expect(page.get_by_role("columnheader", name="Retention")).to_have_count(0)
        expect(page).to_have_url(re.compile("column=created"))
        page.goto("/ui/topics")
        expect(page.get_by_role("columnheader", name="Created")).to_be_visible()
        expect(page.get_by_role("columnheader", name="Retention")).to_have_count(0)


def test_record_keys_are_looked_for_while_one_types(chromium: Browser, seb: Serving) -> None:
    seb.request("PUT", "/v1/topics/typed", b'{"key_index":"latest"}', "application/json")
    for key in ("customer/1", "customer/2", "order/1"):
        body = f'{{"records":[{{"key":"{key}","value":"x"}}]}}'.encode()
        assert seb.request("POST", "/v1/topics/typed/records", body, "application/json")[0] == 201
    assert seb.request("GET", "/v1/topics/typed/keys?fresh=true")[0] == 200
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/topics/typed/keys")
        expect(page.locator("tbody tr")).to_have_count(3)
        page.get_by_label("Starts with").press_sequentially("customer")
        expect(page.locator("tbody tr")).to_have_count(2)
        expect(page).to_have_url(re.compile(r"/keys\?prefix=customer$"))
        expect(page.get_by_label("Starts with")).to_be_focused()
