"""Whatever the umask, nobody else on the machine may read what an appliance leaves on its disk."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from seb_appliance.api.server.control import bind_control, serve_control
from seb_appliance.errors import ConfigurationError
from seb_appliance.ops.host.data_directory import own_data_directory, reset_admin_key
from tests.support.appliance import running_appliance
from tests.ui.pages import add_user

# What has to be there, or the walk shows nothing.
EXPECTED = {"admin.key", "lock", "state.sqlite", "state.sqlite-wal", "local.sqlite",
            "keyindex.sqlite", "writer-ids", "control.sock", "journal", "snapshots"}  # fmt: skip


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """What is below it that another user could reach."""
    found = []
    for path in folder.iterdir():
        mode = path.lstat().st_mode
        if mode & 0o077:
            found.append(f"{stat.filemode(mode)} {path}")
            if path.is_dir():
                found += open_to_others(path)
    return found


@pytest.mark.usefixtures("_umask")
async def test_nothing_that_an_appliance_writes_is_for_others(tmp_path: Path) -> None:
    data, bucket = tmp_path / "data", tmp_path / "bucket"
    data.mkdir()
    data.chmod(0o755)  # somebody made it, and thought of nothing
    seen: set[str] = set()

    def look() -> None:
        assert open_to_others(data) == []
        assert stat.S_IMODE(bucket.lstat().st_mode) == 0o700
        seen.update(path.name for path in tmp_path.rglob("*"))

    for user in ("one", "two"):  # the second time it finds what it left
        with own_data_directory(data):
            async with running_appliance(data, bucket=f"file:{bucket}", early_flush=True) as seb:
                control = await serve_control(bind_control(data / "control.sock"), {})
                await seb.client.put("/v1/topics/t", json={"key_index": "history"})
                record = {"records": [{"key": "k", "value": "v"}]}
                await seb.client.post("/v1/topics/t/records", json=record)
                await seb.client.get("/v1/topics/t/keys?fresh=true")
                await add_user(seb, user, "admin")
                await reset_admin_key(seb.appliance.broker, data, asyncio.Lock())
                await seb.appliance.publish_snapshot()
                look()
                control.close()
                await control.wait_closed()
                assert await seb.appliance.drain()
        look()
    (data / "state.sqlite").write_bytes(b"damaged")  # and is made anew of the snapshot
    async with running_appliance(data, bucket=f"file:{bucket}"):
        look()
    assert seen >= EXPECTED, EXPECTED - seen


def test_a_lock_that_is_a_link_makes_no_file_elsewhere(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="lock"), own_data_directory(data):
        pass
    assert not (tmp_path / "elsewhere").exists()
