"""The protocol's clients, as they are published: TypeScript, Python, and in a browser's page."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import durable_streams
import pytest
from playwright.sync_api import Browser, expect

from tests.server.serving import Serving, serving
from tests.streams.node import FOLDER, install_modules, node
from tests.support.process import ROOT, Bucket, seb_process
from tests.ui.conftest import chromium  # noqa: F401 - a fixture

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]
PAGE = ROOT / "examples/live-page/index.html"


async def test_the_typescript_client_writes_and_follows(tmp_path: Path):
    program = node()
    await asyncio.to_thread(install_modules)
    async with seb_process(Bucket.directory(tmp_path / "b"), tmp_path / "d") as seb:
        given = {"SEB_STREAMS_URL": f"http://127.0.0.1:{seb.port}", "SEB_API_KEY": seb.admin_key}
        done = await asyncio.to_thread(
            subprocess.run,
            [program, "client.mjs"],
            cwd=FOLDER,
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stdout == "done\n", done.stderr


async def test_the_python_client_writes_and_follows(tmp_path: Path):
    async with seb_process(Bucket.directory(tmp_path / "b"), tmp_path / "d") as seb:
        await asyncio.to_thread(write_and_follow, seb.port, seb.admin_key)


def write_and_follow(port: int, key: str) -> None:
    url = f"http://127.0.0.1:{port}/v1/stream/clients/python"
    headers = {"Authorization": f"Bearer {key}"}
    with durable_streams.DurableStream.create(
        url, content_type="application/json", headers=headers
    ) as stream:
        for n in range(10):
            stream.append({"n": n})
        with stream.stream(live=False) as response:
            assert response.read_json() == [{"n": n} for n in range(10)]
        end = stream.head().offset
        for live in ("sse", "long-poll"):
            stream.append({"live": live})
            with stream.stream(live=live, offset=end) as response:
                assert next(iter(response.iter_json()))["live"] == "sse"
        assert stream.head().content_type == "application/json"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A web server of its own for the page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def page_url(tmp_path: Path) -> Iterator[str]:
    node()
    client = install_modules() / "@durable-streams/client/dist/index.js"
    shutil.copy(PAGE, tmp_path / "index.html")
    shutil.copy(client, tmp_path / "durable-streams.js")
    with served(tmp_path) as url:
        yield url


def test_a_page_shows_a_topic_live(
    chromium: Browser,  # noqa: F811
    page_url: str,
    tmp_path: Path,
):
    folder = tmp_path / "seb"
    folder.mkdir()
    with serving(folder, "--cors-origins", page_url) as seb:
        put(seb, {"a": "before"})
        page = chromium.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(page_url)
        page.fill("[name=url]", f"http://127.0.0.1:{seb.port}/v1/stream/live/page")
        page.fill("[name=key]", (seb.data / "admin.key").read_text().strip())
        page.click("button")
        expect(page.locator("li")).to_have_text(['{"a":"before"}'])
        seb.request("POST", "/v1/topics/live.page/records", b'{"a": "<b>after</b>"}')
        expect(page.locator("li")).to_have_text(['{"a":"before"}', '{"a":"<b>after</b>"}'])
        assert complaints == []
        page.close()


def put(seb: Serving, value: object) -> None:
    body = json.dumps(value).encode()
    status, *_ = seb.request("PUT", "/v1/stream/live/page", body, "application/json")
    assert status == 201
