"""A web page of another host follows topics, in a real browser: tickets, CORS, EventSource."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.server.serving import serving

pytestmark = pytest.mark.slow

PAGE = b"""<!doctype html><title>Another host</title><ul></ul><script>
async function follow(url, key, cursor) {
  const asked = {method: "POST", body: '{"topics":"orders.*"}',
                 headers: {Authorization: "Bearer " + key, "Content-Type": "application/json"}};
  const {ticket} = await (await fetch(url + "/v1/tickets", asked)).json();
  const place = cursor ? "&cursor=" + cursor : "";
  const events = new EventSource(`${url}/v1/records?topics=orders.*&ticket=${ticket}${place}`);
  events.onmessage = event => {
    const record = JSON.parse(event.data), line = document.createElement("li");
    line.textContent = `${record.topic} ${record.value}`;
    document.querySelector("ul").append(line);
    window.last = event.lastEventId;
  };
  window.events = events;
}
async function next_offset(url, key) {
  const headers = {Authorization: "Bearer " + key, "Seb-Timeout": "1s"};
  const answer = await fetch(url + "/v1/topics/orders.eu/records", {headers});
  return answer.headers.get("Seb-Next-Offset");
}
</script>"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The origin of the page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_page_of_a_listed_host_follows_topics_and_goes_on_where_it_was(
    chromium: Browser, elsewhere: str, tmp_path: Path
) -> None:
    with serving(tmp_path, "--cors-origins", elsewhere) as seb:
        seb.request("PUT", "/v1/topics/orders.eu")
        seb.request("POST", "/v1/topics/orders.eu/records", b"one")
        url, key = f"http://127.0.0.1:{seb.port}", (seb.data / "admin.key").read_text().strip()
        page = chromium.new_context().new_page()
        page.goto(elsewhere)
        assert page.evaluate("([url, key]) => next_offset(url, key)", [url, key]) == "1"
        page.evaluate("([url, key]) => follow(url, key)", [url, key])
        expect(page.get_by_role("listitem")).to_have_text(["orders.eu one"])
        seb.request("PUT", "/v1/topics/orders.us")
        seb.request("POST", "/v1/topics/orders.us/records", b"two")
        expect(page.get_by_role("listitem")).to_have_text(["orders.eu one", "orders.us two"])
        last = page.evaluate("events.close() || last")
        seb.request("POST", "/v1/topics/orders.eu/records", b"three")
        page.evaluate("([url, key, last]) => follow(url, key, last)", [url, key, last])
        expect(page.get_by_role("listitem").last).to_have_text("orders.eu three")
        expect(page.get_by_role("listitem")).to_have_count(3)
        page.goto(elsewhere.replace("localhost", "127.0.0.1"))  # an origin that is not listed
        failed = "([url, key]) => follow(url, key).then(() => 'read', error => error.message)"
        assert page.evaluate(failed, [url, key]) == "Failed to fetch"
        page.context.close()
