"""The process of a standby that loses track: it begins anew from what the bucket has."""

from __future__ import annotations

import asyncio
import io
import socket
from pathlib import Path

import pytest
from rich.console import Console

from seb_appliance import setting_sources
from seb_appliance.api.server.control import bind_control
from seb_appliance.clock import SystemClock
from seb_appliance.errors import StoreUnusableError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.host.service_manager import ServiceManager
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.serve import process
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.settings import Settings
from seb_appliance.storage import layout

pytestmark = pytest.mark.slow


def chosen(folder: Path, name: str) -> Settings:
    (folder / name).mkdir(exist_ok=True)
    flags: dict[str, str | bool] = {
        "bucket": f"file:{folder / 'bucket'}",
        "data": str(folder / name),
        "linger": "0ms",
        "follow_poll": "100ms",
    }
    return setting_sources.load(flags=flags, environment={})


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("mended", [True, False])
async def test_a_standby_that_loses_track_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mended: bool
) -> None:
    of_writer = chosen(tmp_path, "writer")
    writer = await Appliance.open(of_writer, make_store(of_writer), NO_FAILPOINTS, lambda *_: None)
    await writer.start()
    await writer.broker.topics.create("orders", TopicSettings())
    next_key = tmp_path / "bucket" / layout.create_only_key(writer.journal.position.seq + 1)
    standbys: list[Appliance] = []
    real = Appliance.open_standby

    async def open_standby(*given) -> Appliance | None:
        if standbys and mended:
            next_key.unlink()
        found = await real(*given)
        if found is not None:
            standbys.append(found)
        return found

    monkeypatch.setattr(Appliance, "open_standby", open_standby)
    stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    listener, settings = socket.create_server(("127.0.0.1", 0)), chosen(tmp_path, "standby")
    control, shown = bind_control(settings.data / "control.sock"), io.StringIO()
    nobody = ServiceManager("", None, SystemClock())
    serving = process._Process(
        settings, listener, control, Console(file=shown), NO_FAILPOINTS, stop, nobody
    )
    following = asyncio.create_task(process._follow(serving))
    try:
        await until(lambda: len(standbys) == 1)
        next_key.write_bytes(b"no entry, but the key is taken" * 10)
        if not mended:
            with pytest.raises(StoreUnusableError, match="damaged"):
                await following
            return
        await until(lambda: len(standbys) == 2)
        await writer.broker.topics.create("more", TopicSettings())
        await until(lambda: len(standbys[1].broker.topics.all()) == 2)
        stop.set_result(None)
        assert await following is None
        assert shown.getvalue().count("follows the writer") == 2
    finally:
        listener.close()
        control.close()
        await writer.close()
