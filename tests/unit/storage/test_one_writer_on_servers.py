"""The store test and one writer on real stores: the mode they get, and that zombies are fenced."""

import os
import random

import pytest

from seb_appliance.clock import SystemClock
from seb_appliance.errors import FencedError, StoreUnusableError
from seb_appliance.storage.stores.s3 import S3Store
from tests.support.appliances import Appliance, rebuilt
from tests.support.stores import open_store, run_store_test

pytestmark = pytest.mark.slow


A = ["directory", "moto", "ceph", "minio", "seaweedfs", "versitygw"]
B = ["swift", "garage", "s3mock"]
LIST_ROUNDS = 200  # as in operation
WARNED = {
    "garage": ["this store answers 200 to a create-only PUT of a key that is taken"],
    "s3mock": ["create-only PUT works on this store"],
}


@pytest.fixture(params=[*A, *B])
async def named_store(request, tmp_path):
    async with open_store(request.param, request, tmp_path) as store:
        yield request.param, store


async def test_a_zombie_acknowledges_nothing_and_nothing_is_lost(named_store, tmp_path):
    name, store = named_store
    one = await Appliance(store, tmp_path / "one").start()
    assert one.report.mode == ("A" if name in A else "B")
    # The appliance's clock is the test's, and the server's is the machine's.
    told = [told for told in one.report.warnings if "NTP" not in told]
    assert [each.split(",")[0] for each in told] == WARNED.get(name, [])
    for number in range(5):
        await one.append(number)
    await one.snapshot()
    two = await Appliance(store, tmp_path / "two").start(take_over=True)
    await two.append(10)
    with pytest.raises(FencedError):
        await one.append(99)
    with pytest.raises(FencedError):
        await one.journal.confirm_in_force()
    assert await rebuilt(store, tmp_path / "rebuilt") == [*range(5), 10]


async def test_a_store_that_overwrites_is_found_out_and_used_in_mode_b(request, tmp_path):
    async with open_store("rclone", request, tmp_path) as store:
        report = await run_store_test(
            store, clock=SystemClock(), random_bytes=os.urandom, jitter=random.random
        )
        assert report.mode == "B"
        assert "overwrites" in report.warnings[0]
        one = await Appliance(store, tmp_path / "one").start()
        await one.append(1)
        assert await rebuilt(store, tmp_path / "rebuilt") == [1]


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("s3proxy", "objects were missing in the LIST after their PUT"),
        ("s3rver", "asked for bytes 0-0, the store answered 206 with Content-Range 'bytes 0-1023"),
    ],
)
async def test_a_store_that_would_lose_records_is_refused(request, tmp_path, server, told):
    async with open_store(server, request, tmp_path) as store:
        with pytest.raises(StoreUnusableError, match=told):
            await Appliance(store, tmp_path / "one").start(list_rounds=LIST_ROUNDS)


@pytest.mark.parametrize("status", ["Enabled", "Suspended"])
async def test_versioning_on_ceph_is_found_out(ceph_server, tmp_path, status):
    """Create-only PUT then succeeds for several writers at once, without a word."""
    used, fresh = ceph_server.new_bucket(), ceph_server.new_bucket()
    stores = [S3Store(used), S3Store(fresh)]
    one = await Appliance(stores[0], tmp_path / "one").start()
    with ceph_server.client() as client:
        for options in (used, fresh):
            client.put_bucket_versioning(
                Bucket=options.bucket, VersioningConfiguration={"Status": status}
            )
    with pytest.raises(StoreUnusableError, match="never changes automatically"):
        await one.start()
    two = await Appliance(stores[1], tmp_path / "two").start()
    assert two.report.mode == "B"
    assert any(warning.startswith("versioning") for warning in two.report.warnings)
    for store in stores:
        await store.close()


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_10_000_entries_replay_in_less_than_8_s(tmp_path, mode, request):
    """From a directory, into memory: what SQLite adds is measured with the state."""
    async with open_store("memory", request, tmp_path) as store:
        one = await Appliance(store, tmp_path / "one").start(mode=mode)
        for number in range(10_000):
            await one.append(number)
    for key, body in store._objects.items():
        path = tmp_path / "bucket" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    async with open_store("directory", request, tmp_path) as directory:
        two = Appliance(directory, tmp_path / "two")
        two.clock = SystemClock()
        await two.start(take_over=True)
    assert two.replica.numbers == list(range(10_000))
    assert two.report.replay_seconds < 8
