"""A whole appliance in this process and on this event loop: real broker, SQLite and uvicorn, over
a bucket in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import pytest

from seb_appliance import setting_sources
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.ops.serve.http_server import HttpServer
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.object_store import ObjectStore


class QuickServer(HttpServer):
    """uvicorn looks for the end every 0.1 s, and pauses as long before it ends. Hundreds of tests
    start an appliance each, so this one waits only for what is still open."""

    def __init__(self, appliance: Appliance, *, fast_lane: bool) -> None:
        super().__init__(appliance, fast_lane=fast_lane)
        self.stopping = asyncio.Event()

    async def main_loop(self) -> None:
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        state = self.server_state
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await asyncio.sleep(0.002)  # what was accepted just now becomes a connection
                while state.connections or state.tasks:
                    for connection in list(state.connections):
                        connection.shutdown()
                    await asyncio.sleep(0.002)
        except TimeoutError:
            for task in state.tasks:
                task.cancel()


@dataclass(frozen=True)
class RunningAppliance:
    """`client` speaks with the admin key; `port` is for raw sockets on 127.0.0.1."""

    appliance: Appliance
    server: HttpServer
    port: int
    admin_key: str
    client: httpx2.AsyncClient

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client_with(self, token: str | None) -> httpx2.AsyncClient:
        """A client with another API key, or none. The caller closes it."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        # It speaks plain HTTP: to read the machine's certificates takes 20 ms each time.
        return httpx2.AsyncClient(base_url=self.base_url, headers=headers, timeout=60, verify=False)


@contextlib.asynccontextmanager
async def running_appliance(
    data: Path,
    *,
    fast_lane: bool = True,
    store: ObjectStore | None = None,
    standby: bool = False,
    **flags: str | bool,
) -> AsyncIterator[RunningAppliance]:
    """`data` is made if it is missing. `store`: used instead of the bucket that the settings name.
    A `standby` needs the admin.key of the appliance that it follows. `flags` are settings, as on
    the command line."""
    data.mkdir(parents=True, exist_ok=True)
    in_force = setting_sources.load(
        flags={"bucket": "memory:", "data": str(data), "linger": "1ms", **flags}, environment={}
    )
    counted = make_store(in_force, NO_FAILPOINTS) if store is None else CountedStore(store)
    opened = Appliance.open_standby if standby else Appliance.open
    appliance = await opened(in_force, counted, NO_FAILPOINTS, lambda *_: None)
    assert appliance is not None
    listener = socket.create_server(("127.0.0.1", 0))
    server = QuickServer(appliance, fast_lane=fast_lane)
    try:
        await appliance.start()
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0)
        key = (data / "admin.key").read_text().strip()
        port = listener.getsockname()[1]
        running = RunningAppliance(appliance, server, port, key, None)  # type: ignore[arg-type]
        async with running.client_with(key) as client:
            yield replace(running, client=client)
        appliance.broker.stop_accepting()
        server.stopping.set()
        await serving
    finally:
        await appliance.close()


def hold_creates(
    running: RunningAppliance, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Event, asyncio.Event]:
    """From now on what creates an object in the bucket sets the first event, and waits for the
    second one."""
    arrived, go_on = asyncio.Event(), asyncio.Event()
    create = running.appliance.store.create

    async def late(name: str, body: bytes) -> None:
        arrived.set()
        await go_on.wait()
        await create(name, body)

    monkeypatch.setattr(running.appliance.store, "create", late)
    return arrived, go_on
