"""The Go broker driven by the same load generator, over a small fake of it; and what is made of a
broker that is fast and wrong."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from seb_appliance.bench.connecting import BenchError
from seb_appliance.bench.plan import Plan
from seb_appliance.bench.result import Result, result_of
from seb_appliance.bench.run import Conditions, measure
from seb_appliance.bench.targets import Address, GoTarget
from tests.support.go_broker import KEY, GoBroker, go_broker

LONG = {"duration_s": 0.6}  # something happens in it on a busy machine, too


def plan(workload: str = "produce", **more: object) -> Plan:
    given = {"connections": 3, "record_bytes": 100, "duration_s": 0.2, "warm_up_s": 0.0, **more}
    return Plan(workload=workload, **given).check()  # type: ignore[arg-type]


async def run(broker: GoBroker, wanted: Plan, key: str = KEY) -> Result:
    stop = asyncio.Event()
    target = GoTarget(Address("127.0.0.1", broker.port), key)
    measured = await measure(wanted, target, Conditions(stop=stop, progress=lambda *_: None))
    return result_of(wanted, target, datetime.now(UTC), [measured], stop.is_set())


@pytest.mark.parametrize(
    "wanted",
    [
        plan(**LONG),
        plan(**LONG, body="batch", records_per_request=7, topics=2),
        plan("consume", **LONG, body="batch", records_per_request=5),
        plan("consume", **LONG),
        plan("e2e", **LONG, rate=200.0, consumers=2),
        plan("mixed", **LONG, rate=200.0, body="batch"),
    ],
    ids=lambda wanted: f"{wanted.workload}-{wanted.records_per_request}",
)
async def test_every_workload_runs_and_every_record_is_right(wanted: Plan) -> None:
    async with go_broker() as broker:
        result = await run(broker, wanted)
    assert result.verified is not None
    assert (result.verified.mistakes, result.lost, result.refused) == ([], 0, {})
    assert result.verified.records > 0
    assert all(row.latency is not None for row in result.rows)


@pytest.mark.parametrize("lie", ["loses", "doubles", "damages", "swaps", "refuses"])
@pytest.mark.parametrize("workload", ["produce", "e2e"])
async def test_a_fast_wrong_broker_is_found_out(
    lie: str, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seb_appliance.bench.run.DRAIN_S", 0.3)
    async with go_broker(lie) as broker:
        result = await run(broker, plan(workload, **LONG, body="batch", records_per_request=2))
    assert not result.is_right
    assert result.verified is not None
    assert result.verified.mistakes


async def test_a_stall_is_late_for_everything_that_was_due_in_it() -> None:
    """One connection, 100 requests a second, one answer 300 ms late: a generator that waits for it
    would see one slow request; thirty were due meanwhile."""
    async with go_broker(stalls_s=0.3) as broker:
        result = await run(broker, plan(connections=1, rate=100.0, duration_s=0.6))
    curve = result.rows[0].latency
    assert curve is not None
    assert curve.samples == 60
    assert curve.value_us(75.0) > 100_000
    assert result.late > 20


async def test_what_was_due_and_never_sent_counts_with_the_time_it_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seb_appliance.bench.run.DRAIN_S", 0.6)
    async with go_broker(stalls_s=30.0) as broker:
        result = await run(broker, plan(connections=1, rate=100.0, duration_s=0.3))
    assert result.not_sent > 10
    curve = result.rows[0].latency
    assert curve is not None
    assert curve.samples == 30 - 1  # the one that stalls is still on its way
    assert curve.at[-1][1] > 250_000


@pytest.mark.parametrize("workload", ["produce", "consume", "e2e"])
async def test_a_broker_that_does_not_let_us_is_told(workload: str) -> None:
    async with go_broker() as broker:
        with pytest.raises(BenchError, match="invalid auth"):
            await run(broker, plan(workload), key="wrong")


async def test_a_broker_that_is_not_there_is_told() -> None:
    async with go_broker() as broker:
        pass
    with pytest.raises(BenchError, match="cannot reach"):
        await run(broker, plan())


async def test_a_stop_ends_the_load_and_leaves_what_was_measured() -> None:
    stop = asyncio.Event()
    async with go_broker() as broker:
        target = GoTarget(Address("127.0.0.1", broker.port), KEY)
        wanted = plan(duration_s=60.0)

        def progress(phase: str, done: float) -> None:
            if phase == "measuring":
                stop.set()

        measured = await measure(wanted, target, Conditions(stop=stop, progress=progress))
    result = result_of(wanted, target, datetime.now(UTC), [measured], stop.is_set())
    assert not result.is_whole
    assert result.verified is not None
    assert result.verified.mistakes == []


async def test_a_broker_that_cannot_be_read_afterwards_is_told_beside_what_was_measured() -> None:
    stop = asyncio.Event()
    async with go_broker() as broker:
        target = GoTarget(Address("127.0.0.1", broker.port), KEY)

        def progress(phase: str, done: float) -> None:
            if phase == "verifying":
                broker.key = "another"

        conditions = Conditions(stop=stop, progress=progress)
        measured = await measure(plan(), target, conditions)
    result = result_of(plan(), target, datetime.now(UTC), [measured], stop.is_set())
    assert result.rows[0].latency is not None
    assert result.verified is None
    assert result.failure is not None
    assert "invalid auth" in result.failure


async def test_a_busy_broker_is_read_again_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seb_appliance.bench.consuming._PAUSE_S", 0.0)
    async with go_broker() as broker:
        broker.busy_reads = 3
        result = await run(broker, plan())
    assert broker.busy_reads == 0
    assert result.verified is not None
    assert result.verified.mistakes == []
