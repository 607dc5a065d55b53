"""What a person sees when something goes wrong meanwhile, in a real browser: the appliance is away,
the session has ended, a topic was deleted, a form was refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.serving import Serving, serving
from tests.ui.test_browser import log_in, set_password, visiting

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("seb")) as running:
        set_password(running)
        running.request("PUT", "/v1/topics/orders")
        yield running


def look_again(page: Page) -> None:
    """What the parts of the page do by themselves every few seconds."""
    page.evaluate(
        """() => { for (const one of document.querySelectorAll('[hx-trigger^=every]')) {
            const to = one.getAttribute('hx-target');
            const how = {source: one, target: to === 'this' ? one : to, swap: 'outerHTML'};
            htmx.ajax('GET', one.getAttribute('hx-get'), how).catch(() => {});
        } }"""
    )


def test_a_form_that_is_refused_has_the_focus_at_its_error(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/topics/orders")
        page.get_by_label("Name of the topic").fill("order")
        page.get_by_role("button", name="Delete the topic").click()
        expect(page.get_by_role("alert")).to_be_focused()
        expect(page.get_by_role("alert")).to_be_in_viewport()


def test_a_part_that_has_the_focus_is_not_taken_away(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/topics")
        link = page.locator("#topic-rows tbody a").first
        link.focus()
        page.evaluate("document.querySelector('#topic-rows').dataset.old = '1'")
        look_again(page)
        expect(link).to_be_focused()
        page.evaluate("document.activeElement.blur()")
        look_again(page)
        expect(page.locator("#topic-rows[data-old]")).to_have_count(0)


def test_a_topic_that_was_deleted_elsewhere_is_said_to_be_gone(
    chromium: Browser, seb: Serving
) -> None:
    seb.request("PUT", "/v1/topics/short-lived")
    with visiting(chromium, seb, ignored="status of 404|Code 404") as page:
        log_in(page)
        page.goto("/ui/topics/short-lived")
        seb.request("DELETE", "/v1/topics/short-lived")
        look_again(page)
        expect(page.get_by_text("something that was deleted meanwhile")).to_be_visible()


def test_what_was_typed_is_there_after_the_session_ended_and_a_log_in(
    chromium: Browser, seb: Serving
) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/topics/orders/produce")
        page.get_by_label("Value", exact=True).fill("typed with care")
        page.context.clear_cookies()
        page.get_by_role("button", name="Store the record").click()
        expect(page.get_by_role("button", name="Log in")).to_be_visible()
        page.get_by_label("User").fill("admin")
        page.get_by_label("Password").fill("correct horse battery")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Value", exact=True)).to_have_value("typed with care")
        page.get_by_role("button", name="Store the record").click()
        expect(page.get_by_role("status").first).to_contain_text("Stored at offset")
        page.goto("/ui/topics/orders/produce")
        expect(page.get_by_label("Value", exact=True)).to_have_value("")


def test_while_the_appliance_is_away_nothing_is_green_and_no_form_is_lost(
    chromium: Browser, seb: Serving
) -> None:
    with visiting(chromium, seb, ignored="ERR_|Failed to load|htmx:") as page:
        log_in(page)
        page.goto("/ui")
        expect(page.locator(".well")).to_be_visible()
        page.route("**/*", lambda route: route.abort())
        look_again(page)
        expect(page.locator("#lost")).to_be_visible()
        expect(page.locator(".well")).not_to_be_visible()
        page.unroute("**/*")
        look_again(page)
        expect(page.locator(".well")).to_be_visible()
        page.goto("/ui/topics/orders/produce")
        page.get_by_label("Value", exact=True).fill("typed with care")
        page.route("**/*", lambda route: route.abort())
        page.get_by_role("button", name="Store the record").click()
        expect(page.locator("#lost")).to_be_visible()
        expect(page.get_by_label("Value", exact=True)).to_have_value("typed with care")
        page.unroute("**/*")
        page.get_by_role("button", name="Store the record").click()
        expect(page.get_by_role("status").first).to_contain_text("Stored at offset")
