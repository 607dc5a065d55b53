"""`make screenshots`: the pictures of docs/, of an appliance with traffic, in a real browser.
`python -m tests.ui.screenshots NAME…` keeps only those.

Takes about two minutes: the charts want samples. What is shown is real; nothing is drawn over.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

from tests.server.serving import ENVIRONMENT, Serving, serving
from tests.support.small_png import smaller
from tests.ui.conftest import CHROMIUM, FLAGS, ROOT
from tests.ui.pages import PASSWORD
from tests.ui.test_browser import log_in, visiting

IMAGES = ROOT / "docs" / "images"
BYTES_MAX = 120_000
TRAFFIC_S = 90
WIDE, NARROW = {"width": 1200, "height": 800}, {"width": 400, "height": 800}
JSON, NDJSON = "application/json", "application/x-ndjson"
TABLE = {
    "table": "iceberg,delta",
    "table_lag_ms": 10_000,
    "table_columns": "id:string, sku:string, count:long, amount:double=$.price.amount, _rest",
}
# Topic, and how many records a second.
TOPICS = {
    "orders.eu": 12,
    "orders.us": 8,
    "payments.card.settled": 5,
    "payments.refunds": 1,
    "shop.clicks": 60,
    "stock": 3,
}
# Group, its topics, and how much of what is there it reads in each round.
GROUPS = {
    "billing": (("orders.eu", "orders.us", "payments.card.settled"), 1.0),
    "lake": (("orders.eu", "shop.clicks"), 0.7),
    "mail": (("orders.eu",), 0.98),
}


@dataclass
class Traffic:
    """Producers and groups of a small shop, in a thread."""

    seb: Serving
    stopped: threading.Event = field(default_factory=threading.Event)
    numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))

    def run(self) -> None:
        second = 0
        while not self.stopped.wait(1):
            second += 1
            for topic, each_s in TOPICS.items():
                self.produce(topic, max(1, each_s + (second * 7 + len(topic)) % 5 - 2))
            for group, (topics, reads) in GROUPS.items():
                offsets = {topic: int(self.numbers[topic] * reads) for topic in topics}
                self.ask("PUT", f"/v1/groups/{group}/offsets", {"offsets": offsets})
            self.seb.request("GET", "/v1/topics/orders.eu/records?offset=0&max_records=500")

    def produce(self, topic: str, count: int) -> None:
        lines = []
        for _ in range(count):
            number = self.numbers[topic]
            self.numbers[topic] += 1
            value = {"id": f"{topic}-{number}", "sku": f"sku-{number % 7}", "count": number % 5 + 1}
            value |= {"price": {"amount": 1990 + number % 900, "currency": "EUR"}}
            record = {"key": f"sku-{number % 7}", "value": json.dumps(value)}
            record["headers"] = {"kind": "placed", "trace": f"{number:08x}"}
            lines.append(json.dumps(record))
        body = "\n".join(lines).encode() + b"\n"
        assert self.seb.request("POST", f"/v1/topics/{topic}/records", body, NDJSON)[0] == 201

    def ask(self, method: str, path: str, body: object) -> Any:
        status, answer = self.seb.request(method, path, json.dumps(body).encode(), JSON)
        assert status in (200, 201), answer
        return json.loads(answer)


def furnish(seb: Serving) -> None:
    """Users, topics and API keys, before the traffic."""
    admin = (sys.executable, "-m", "seb_appliance", "admin")
    for command in (("set-password",), ("add-user", "olga", "--role", "viewer")):
        subprocess.run(
            [*admin, *command, "--stdin", "--data", str(seb.data)],
            input=PASSWORD,
            text=True,
            check=True,
            env=ENVIRONMENT,
            timeout=60,
        )
    traffic = Traffic(seb)
    for topic in TOPICS:
        settings: dict[str, object] = {"retention_ms": 604_800_000}
        settings = {"key_index": "history"} if topic == "stock" else settings
        settings = settings | TABLE if topic == "orders.eu" else settings
        traffic.ask("PUT", f"/v1/topics/{topic}", settings)
    for name, operation, topics in (
        ("shop", "produce", "orders.*"),
        ("lake", "consume", "**"),
        ("billing", "consume", "payments.**"),
    ):
        grants = [{"operation": operation, "topics": topics}]
        traffic.ask("POST", "/v1/api-keys", {"name": name, "grants": grants})
    lease = {"holder": "warehouse-7f4c", "ttl_ms": 300_000}
    traffic.ask("PUT", "/v1/groups/warehouse/offsets", {"offsets": {"stock": 0}})
    traffic.ask("POST", "/v1/groups/warehouse/lease", lease)
    work_on_a_queue(traffic)


def work_on_a_queue(traffic: Traffic) -> None:
    queue = {"topics": ["orders.*"], "dead_letter": "mails.dead", "start": "latest"}
    traffic.ask("PUT", "/v1/queues/mails", queue)
    orders = {"records": [{"value": f"order {number}"} for number in range(12)]}
    traffic.ask("POST", "/v1/topics/orders.eu/records", orders)
    taken = traffic.ask("POST", "/v1/queues/mails/take", {"max": 10, "lease_ms": 600_000})
    names = [one["delivery"] for one in taken["records"]]
    for verb, part, more in (
        ("ack", names[:4], {}),
        ("retry", names[4:6], {"delay_ms": 600_000}),
        ("reject", names[6:8], {"reason": "550 mailbox unavailable"}),
    ):
        traffic.ask("POST", f"/v1/queues/mails/{verb}", {"deliveries": part, **more})


def take(page: Page, path: str, name: str) -> None:
    """One picture: what the window shows of a page."""
    if path:
        page.goto(path)
    if page.locator("[data-charts]").count():
        expect(page.locator(".plot canvas").last).to_be_visible()
    IMAGES.mkdir(exist_ok=True)
    if len(sys.argv) > 1 and name not in sys.argv:
        return
    png = smaller(page.screenshot())
    assert len(png) <= BYTES_MAX, (name, len(png))
    Path(IMAGES, f"{name}.png").write_bytes(png)
    print(f"docs/images/{name}.png  {len(png) / 1000:.0f} kB")


def picture(page: Page) -> None:
    """Pages in the window of a desk."""
    take(page, "/ui/topics/orders.eu", "topic")
    take(page, "/ui/topics/orders.eu/records?start=end", "records")
    take(page, "/ui/topics/stock/key?key=c2t1LTE", "record-key")
    take(page, "/ui/groups/lake", "group")
    take(page, "/ui/queues/mails", "queue")
    page.goto("/ui/tables/orders.eu")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("sku-", exact=False).first).to_be_visible(timeout=60_000)
    take(page, "", "table")
    page.goto("/ui/api-keys/new")
    page.get_by_label("Name", exact=True).fill("dashboards")
    page.get_by_label("Operation 1").select_option("consume")
    page.get_by_label("Topics 1").fill("orders.*")
    page.get_by_role("button", name="Show matches and add rows").click()
    expect(page.get_by_text("2 of 7 topics: orders.eu, orders.us")).to_be_visible()
    take(page, "", "new-api-key")


def check_the_bucket(page: Page) -> None:
    page.goto("/ui/storage")
    for kind, said in (("doctor", "Fit to run."), ("fsck", "Clean: nothing is wrong.")):
        page.get_by_role("button", name=f"Run {kind}").click()
        expect(page.get_by_text(said)).to_be_visible(timeout=60_000)
    page.get_by_role("heading", name="Doctor and fsck").scroll_into_view_if_needed()
    page.evaluate("document.getElementById('checks').scrollIntoView()")
    take(page, "", "storage")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as seb:
        furnish(seb)
        traffic = Traffic(seb)
        thread = threading.Thread(target=traffic.run)
        thread.start()
        try:
            time.sleep(TRAFFIC_S)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                for theme in ("light", "dark"):
                    with visiting(browser, seb, color_scheme=theme, viewport=WIDE) as page:
                        log_in(page)
                        take(page, "/ui?span=1h", f"overview-{theme}")
                        if theme == "light":
                            take(page, "/ui/topics", "topics")
                            picture(page)
                        else:
                            check_the_bucket(page)
                with visiting(browser, seb, color_scheme="dark", viewport=NARROW) as page:
                    log_in(page)
                    take(page, "/ui/topics", "topics-narrow")
                browser.close()
        finally:
            traffic.stopped.set()
            thread.join()


if __name__ == "__main__":
    main()
