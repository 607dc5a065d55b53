"""Topics, records and record keys in a real browser, from the first topic to the last."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser, expect

from tests.server.serving import Serving
from tests.ui.conftest import SCREENSHOTS
from tests.ui.test_browser import check, log_in, visiting
from tests.ui.test_browser import seb as _seb  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=document.title='hacked'>"
PAGES = {
    "topics": "/ui/topics",
    "topic": "/ui/topics/stock",
    "topic-settings": "/ui/topics/stock/settings?linger_ms=1s&retention_ms=7d&key_index=history",
    "topic-trim": "/ui/topics/stock/trim?before=12",
    "records": "/ui/topics/stock/records?start=end",
    "records-before-go": "/ui/topics/stock/records",
    "record": "/ui/topics/stock/records/3",
    "live": "/ui/topics/stock/live",
    "produce": "/ui/topics/stock/produce",
    "send": "/ui/topics/stock/send?offset=1&offset=2&to=stock",
    "keys": "/ui/topics/stock/keys",
    "key": "/ui/topics/stock/key?key=c2t1LTE",
}


@pytest.fixture(scope="module")
def seb(_seb: Serving) -> Serving:  # noqa: F811
    _seb.request("PUT", "/v1/topics/stock", b'{"key_index":"history"}', "application/json")
    for number in range(60):
        value = {"sku": f"sku-{number % 7}", "count": number, "by": HOSTILE, "tags": ["a", "b"]}
        record = {
            "key": f"sku-{number % 7}",
            "value": json.dumps(value),
            "headers": {"kind": "count", "who": HOSTILE},
        }
        body = json.dumps(record).encode()
        path = "/v1/topics/stock/records"
        assert _seb.request("POST", path, body, "application/x-ndjson")[0] == 201
    offsets = b'{"offsets":{"stock":20}}'
    assert _seb.request("PUT", "/v1/groups/lake/offsets", offsets, "application/json")[0] == 200
    assert _seb.request("GET", "/v1/topics/stock/keys?fresh=true")[0] == 200
    return _seb


def test_an_operator_makes_fills_reads_and_deletes_a_topic(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.get_by_role("link", name="Topics").click()
        page.get_by_role("link", name="Create a topic").click()
        page.get_by_label("Name", exact=True).fill("made.here")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("status")).to_contain_text("made.here is created")
        page.get_by_role("link", name="Produce").click()
        page.get_by_label("Value", exact=True).fill(f'{{"hello": "{HOSTILE}"}}')
        page.get_by_role("button", name="Store the record").dblclick()
        expect(page.get_by_role("status")).to_contain_text("Stored at offset 0")
        assert b'"log_end_offset":1' in seb.request("GET", "/v1/topics/made.here")[1]
        page.get_by_role("link", name="Show in list").click()
        page.get_by_role("checkbox", name="Choose record 0").check()
        page.get_by_role("button", name="Send selected records").click()
        page.get_by_label("To the topic").fill("stock")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("button", name="Send 1 record to stock").click()
        expect(page.get_by_role("status")).to_contain_text("copied to stock")
        expect(page.locator("tbody tr")).to_have_count(1)
        assert page.title() == "Records of stock · Seb Appliance"
        page.goto("/ui/topics/made.here")
        page.get_by_label("Name of the topic").fill("made")
        page.get_by_role("button", name="Delete the topic").click()
        expect(page.get_by_role("alert")).to_contain_text("Nothing was deleted")
        page.get_by_label("Name of the topic").fill("made.here")
        page.get_by_role("button", name="Delete the topic").click()
        expect(page.get_by_role("status")).to_contain_text("made.here is deleted")


def test_a_change_of_settings_tells_its_effect_while_it_is_typed(
    chromium: Browser, seb: Serving
) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/topics/stock")
        effects = page.locator("#setting-effects")
        page.get_by_label("Keep for").fill("1d")
        expect(effects).to_contain_text("Keep for: unlimited → 1d. Records beyond it are deleted")
        page.get_by_label("Keep for").fill("1 day")
        expect(effects.locator(".problem")).to_be_visible()
        expect(page.get_by_label("Keep for")).to_be_focused()
        page.get_by_text("More settings").click()
        page.get_by_label("Keep for").fill("")
        page.get_by_label("Early flush").select_option("on")
        expect(effects).to_contain_text("more PUTs")


def test_records_are_followed_paused_and_gone_on_with(chromium: Browser, seb: Serving) -> None:
    path = "/v1/topics/stock/records"
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/topics/stock/live")
        expect(page.get_by_text("Following.")).to_be_visible()
        seb.request("POST", path, HOSTILE.encode())
        rows = page.locator("#live tbody tr")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text(HOSTILE)
        page.get_by_role("button", name="Pause").click()
        seb.request("POST", path, b"while paused")
        expect(page.get_by_text("Paused; waiting rows: 1.")).to_be_visible()
        expect(rows).to_have_count(1)
        page.get_by_role("button", name="Go on").click()
        expect(rows.first).to_contain_text("while paused")
        for burst in range(12):
            lines = b"".join(b'{"value":"%d-%d"}\n' % (burst, number) for number in range(60))
            seb.request("POST", path, lines, "application/x-ndjson")
            expect(rows.first).to_contain_text(f"{burst}-59")
        assert rows.count() == 500
        expect(page.locator("#live")).to_contain_text("10 records skipped")
        assert page.title() == "stock, live · Seb Appliance"


def test_records_are_read_searched_and_chosen_by_the_keyboard(
    chromium: Browser, seb: Serving
) -> None:
    with visiting(chromium, seb) as page:
        page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        log_in(page)
        page.goto("/ui/topics/stock/records?start=earliest")
        lines = page.locator(".record summary")
        page.keyboard.press("j")
        expect(lines.first).to_be_focused()
        page.keyboard.press("j")
        page.keyboard.press("ArrowDown")
        expect(lines.nth(2)).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr").nth(2).locator("pre")).to_be_visible()
        assert page.evaluate("CSS.highlights.get('json-key').size") > 0
        page.get_by_label("JSON value").fill("$.count > 6")
        page.get_by_label("Contains text").fill("count")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Add the column count").click()
        expect(page.locator("td.cell").first).to_have_text("7")
        expect(page.locator(".record summary mark").first).to_have_text("count")
        page.get_by_label("Choose all records of this page").check()
        shown = page.locator("tbody tr").count()
        assert page.locator("input[name=offset][type=checkbox]:checked").count() == shown
        page.locator("tbody th a").first.click()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("heading", name="Record 8")).to_be_visible()
        page.keyboard.press("k")
        expect(page.get_by_role("heading", name="Record 7")).to_be_visible()
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        value = page.locator("#value pre").text_content()
        page.get_by_role("link", name="Use as template").click()
        expect(page.get_by_label("Record key (")).not_to_have_value("")
        page.get_by_label("Value", exact=True).select_text()
        page.keyboard.press("Control+v")  # what was copied without the clipboard's interface
        expect(page.get_by_label("Value", exact=True)).to_have_value(value or "")


def test_times_are_picked_in_the_time_of_the_browser_and_asked_in_utc(
    chromium: Browser, seb: Serving
) -> None:
    path = "/ui/topics/stock/records?start=end"
    with visiting(chromium, seb, timezone_id="Asia/Kolkata") as page:
        log_in(page)
        page.goto(f"{path}&from=2026-01-02T20:00:00")
        begin = page.get_by_label("From (", exact=False)
        expect(begin).to_have_value("2026-01-03T01:30")
        expect(page.get_by_text("UTC 2026-01-02 20:00:00")).to_be_visible()
        begin.fill("2026-01-03T00:30:15")
        expect(page.get_by_text("UTC 2026-01-02 19:00:15")).to_be_visible()
        page.get_by_role("button", name="Search").click()
        page.wait_for_url("**from=2026-01-02T19%3A00%3A15&to=&**")
        page.get_by_role("button", name="24 h").click()
        expect(begin).not_to_have_value("")
        expect(page.locator("tbody tr")).to_have_count(25)
        page.get_by_label("Record key", exact=True).fill("sku-2")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("tbody .key").first).to_have_text("sku-2")
        page.get_by_role("link", name="Follow live").click()
        expect(page.get_by_label("Record key", exact=True)).to_have_value("sku-2")
        page.get_by_role("button", name="Search stored records").click()
        page.locator(".record summary").first.click()
        page.get_by_role("link", name="History of the key").first.click()
        expect(page.get_by_role("heading", name="sku-2")).to_be_visible()


def test_a_page_is_found_by_the_keyboard(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.keyboard.press("Control+k")
        page.keyboard.type("STOC")
        expect(page.locator("#palette a")).to_have_text(["stock topic"])
        page.keyboard.press("ArrowDown")
        expect(page.locator("#palette a").first).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="stock")).to_be_visible()
        page.get_by_role("link", name="Find").click()
        page.keyboard.type("create a topic")
        expect(page.locator("#palette a")).to_have_count(1)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Create")).to_be_visible()


def test_all_of_it_works_without_javascript(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb, java_script_enabled=False) as page:
        log_in(page)
        page.goto("/ui/topics")
        page.get_by_label("Name or pattern").fill("stock")
        page.get_by_role("button", name="Filter").click()
        page.locator("tbody").get_by_role("link", name="stock").click()
        page.get_by_label("Linger").fill("1s")
        page.get_by_role("button", name="Preview changes").click()
        expect(page.locator("main")).to_contain_text("fewer PUTs")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_contain_text("saved")
        page.get_by_role("link", name="Records").click()
        page.get_by_text("Order, columns, format").click()
        page.get_by_label("Order").select_option("earliest")
        page.get_by_label("Contains text").fill('"count": 7,')
        page.get_by_role("button", name="Search").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        page.goto("/ui/topics/stock/records?start=earliest")
        page.get_by_role("link", name="Later").click()
        expect(page.locator("tbody tr")).to_have_count(25)
        page.locator("summary", has_text='"count"').first.click()
        expect(page.locator("tbody pre").first).to_be_visible()
        page.get_by_role("link", name="Record keys").click()
        page.get_by_label("Starts with").fill("sku-3")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("link", name="sku-3").click()
        expect(page.locator(".lines ins").first).to_contain_text('"count"')


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_fit_for_every_eye(
    chromium: Browser, seb: Serving, axe: str, theme: str, width: int
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    viewport = {"width": width, "height": 900}
    with visiting(chromium, seb, color_scheme=theme, viewport=viewport) as page:
        log_in(page)
        for name, path in PAGES.items():
            page.goto(path)
            check(page, axe, f"{name}-{theme}-{width}")
            assert page.locator("main img").count() == 0
