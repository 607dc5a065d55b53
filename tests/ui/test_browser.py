"""The admin page in a real browser. Screenshots are left in .state/screenshots/."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.serving import ENVIRONMENT, Serving, serving
from tests.support import kafka_member
from tests.support.servers.s3_server import free_port
from tests.ui.conftest import SCREENSHOTS
from tests.ui.pages import PASSWORD

pytestmark = pytest.mark.slow
PAGES = {"overview": "/ui", "settings": "/ui/settings", "audit": "/ui/audit"}
PAGES |= {"groups": "/ui/groups", "api-keys": "/ui/api-keys", "new-key": "/ui/api-keys/new"}
PAGES |= {"inlets": "/ui/inlets", "new-inlet": "/ui/new-inlet", "inlet": "/ui/inlets/github"}
PAGES |= {"subscriptions": "/ui/subscriptions", "new-subscription": "/ui/new-subscription"}
PAGES |= {"subscription": "/ui/subscriptions/mails"}
PAGES |= {"queues": "/ui/queues", "new-queue": "/ui/new-queue", "queue": "/ui/queues/mails"}
PAGES |= {"connections": "/ui/connections", "group": "/ui/groups/billing"}
PAGES |= {"definitions": "/ui/definitions"}
PAGES |= {"storage": "/ui/storage", "users": "/ui/users", "user": "/ui/users/olga"}
HOSTILE = "<img src=x onerror=document.title='hacked'>"


async def join_billing(port: int, password: str) -> None:
    """A group with a member that stays."""
    async with kafka_member.connected(port, password, HOSTILE) as member:
        assigned = {f"orders.region-{number}": [0] for number in range(3)}
        await member.join("billing", list(assigned), assigned, instance_id="one")


def set_password(seb: Serving, *command: str) -> None:
    """Of the user admin, or as another `command` of `seb admin` does it."""
    asked = command or ("set-password",)
    subprocess.run(
        (sys.executable, "-m", "seb_appliance", "admin", *asked, "--stdin", "--data", seb.data),
        input=PASSWORD,
        text=True,
        check=True,
        env=ENVIRONMENT,
        timeout=60,
    )


@pytest.fixture(scope="module")
def seb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    kafka_port = free_port()
    with serving(tmp_path_factory.mktemp("seb"), "--kafka-port", str(kafka_port)) as running:
        set_password(running)
        set_password(running, "add-user", "olga", "--role", "viewer")
        for number in range(60):
            running.request("PUT", f"/v1/topics/orders.region-{number}")
        running.request("POST", "/v1/topics/orders.eu/records", b"hello")
        key = f'{{"name": "{HOSTILE}", "grants": [{{"operation": "admin"}}]}}'.encode()
        assert running.request("POST", "/v1/api-keys", key, "application/json")[0] == 201
        inlet = b'{"topic": "hooks", "verify": {"scheme": "github"}, "secrets": ["new", "old"]}'
        assert running.request("PUT", "/v1/inlets/github", inlet, "application/json")[0] == 201
        assert running.request("POST", "/v1/inlets/github", b"{}", "application/json")[0] == 401
        pushed = b'{"topics": ["orders.eu"], "url": "http://127.0.0.1:9/hook"}'
        made = running.request("PUT", "/v1/subscriptions/mails", pushed, "application/json")
        assert made[0] == 201
        assert running.request("POST", "/v1/subscriptions/mails/test")[0] == 200
        password = (running.data / "admin.key").read_text().strip()
        with ThreadPoolExecutor(1) as aside:  # Playwright has an event loop in this thread
            aside.submit(lambda: asyncio.run(join_billing(kafka_port, password))).result()
        yield running


@contextmanager
def visiting(
    browser: Browser, seb: Serving, ignored: str = "status of (401|422) ", **options: object
) -> Iterator[Page]:
    """A page of ours that asks no other host for anything and complains of nothing else than what
    the expression `ignored` finds."""
    base_url = f"http://127.0.0.1:{seb.port}"
    context = browser.new_context(base_url=base_url, **options)  # type: ignore[arg-type]
    page = context.new_page()
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    try:
        yield page
    finally:
        context.close()
    assert {urlsplit(url).netloc for url in asked} == {f"127.0.0.1:{seb.port}"}
    # A log-in, or a form, that is not taken is no fault of the page.
    assert [one for one in complaints if not re.search(ignored, one)] == []


def log_in(page: Page, name: str = "admin", password: str = PASSWORD) -> None:
    page.goto("/ui/login")
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(password)
    page.keyboard.press("Enter")
    if password == PASSWORD:
        expect(page.locator("header")).to_be_visible()


def test_a_person_logs_in_looks_around_and_leaves_by_the_keyboard(
    chromium: Browser, seb: Serving
) -> None:
    with visiting(chromium, seb) as page:
        log_in(page, password="not the password")
        expect(page.get_by_role("alert")).to_contain_text("Wrong user name or password")
        expect(page.get_by_label("User")).to_have_value("admin")
        log_in(page)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.get_by_role("link", name="Audit").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Audit")).to_be_visible()
        page.locator("summary", has_text="admin").focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Log out", exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Log in")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_a_phone_can_put_the_page_on_its_home_screen(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb) as page:
        page.goto("/ui/login")
        asked = page.context.new_cdp_session(page)
        manifest = asked.send("Page.getAppManifest")
        assert manifest["url"].endswith(".webmanifest")
        assert manifest["errors"] == []
        icon = page.evaluate(
            """async (path) => {
                const image = new Image();
                image.src = path;
                await image.decode();
                return [image.naturalWidth, image.naturalHeight];
            }""",
            json.loads(manifest["data"])["icons"][0]["src"],
        )
        assert icon == [512, 512]
        found = asked.send("Page.getInstallabilityErrors")["installabilityErrors"]
        assert [one["errorId"] for one in found] == ["in-incognito"]  # as contexts of tests are


def test_the_audit_pages_in_place_and_by_its_address(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/audit")
        page.evaluate("window.stayed = true")
        page.get_by_role("link", name="Older").click()
        expect(page.get_by_role("link", name="Newest")).to_be_visible()
        assert "before=" in page.url
        assert page.evaluate("window.stayed")
        page.reload()
        expect(page.get_by_role("link", name="Newest")).to_be_visible()
        assert not page.evaluate("window.stayed")


def test_the_overview_changes_in_place(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.evaluate("window.stayed = true")
        page.get_by_role("link", name="24h").click()
        expect(page.get_by_role("link", name="24h")).to_have_attribute("aria-current", "true")
        topics = page.locator("dl > div").filter(has_text="Topics")
        before = topics.inner_text()
        seb.request("POST", "/v1/topics/orders.new/records", b"hello")
        page.get_by_role("link", name="1h").click()
        expect(topics).not_to_have_text(before)
        assert page.evaluate("window.stayed")


def test_all_of_it_works_without_javascript(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb, java_script_enabled=False) as page:
        log_in(page, "olga")
        expect(page.locator("header")).to_contain_text("read-only")
        page.get_by_role("link", name="Audit").click()
        page.locator("select[name=action]").select_option("user_added")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator("tbody tr")).to_have_count(2)
        page.get_by_role("link", name="All").click()
        page.get_by_role("link", name="Older").click()
        expect(page.get_by_role("link", name="Newest")).to_be_visible()


def test_what_somebody_named_does_not_run(chromium: Browser, seb: Serving) -> None:
    with visiting(chromium, seb) as page:
        log_in(page)
        page.goto("/ui/audit?action=api_key_created")
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        assert page.title() == "Audit · Seb Appliance"
        assert page.locator("main img").count() == 0


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_fit_for_every_eye(
    chromium: Browser, seb: Serving, axe: str, theme: str, width: int
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    viewport = {"width": width, "height": 900}
    with visiting(chromium, seb, color_scheme=theme, viewport=viewport) as page:
        page.goto("/ui/login")
        check(page, axe, f"log-in-{theme}-{width}")
        log_in(page)
        for name, path in PAGES.items():
            page.goto(path)
            check(page, axe, f"{name}-{theme}-{width}")


def check(page: Page, axe: str, name: str) -> None:
    page.screenshot(path=Path(SCREENSHOTS, f"{name}.png"), full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
    page.evaluate(axe)
    found = page.evaluate("axe.run().then((result) => result.violations)")
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
