"""Groups, API keys and what else an operator runs, in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.server.serving import ENVIRONMENT, Serving, serving
from tests.ui.conftest import SCREENSHOTS
from tests.ui.pages import PASSWORD
from tests.ui.test_browser import check, log_in, visiting

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=document.title='hacked'>"


@pytest.fixture(scope="module")
def seb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("seb")) as running:
        set_password = ("admin", "set-password", "--stdin", "--data", str(running.data))
        subprocess.run(
            [sys.executable, "-m", "seb_appliance", *set_password],
            input=PASSWORD,
            text=True,
            check=True,
            env=ENVIRONMENT,
            timeout=60,
        )
        for topic in ("orders.eu", "orders.us", "payments.card.settled"):
            for number in range(3):
                running.request("POST", f"/v1/topics/{topic}/records", f"{number}".encode())
        commit(running, "billing", {"orders.eu": 1, "orders.us": 3, "payments.card.settled": 0})
        commit(running, "reports.daily", {"orders.eu": 3})
        lease = json.dumps({"holder": HOSTILE, "ttl_ms": 60_000}).encode()
        running.request("POST", "/v1/groups/billing/lease", lease, "application/json")
        yield running


def commit(seb: Serving, group: str, offsets: dict[str, int]) -> None:
    body = json.dumps({"offsets": offsets, "metadata": dict.fromkeys(offsets, HOSTILE)}).encode()
    assert seb.request("PUT", f"/v1/groups/{group}/offsets", body, "application/json")[0] == 200


@pytest.mark.parametrize("javascript", [True, False])
def test_a_group_is_reset_with_a_look_before_and_deleted_by_its_name(
    chromium: Browser, seb: Serving, javascript: bool
) -> None:
    commit(seb, "trial", {"orders.eu": 2})
    with visiting(chromium, seb, java_script_enabled=javascript) as page:
        log_in(page)
        page.get_by_role("link", name="Groups").click()
        page.get_by_label("Name contains").fill("tria")
        page.get_by_role("button", name="Filter").click()
        page.get_by_role("link", name="trial").click()
        page.get_by_role("link", name="Reset trial").click()
        page.get_by_label("Reset to").select_option("earliest")
        page.get_by_role("button", name="Preview changes").click()
        expect(page.get_by_role("row", name="orders.eu")).to_contain_text("reads 2 again")
        page.get_by_role("button", name="Reset the group").click()
        expect(page.locator(".notice")).to_have_text("trial was reset on 1 topic.")
        page.get_by_label("The name of the group").fill("trail")
        page.get_by_role("button", name="Delete the group").click()
        expect(page.get_by_role("alert")).to_contain_text("nothing was deleted")
        page.get_by_label("The name of the group").fill("trial")
        page.get_by_role("button", name="Delete the group").click()
        expect(page.locator(".notice")).to_have_text("The group trial is deleted.")


def test_a_user_is_added_and_removed(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb, java_script_enabled=False) as page:
        log_in(page)
        page.get_by_role("link", name="Users").click()
        page.get_by_label("Name", exact=True).fill("olga")
        page.get_by_role("combobox", name="Role").select_option("viewer")
        page.get_by_role("textbox", name="Password").fill(PASSWORD)
        page.get_by_role("button", name="Add the user").click()
        expect(page.locator(".notice")).to_have_text("olga can log in, as viewer.")
        page.get_by_role("link", name="olga").click()
        page.get_by_role("button", name="Log olga out everywhere").click()
        expect(page.locator(".notice")).to_have_text("olga is logged out everywhere.")
        page.get_by_label("The name of the user").fill("olga")
        page.get_by_role("button", name="Remove the user").click()
        expect(page.locator(".notice")).to_contain_text("olga is removed")


def test_an_api_key_is_made_used_and_revoked(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb, permissions=["clipboard-read", "clipboard-write"]) as page:
        log_in(page)
        page.goto("/ui/api-keys/new")
        page.get_by_label("Name", exact=True).fill("lake")
        page.get_by_label("Operation 1").select_option("consume")
        page.get_by_label("Topics 1").fill("orders.*")
        page.evaluate("window.stayed = true")
        page.get_by_role("button", name="Show matches and add rows").click()
        expect(page.get_by_text("2 of 3 topics: orders.eu, orders.us")).to_be_visible()
        assert page.evaluate("window.stayed")
        page.get_by_role("button", name="Create the API key").dblclick()
        secret = page.locator("#secret").inner_text()
        assert secret not in page.url
        page.get_by_role("button", name="Copy", exact=True).click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == secret
        page.get_by_role("link", name="Done").click()
        expect(page.get_by_role("heading", name="lake")).to_be_visible()
        assert seb.request("GET", "/v1/api-keys")[1].count(b'"lake"') == 1
        assert secret not in page.content()
        page.get_by_label("The id of the API key").fill(secret.split("_")[1])
        page.get_by_role("button", name="Revoke the API key").click()
        expect(page.locator(".notice")).to_contain_text("is revoked")


def test_doctor_and_fsck_run_and_their_results_stay(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/storage")
        for kind, said in (("doctor", "Fit to run."), ("fsck", "Clean: nothing is wrong.")):
            page.get_by_role("button", name=f"Run {kind}").click()
            expect(page.get_by_text(said)).to_be_visible(timeout=60_000)
        page.reload()
        expect(page.get_by_text("Fit to run.")).to_be_visible()
        expect(page.get_by_text("Clean: nothing is wrong.")).to_be_visible()


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_of_one_thing_is_fit_for_every_eye(
    chromium: Browser, seb: Serving, axe: str, theme: str, width: int
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    keys = json.loads(seb.request("GET", "/v1/api-keys")[1])["api_keys"]
    pages = {
        "group": "/ui/groups/billing",
        "group-reset": "/ui/groups/billing/reset?how=shift&value=-1",
        "api-key": f"/ui/api-keys/{keys[0]['api_key_id']}",
    }
    viewport = {"width": width, "height": 900}
    with visiting(chromium, seb, color_scheme=theme, viewport=viewport) as page:
        log_in(page)
        for name, path in pages.items():
            page.goto(path)
            check(page, axe, f"{name}-{theme}-{width}")
            assert page.locator("main img").count() == 0
        page.goto("/ui/storage")
        check(page, axe, f"storage-filled-{theme}-{width}")
        page.goto("/ui/users/admin")
        check(page, axe, f"user-{theme}-{width}")
        page.goto("/ui/groups")
        check(page, axe, f"groups-filled-{theme}-{width}")
        page.goto("/ui/api-keys")
        check(page, axe, f"api-keys-filled-{theme}-{width}")


@pytest.mark.parametrize("javascript", [True, False])
def test_an_inlet_is_created_used_rotated_and_deleted(
    chromium: Browser, seb: Serving, javascript: bool
) -> None:
    name = f"shop-{javascript}".lower()
    with visiting(chromium, seb, java_script_enabled=javascript) as page:
        log_in(page)
        page.get_by_role("link", name="Inlets").click()
        page.get_by_role("link", name="Create an inlet").click()
        page.get_by_label("Name, the end of the URL").fill(name)
        page.get_by_label("Topic", exact=True).fill("webhooks.shop")
        page.get_by_label("How the sender proves itself").select_option("path")
        page.get_by_label("A record is").select_option("lines")
        page.get_by_role("button", name="Create the inlet").click()
        url = page.locator("#url").inner_text()
        assert seb.request("POST", urlsplit(url).path, b"a\nb\n")[0] == 200
        page.goto(f"/ui/inlets/{name}")
        row = page.get_by_role("region", name="Last deliveries").get_by_role("row").nth(1)
        expect(row).to_contain_text("200 accepted")
        page.get_by_label("New secret").fill("a-secret-that-we-chose")
        page.get_by_role("button", name="Rotate the secret").click()
        page.get_by_role("button", name="End the previous secret").click()
        expect(page.locator(".notice")).to_have_text("The changes are saved.")
        expect(page.get_by_role("button", name="End the previous secret")).to_have_count(0)
        assert seb.request("POST", urlsplit(url).path, b"c\n")[0] == 401
        if javascript:  # the deliveries come by themselves
            expect(row).to_contain_text("the secret is missing or wrong")
        page.get_by_label("Type the name of the inlet").fill(name)
        page.get_by_role("button", name="Delete the inlet").click()
        expect(page.locator(".notice")).to_have_text(f"{name} is deleted. Its topic stays.")


def with_table(seb: Serving) -> None:
    settings = json.dumps({"table": "iceberg", "table_columns": "city:string, degrees:double"})
    seb.request("PUT", "/v1/topics/weather", settings.encode(), "application/json")
    listed = seb.request("GET", "/v1/tables")[1]
    if not any(one["rows"] for one in json.loads(listed)["tables"]):
        value = json.dumps({"city": HOSTILE, "degrees": 21.5}).encode()
        seb.request("POST", "/v1/topics/weather/records", value)
    while not any(one["rows"] for one in json.loads(listed)["tables"]):  # each look is a request
        listed = seb.request("GET", "/v1/tables")[1]


@pytest.mark.parametrize("javascript", [True, False])
def test_a_table_is_read_with_sql(
    chromium: Browser, seb: Serving, axe: str, javascript: bool
) -> None:
    with_table(seb)
    with visiting(chromium, seb, java_script_enabled=javascript, bypass_csp=javascript) as page:
        log_in(page)
        page.goto("/ui/tables/weather")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("status")).to_contain_text("1 row in")
        rows = page.get_by_role("region", name="Rows")
        expect(rows).to_contain_text(HOSTILE)
        page.set_viewport_size({"width": 400, "height": 900})
        if javascript:
            check(page, axe, "sql")
        page.get_by_label("A statement that reads tables").fill("SELECT nothing FROM weather")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("alert")).to_contain_text('column "nothing" not found')
        page.get_by_label("A statement that reads tables").fill("SELECT degrees FROM weather")
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as CSV").click()
        assert saved.value.path().read_bytes() == b"degrees\r\n21.5\r\n"
