"""Copies and restores where buckets are: on S3 servers, versioned and locked, and after a kill."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seb_appliance import limits
from seb_appliance.clock import SystemClock
from seb_appliance.errors import ConfigurationError, StoreUnusableError
from seb_appliance.ops.checks.check import CheckOptions, check_bucket
from seb_appliance.ops.host import restoring
from seb_appliance.ops.host.stores import make_store
from seb_appliance.setting_sources import load
from seb_appliance.settings import Settings
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.stores.directory import DirectoryStore
from seb_appliance.storage.stores.object_store import ObjectStore, list_all
from seb_appliance.storage.stores.s3_options import S3Options
from tests.server.serving import ENVIRONMENT
from tests.support.faultproxy import FaultProxy, Rule
from tests.support.process import Bucket, SebProcess
from tests.support.servers.s3_server import S3Server
from tests.upgrade.make_stored import INDEX_PAGE_ENTRIES
from tests.upgrade.stored_data import unpack

pytestmark = pytest.mark.slow
OBJECTS_BEFORE_THE_KILL = 8


def quiet(done: int, total: int, phase: str) -> None:
    """Progress that nobody watches."""


def of_s3(options: S3Options, data: Path) -> Settings:
    bucket = Bucket.s3(options, int(str(options.endpoint_url).rpartition(":")[2]))
    return load(flags={"bucket": bucket.address, "data": str(data)}, environment=bucket.environment)


def of_folder(folder: Path) -> Settings:
    flags = {"bucket": f"file:{folder / 'bucket'}", "data": str(folder / "data")}
    return load(flags=flags, environment={})


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a bucket in mode B, with objects of each kind, and of its data directory."""
    monkeypatch.setattr(limits, "INDEX_PAGE_ENTRIES", INDEX_PAGE_ENTRIES)
    return unpack("0.1.0-b", tmp_path / "source")


async def objects(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: await store.get(info.key) for info in await list_all(store, "_seb/")}


async def require_same(folder: Path, copy: Settings) -> None:
    """Nothing is wrong with the copy, and its objects are those of the source, byte for byte (the
    source may have more: what a copy does not need)."""
    source, store = DirectoryStore(folder / "bucket"), make_store(copy)
    retrying = RetryingStore(store, SystemClock(), random.random, give_up_after_s=10)
    try:
        report = await check_bucket(retrying, SystemClock(), CheckOptions(), quiet)
        assert report.findings.problems == []
        copied = await objects(store)
        assert copied.items() <= (await objects(source)).items()
    finally:
        await store.close()
        await source.close()


async def test_a_copy_that_was_killed_is_refused_and_goes_on_where_it_was(
    source: Path, tmp_path: Path, moto_server: S3Server
) -> None:
    options = moto_server.new_bucket()
    async with FaultProxy(moto_server.port) as proxy:
        behind = replace(options, endpoint_url=proxy.url)
        hang = Rule("hang", method="PUT", match="/journal/", skip=OBJECTS_BEFORE_THE_KILL, count=9)
        proxy.add(hang)
        process = _clone(source, behind, tmp_path)
        while proxy.faults["hang"] == 0:
            assert process.poll() is None
            await asyncio.sleep(0)
        process.kill()
        process.communicate()
        half = of_s3(behind, tmp_path / "half")
        with pytest.raises((ConfigurationError, StoreUnusableError)) as refused:
            await restoring.verify(half, quiet)
        assert refused.value.detail
        proxy.clear()
        told = await asyncio.to_thread(_finished, _clone(source, behind, tmp_path))
        assert told["were there"] >= OBJECTS_BEFORE_THE_KILL
    await require_same(source, of_s3(options, tmp_path / "copy"))


def _clone(source: Path, into: S3Options, folder: Path) -> subprocess.Popen[str]:
    """`seb clone` as a process; the settings of the target in a file, as its secrets ask for."""
    bucket = Bucket.s3(into, int(str(into.endpoint_url).rpartition(":")[2]))
    members = {
        name.removeprefix("SEB_").lower(): value for name, value in bucket.environment.items()
    }
    config = folder / "into.toml"
    config.write_text("".join(f"{name} = {json.dumps(text)}\n" for name, text in members.items()))
    places = [f"--bucket=file:{source / 'bucket'}", f"--data={source / 'data'}"]
    program = [sys.executable, "-m", "seb_appliance", "clone", "--json"]
    return subprocess.Popen(
        [*program, *places, f"--into={bucket.address}", f"--into-config={config}"],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def _finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    told: dict[str, Any] = json.loads(output)
    return told


def lock(server: S3Server, options: S3Options) -> None:
    """What is written to the bucket cannot be removed or overwritten for a day."""
    with server.client() as client:
        client.create_bucket(Bucket=options.bucket, ObjectLockEnabledForBucket=True)
        rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
        client.put_object_lock_configuration(
            Bucket=options.bucket,
            ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule},  # type: ignore[typeddict-item]
        )


async def test_a_versioned_and_locked_bucket_holds_a_copy_that_can_be_restored_and_started(
    source: Path, tmp_path: Path, ceph_server: S3Server
) -> None:
    options = replace(ceph_server.options, bucket="seb-locked", prefix="backup/seb")
    lock(ceph_server, options)
    copy = of_s3(options, tmp_path / "copy")
    cloned = await restoring.clone(of_folder(source), copy, None, quiet)
    await require_same(source, copy)

    restored = await restoring.restore(copy, copy.data, quiet)
    assert restored.rebuilt.position == cloned.restored.rebuilt.position
    assert restored.state == cloned.restored.state

    seb = SebProcess(
        Bucket.s3(options, ceph_server.port), copy.data, ["--take-over", "--linger=1ms"]
    )
    try:
        await seb.ready(60)
        seb.process.terminate()
        assert await seb.ended() == 0, seb.shown  # with a snapshot, where older ones are locked
    finally:
        seb.kill()
    assert (await restoring.verify(copy, quiet)).state == restored.state


async def test_a_bucket_in_mode_a_is_not_copied_into_a_versioned_one(
    tmp_path: Path, moto_server: S3Server
) -> None:
    in_mode_a = unpack("0.1.0-a", tmp_path / "source")
    into = of_s3(moto_server.new_bucket(versioned=True), tmp_path / "copy")
    with pytest.raises(ConfigurationError, match="versioning is on"):
        await restoring.clone(of_folder(in_mode_a), into, None, quiet)
