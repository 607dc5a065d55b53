"""What the suite does not ask: a kill, and a lost data directory, in the middle of streams."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.process import Bucket, SebProcess, seb_process

pytestmark = pytest.mark.slow
_FLAGS = ("--linger", "5ms", "--durable-streams-open", "--take-over")


def client(seb: SebProcess) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{seb.port}/v1/stream", timeout=20)


@asynccontextmanager
async def started(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    bucket = Bucket.directory(tmp_path / "b")
    async with seb_process(bucket, tmp_path / "d", *_FLAGS) as seb, client(seb) as streams:
        yield streams


PRODUCER = {"content-type": "application/json", "producer-id": "p", "producer-epoch": "3"}
TEXT = {"content-type": "text/plain"}


async def before(streams: httpx2.AsyncClient) -> dict[str, str]:
    """Streams of every kind; what each read gives, by path."""
    await streams.put("/json", headers={"content-type": "application/json"}, content=b"[1,[2]]")
    first = {**PRODUCER, "producer-seq": "0", "stream-seq": "b"}
    assert (await streams.post("/json", headers=first, content=b'{"a":1}')).status_code == 200
    await streams.put("/bytes/one", headers={**TEXT, "stream-ttl": "3600"}, content=b"hello ")
    await streams.post("/bytes/one", headers=TEXT, content=b"world")
    forked = {"stream-forked-from": "/v1/stream/bytes/one", "stream-fork-sub-offset": "3"}
    at = {"stream-fork-offset": "0000000000000001_0000000000000000"}
    assert (await streams.put("/fork", headers={**forked, **at})).status_code == 201
    await streams.put("/closed", headers=TEXT)
    last = {**TEXT, "stream-closed": "true", "producer-id": "q", "producer-epoch": "0"}
    await streams.post("/closed", headers={**last, "producer-seq": "0"}, content=b"the end")
    await streams.put("/held", headers=TEXT, content=b"kept")
    await streams.put("/holder", headers={"stream-forked-from": "/v1/stream/held"})
    assert (await streams.delete("/held")).status_code == 204
    return {path: (await streams.get(path)).text for path in ("/json", "/bytes/one", "/fork")}


async def after(streams: httpx2.AsyncClient, given: dict[str, str]) -> None:
    """All of it is as it was, and goes on where it was."""
    assert given == {"/json": '[1,[2],{"a":1}]', "/bytes/one": "hello world", "/fork": "hello wor"}
    assert {path: (await streams.get(path)).text for path in given} == given
    again = await streams.post(
        "/json", headers={**PRODUCER, "producer-seq": "0", "stream-seq": "b"}, content=b'{"a":1}'
    )
    assert (again.status_code, again.headers["producer-seq"]) == (204, "0")
    zombie = {**PRODUCER, "producer-epoch": "2", "producer-seq": "0"}
    assert (await streams.post("/json", headers=zombie, content=b"1")).status_code == 403
    late = {"content-type": "application/json", "stream-seq": "a"}
    assert (await streams.post("/json", headers=late, content=b"1")).status_code == 409
    head = await streams.head("/bytes/one")
    assert (head.headers["content-type"], head.headers["stream-ttl"]) == ("text/plain", "3600")
    closed = await streams.get("/closed")
    assert (closed.text, closed.headers["stream-closed"]) == ("the end", "true")
    end = {**TEXT, "stream-closed": "true", "producer-id": "q", "producer-epoch": "0"}
    repeated = await streams.post("/closed", headers={**end, "producer-seq": "0"}, content=b"x")
    assert repeated.status_code == 204
    assert (await streams.post("/closed", headers=TEXT, content=b"x")).status_code == 409
    assert (await streams.get("/held")).status_code == 410
    assert (await streams.get("/holder")).text == "kept"
    assert (await streams.put("/held", headers=TEXT)).status_code == 409


async def test_streams_outlive_a_kill_and_a_lost_data_directory(tmp_path: Path):
    async with started(tmp_path) as streams:
        given = await before(streams)
    async with started(tmp_path) as streams:  # it was killed: local state is behind
        await after(streams, given)
    shutil.rmtree(tmp_path / "d")
    async with started(tmp_path) as streams:  # the bucket alone
        await after(streams, given)
        same = await streams.put(
            "/json", headers={"content-type": "application/json; charset=utf-8"}
        )
        assert same.status_code == 200
        assert (await streams.delete("/holder")).status_code == 204
        assert (await streams.get("/held")).status_code == 404
