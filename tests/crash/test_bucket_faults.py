"""What a bucket may do to a PUT: nothing is doubled, nothing is lost, callers are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import TOPICS, Arena, s3_arena
from tests.support.faultproxy import Rule
from tests.support.load import Connection, read_topic
from tests.support.process import SebProcess

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PUTS_THAT_FAIL = [
    Rule("drop_reply"),
    Rule("reset"),
    Rule("late", delay=0.7),
    Rule("hang"),
    Rule("lie412"),
    Rule("status", code=412),
    *(Rule("status", code=code) for code in (409, 429, 500, 502, 503, 504, 507, 400)),
]
LISTS_THAT_FAIL = [
    Rule("reset"),
    Rule("hang"),
    Rule("truncate"),
    *(Rule("status", code=code) for code in (429, 500, 503)),
]
TOLD_UNKNOWN = {"outcome_unknown", "lost"}


async def begun(arena: Arena, *flags: str) -> SebProcess:
    seb = arena.start("local", *flags)
    await seb.ready()
    await arena.begin(seb)
    return seb


def faults(mode: Mode) -> list[Rule]:
    """Each several times, now and then."""
    puts = [replace(rule, method="PUT", match="/journal/", p=0.5) for rule in PUTS_THAT_FAIL]
    if mode == "A":
        return puts
    # No condition is sent, so no store answers that it does not hold.
    puts = [rule for rule in puts if rule.action != "lie412" and rule.code != 412]
    return puts + [replace(rule, method="GET", match="claims", p=0.5) for rule in LISTS_THAT_FAIL]


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_requests_that_fail_in_every_way_lose_and_double_nothing(
    mode: Mode, tmp_path: Path
) -> None:
    async with s3_arena(mode, tmp_path, s3_read_timeout="400ms") as arena:
        assert arena.proxy is not None
        seb = await begun(arena)
        for rule in faults(mode):
            rule.count = 3
            arena.proxy.clear()
            arena.proxy.add(rule)
            await until(lambda rule=rule: rule.count == 0)
            await arena.load.until_acked(10)
        await arena.proxy.late_landed()
        await arena.verdict(seb)
        assert set(arena.load.answers) <= {"201", *TOLD_UNKNOWN}
        await arena.stop_and_compare(seb)


async def test_a_caller_is_told_by_his_deadline_that_nobody_knows(tmp_path: Path) -> None:
    async with s3_arena("A", tmp_path, ack_timeout="1s") as arena:
        assert arena.proxy is not None
        seb = await begun(arena)
        arena.proxy.add(Rule("hang", method="PUT", match="/journal/"))
        connection = Connection(seb.port, arena.load.doors.key)
        began_s = time.monotonic()
        answer = await connection.request("POST", f"/v1/topics/{TOPICS[0]}/records", b"lonely")
        assert (answer.status, answer.code) == (504, "outcome_unknown")
        assert answer.json()["side_effects"] == "unknown"
        assert 0.9 < time.monotonic() - began_s < 3  # the request itself is given up after 10 s
        headers = {"Seb-Timeout": "200ms"}
        path = f"/v1/topics/{TOPICS[0]}/records"
        answer = await connection.request("POST", path, b"in a hurry", headers)
        assert (answer.status, answer.code) == (504, "outcome_unknown")
        connection.close()
        arena.proxy.clear()
        await arena.load.until_acked(5, within_s=15)  # a request that hangs is given up after 10 s
        await arena.load.stop()
        values = [value for _, value in await read_topic(seb.port, arena.load.doors.key, TOPICS[0])]
        assert values.count(b"lonely") == values.count(b"in a hurry") == 1


async def test_denied_credentials_turn_readiness_red_and_leave_reads(tmp_path: Path) -> None:
    async with s3_arena("A", tmp_path, ack_timeout="500ms") as arena:
        assert arena.proxy is not None
        seb = await begun(arena)
        before = len(await read_topic(seb.port, arena.load.doors.key, TOPICS[0]))
        arena.proxy.add(Rule("status", code=403, error="InvalidAccessKeyId"))
        connection = Connection(seb.port, arena.load.doors.key)
        answer = await until_ready_is(connection, 503)
        assert "InvalidAccessKeyId" in answer or "403" in answer, answer
        at = len(arena.load.calls)
        await until(lambda: "outcome_unknown" in [call.answer for call in arena.load.calls[at:]])
        assert len(await read_topic(seb.port, arena.load.doors.key, TOPICS[0])) >= before
        arena.proxy.clear()
        back_s = time.monotonic()
        await arena.load.until_acked(10)
        assert time.monotonic() - back_s < 8  # a denied request is not repeated before 2 to 6 s
        await until_ready_is(connection, 200)
        connection.close()
        await arena.verdict(seb)


@pytest.mark.parametrize("fault", ["reset", "status"])
async def test_five_seconds_after_the_bucket_is_back_there_is_progress(
    fault: str, tmp_path: Path
) -> None:
    async with s3_arena("A", tmp_path, ack_timeout="1s") as arena:
        assert arena.proxy is not None
        seb = await begun(arena)
        arena.proxy.add(Rule(fault, code=503))  # type: ignore[arg-type]
        connection = Connection(seb.port, arena.load.doors.key)
        await until_ready_is(connection, 503, within_s=12)
        arena.proxy.clear()
        back_s = time.monotonic()
        await arena.load.until_acked(10)
        assert time.monotonic() - back_s < 5
        await until_ready_is(connection, 200)
        connection.close()
        await arena.verdict(seb)


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_a_put_that_lands_after_the_take_over_changes_nothing(
    mode: Mode, tmp_path: Path
) -> None:
    async with s3_arena(mode, tmp_path) as arena:
        assert arena.proxy is not None
        old = await begun(arena)
        arena.proxy.add(Rule("late", method="PUT", match="/journal/", delay=6, count=1))
        await until(lambda: arena.proxy.faults["late"] == 1)
        old.kill()
        new = arena.start("other", take_over=True)
        arena.serve_from(new)
        await new.ready()
        await arena.load.until_acked(10, new.port)
        await arena.proxy.late_landed()
        await arena.load.until_acked(10, new.port)
        last = arena.start(fresh=True)
        await last.ready()
        arena.serve_from(last)
        await arena.load.until_acked(10, last.port)
        await arena.verdict(last)
        await arena.stop_and_compare(last)


async def until(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    until_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until_s, "it did not come to pass"
        await asyncio.sleep(0.01)


async def until_ready_is(connection: Connection, status: int, within_s: float = 10.0) -> str:
    """What /readyz says once it answers `status`."""
    until_s = time.monotonic() + within_s
    while True:
        answer = await connection.request("GET", "/readyz")
        if answer.status == status:
            return answer.body.decode()
        assert time.monotonic() < until_s, answer.body
        await asyncio.sleep(0.05)
