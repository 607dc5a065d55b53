"""An S3 store that sends a byte now and then holds up neither a request nor a stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from seb_appliance.errors import StoreUncertainError
from seb_appliance.storage.stores.s3 import S3Store
from seb_appliance.storage.stores.s3_options import S3Options

TRICKLES: dict[str, tuple[bytes, bytes, Callable[[S3Store], Awaitable[object]]]] = {
    "a listing before its head": (b"", b"H", lambda store: store.list_after("claims/")),
    "an object before its head": (b"", b"H", lambda store: store.get("a")),
    "an object": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x", lambda store: store.get("a"),
    ),
    "a range": (
        b"HTTP/1.1 206 OK\r\nContent-Length: 9\r\nContent-Range: bytes 0-8/9\r\n\r\n", b"",
        lambda store: store.get_range("a", 0, 9),
    ),
}  # fmt: skip


@contextlib.asynccontextmanager
async def trickling(head: bytes, piece: bytes) -> AsyncIterator[tuple[S3Store, asyncio.Event]]:
    """A store, and whether its server has got a request. Each byte of an answer comes before the
    time-out of the socket. Ends when the store has hung up."""
    received, hung_up = asyncio.Event(), asyncio.Event()

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        received.set()
        writer.write(head)
        end = asyncio.ensure_future(reader.read())
        while not (await asyncio.wait({end}, timeout=0.01))[0]:
            writer.write(piece)
        writer.close()
        hung_up.set()

    async with await asyncio.start_server(trickle, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        options = S3Options("bucket", "", url, "us-east-1", "id", "secret", 1, 1)
        yield S3Store(options), received
        async with asyncio.timeout(60):
            await hung_up.wait()


@pytest.mark.parametrize(("head", "piece", "ask"), TRICKLES.values(), ids=TRICKLES)
async def test_an_answer_that_trickles_is_given_up_and_its_thread_is_free(
    head: bytes, piece: bytes, ask: Callable[[S3Store], Awaitable[object]]
) -> None:
    async with trickling(head, piece) as (store, _):
        with pytest.raises(StoreUncertainError):
            await ask(store)
    await store.close()


async def test_an_answer_that_trickles_holds_up_no_stop() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
    async with trickling(head, b"x") as (store, received):
        asked = asyncio.create_task(store.get("a"))
        await received.wait()
        asked.cancel()
        async with asyncio.timeout(60):
            await store.close()
