"""Checks for the admin page: one at a time, in a process that is bounded and ended."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from seb_appliance import limits, setting_sources
from seb_appliance.ops.jobs.check_job import CheckKeeper
from tests.support.fakes import FakeClock


def keeper_of(folder: Path, bucket: str, **flags: str) -> CheckKeeper:
    folder.mkdir()
    given = {"bucket": bucket, "data": str(folder), **flags}
    in_force = setting_sources.load(flags=given, environment={})
    return CheckKeeper(in_force, FakeClock())


async def test_a_check_that_takes_too_long_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHECK_S_MAX", 0.01)
    keeper = keeper_of(tmp_path / "seb", f"file:{tmp_path / 'bucket'}")
    assert keeper.begin("fsck")
    await keeper.finished()
    assert "was stopped after" in keeper.found["fsck"].failure
    assert keeper.running is None


async def test_a_check_ends_with_the_appliance(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # what is asked of it has no answer
        s3 = {"s3_endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "s3_region": "x"}
        keys = {"s3_access_key_id": "x", "s3_secret_access_key": "x"}
        keeper = keeper_of(tmp_path / "seb", "s3://bucket/seb", **s3, **keys)
        assert keeper.begin("doctor")
        assert not keeper.begin("fsck")
        while keeper.progress != "asking the bucket":
            assert keeper.running
            await asyncio.sleep(0)
        await keeper.close()
    assert keeper.found["doctor"].failure == "The check was stopped."
    assert not (tmp_path / "seb" / "check.tmp").exists()


@pytest.mark.slow
async def test_what_kept_a_check_from_looking_is_told(tmp_path: Path) -> None:
    keeper = keeper_of(tmp_path / "seb", f"file:{tmp_path / 'nowhere'}")
    keeper.begin("fsck")
    await keeper.finished()
    assert "there is no directory" in keeper.found["fsck"].failure
