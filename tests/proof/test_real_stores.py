"""A real store whose gateway dies under load; the part `real-stores` does more, and for longer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.crash.arena import arena_on
from tests.proof.ground import START_S, ground
from tests.proof.real_stores import BUILT, STORES, kill_process, plan, run
from tests.support.servers.s3_server import NotInstalledError, S3Server


@pytest.mark.parametrize("name", STORES)
def test_each_cycle_of_a_plan_does_everything_once(name: str) -> None:
    store = STORES[name]
    count = len(store.acts())
    acts = list(plan(store, "1", 2 * count))
    assert sorted(acts[:count]) == sorted(acts[count:]) == sorted(store.acts())
    assert acts == list(plan(store, "1", 2 * count))
    assert acts != list(plan(store, "2", 2 * count))


@pytest.mark.slow
@pytest.mark.neighbours
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", BUILT)
async def test_a_store_that_is_killed_and_stopped_under_load_loses_and_doubles_nothing(
    name: str, tmp_path: Path
) -> None:
    try:
        await run(f"{name}-{len(BUILT[name].acts())}", "1", tmp_path / "ground")
    except NotInstalledError as error:
        pytest.skip(str(error))


@pytest.mark.slow
# Connections to processes that were killed are dropped, not closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_gateway_of_ceph_killed_under_load_loses_and_doubles_nothing(
    ceph_server: S3Server, tmp_path: Path
) -> None:
    processes = ceph_server.processes
    place = arena_on(ceph_server)
    settings = {"s3_read_timeout": "500ms", "linger": "50ms"}
    try:
        async with ground("A", tmp_path / "ground", "gateway", place, **settings) as here:
            await here.begin()
            await kill_process(here, processes, "rgw", away_s=0.5)
            await here.crowd.until_acked(20, START_S)
            await here.kill(fresh=False)
            await here.verdict()
    finally:  # other tests use the same server
        if processes.by_name["rgw"].poll() is not None:
            processes.start_again("rgw")
        await asyncio.to_thread(processes.wait_for_http, ceph_server.port)
