"""How long and how often the object store is asked, and what is kept of its answers."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable

import pytest

from seb_appliance.broker.ports import FAILING_FOR_S, StoreHealth
from seb_appliance.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreAwayError,
    StoreClockSkewError,
    StoreConflictError,
    StoreDeniedError,
    StoreError,
    StoreUncertainError,
    StoreUnsupportedError,
    StoreUnusableError,
)
from seb_appliance.storage.journal.retry import RetryingStore, given_up, together
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.fakes import FakeClock

UNCERTAIN = StoreUncertainError("503 SlowDown")
DENIED = StoreDeniedError("403 AccessDenied")
CONFLICT = StoreConflictError("409")
SKEWED = StoreClockSkewError("403 RequestTimeTooSkewed", clock_offset_s=60)
UNSUPPORTED = StoreUnsupportedError("501")


class Sleeper(FakeClock):
    """A clock on which who sleeps is awake at once, and later."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


def answering(*answers: StoreError | str) -> Callable[[], Awaitable[str]]:
    """A request that is answered so, one after the other."""
    left = iter(answers)

    async def request() -> str:
        answer = next(left)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    return request


async def pauses_s(*errors: StoreError, jitter: float) -> list[float]:
    clock = Sleeper()
    assert (
        await RetryingStore(MemoryStore(), clock, lambda: jitter).ask(answering(*errors, "good"))
        == "good"
    )
    return clock.slept_s


async def test_pauses_double_up_to_two_seconds_and_are_spread_over_all_of_that() -> None:
    doubled = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2]
    assert await pauses_s(*[UNCERTAIN] * 8, jitter=1) == pytest.approx(doubled)
    halved = [pause_s / 2 for pause_s in doubled]
    assert await pauses_s(*[UNCERTAIN] * 8, jitter=0.5) == pytest.approx(halved)


async def test_an_outage_is_logged_once_with_its_reason_and_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On one line, whatever the store says. Shorter failures are not logged."""
    clock = Sleeper()
    store = RetryingStore(MemoryStore(), clock, lambda: 1)
    await store.ask(answering(*[UNCERTAIN] * 3, "good"))
    assert not caplog.records
    full = StoreUncertainError("the disk is\nfull")
    await store.ask(answering(*[full] * 20, "good"))
    began, ended = (record.getMessage() for record in caplog.records)
    assert began.startswith("the bucket has been failing for ")
    assert began.endswith(r"'the disk is\nfull'")
    assert ended.startswith("the bucket answers again, after ")


@pytest.mark.parametrize(("early_s", "lines"), [(0.125, 0), (0.0, 2)])
async def test_an_outage_is_logged_after_some_seconds(
    early_s: float, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Sleeper()
    answers = answering(UNCERTAIN, UNCERTAIN, "good")
    failing_s = iter((0.0, FAILING_FOR_S - early_s, 0.0))

    async def request() -> str:
        clock.now_s += next(failing_s)
        return await answers()

    await RetryingStore(MemoryStore(), clock, lambda: 0).ask(request)
    assert len(caplog.records) == lines


async def test_a_refusal_is_logged_at_once_but_not_by_who_gives_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    denied = StoreDeniedError("403")
    for patience_s, lines in ((60.0, 0), (None, 2)):
        store = RetryingStore(MemoryStore(), Sleeper(), lambda: 1, give_up_after_s=patience_s)
        with contextlib.suppress(StoreDeniedError):
            await store.ask(answering(denied, "good"))
        assert len(caplog.records) == lines


async def test_after_a_thousand_failures_the_pause_is_still_two_seconds() -> None:
    assert (await pauses_s(*[UNCERTAIN] * 2_000, jitter=1))[-1] == 2


async def test_who_is_in_the_way_of_another_waits_half_a_second_at_most() -> None:
    assert await pauses_s(*[CONFLICT] * 6, jitter=1) == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]


@pytest.mark.parametrize(("jitter", "pause_s"), [(0, 2), (1, 6)])
async def test_who_is_denied_waits_for_an_operator(jitter: float, pause_s: float) -> None:
    assert await pauses_s(DENIED, DENIED, DENIED, jitter=jitter) == [pause_s] * 3


async def test_a_wrong_clock_is_mended_at_once_but_once() -> None:
    assert await pauses_s(SKEWED, SKEWED, SKEWED, jitter=1) == [0.1, 0.2]


async def test_what_the_store_cannot_do_is_asked_again_unless_that_is_the_question() -> None:
    store = RetryingStore(MemoryStore(), Sleeper(), lambda: 1)
    assert await store.ask(answering(UNSUPPORTED, "good")) == "good"
    with pytest.raises(StoreUnsupportedError):
        await store.ask(answering(UNSUPPORTED), ask_once_if_501=True)
    assert await store.ask(answering(UNCERTAIN, "good"), ask_once_if_501=True) == "good"


async def test_a_start_gives_up_when_its_time_is_over_and_not_before() -> None:
    clock = Sleeper()
    # Pauses of 1, 2 and 4 32nds of a second, which floats hold exactly.
    store = RetryingStore(MemoryStore(), clock, lambda: 0.625, give_up_after_s=7 / 32)
    assert await store.ask(answering(*[UNCERTAIN] * 3, "good")) == "good"
    began_s = clock.now_s
    with pytest.raises(StoreUncertainError):
        await store.ask(answering(*[UNCERTAIN] * 4, "too late"))
    assert clock.now_s - began_s == 7 / 32


async def test_a_start_that_is_denied_does_not_ask_again() -> None:
    clock = Sleeper()
    with pytest.raises(StoreDeniedError):
        await RetryingStore(MemoryStore(), clock, lambda: 1, give_up_after_s=60).ask(
            answering(DENIED)
        )
    assert clock.slept_s == []


@pytest.mark.parametrize("error", [ObjectMissingError("404"), ObjectExistsError("412")])
async def test_an_answer_that_is_definite_is_told_and_is_good_health(error: StoreError) -> None:
    clock = Sleeper()
    store = RetryingStore(MemoryStore(), clock, lambda: 1)
    with pytest.raises(type(error)):
        await store.ask(answering(DENIED, error))
    assert store.health == StoreHealth(last_success_s=clock.now_s)


@pytest.mark.parametrize(("patience_s", "lines"), [(2, 0), (20, 1)])
async def test_who_gives_up_later_says_meanwhile_what_it_waits_for(
    patience_s: float, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = RetryingStore(MemoryStore(), Sleeper(), lambda: 1, give_up_after_s=patience_s)
    with pytest.raises(StoreUncertainError):
        await store.ask(answering(*[UNCERTAIN] * 99))
    assert len(caplog.messages) == lines


async def test_its_health_tells_since_when_it_fails_and_how() -> None:
    clock = Sleeper()
    store = RetryingStore(MemoryStore(), clock, lambda: 1)
    seen: list[StoreHealth] = []

    async def request() -> str:
        health = store.health
        seen.append(
            StoreHealth(
                health.last_success_s, health.failing_since_s, health.failure, health.denied
            )
        )
        return await answers()

    answers = answering(DENIED, UNCERTAIN, "good", "good")
    await store.ask(request)
    clock.now_s = 2_000.0
    await store.ask(request)
    assert seen == [
        StoreHealth(1_000.0),
        StoreHealth(1_000.0, 1_000.0, "403 AccessDenied", denied=True),
        StoreHealth(1_000.0, 1_000.0, "503 SlowDown"),
        StoreHealth(1_006.1),
    ]
    assert store.health == StoreHealth(2_000.0)


@pytest.mark.parametrize("error", [UNCERTAIN, CONFLICT, SKEWED])
def test_what_time_may_mend_is_told_as_a_store_that_is_away(error: StoreError) -> None:
    assert type(given_up(error)) is StoreAwayError


@pytest.mark.parametrize("error", [DENIED, UNSUPPORTED])
def test_what_only_a_person_can_mend_is_told_as_a_store_that_cannot_be_used(
    error: StoreError,
) -> None:
    assert type(given_up(error)) is StoreUnusableError


async def test_work_is_done_a_few_at_a_time_and_answered_in_order() -> None:
    at_work: list[int] = []
    most = 0

    async def work(number: int) -> int:
        nonlocal most
        at_work.append(number)
        most = max(most, len(at_work))
        for _ in range(9 - number):  # the first takes longest
            await asyncio.sleep(0)
        at_work.remove(number)
        return number

    assert await together(map(work, range(9)), 3) == list(range(9))
    assert most == 3


async def test_the_first_error_ends_what_is_at_work_and_what_has_not_begun() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            if name == "bad":
                await asyncio.sleep(0)
                raise UNCERTAIN
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # as what cleans up by a request does
            ended.append(name)

    waiting = [work(name) for name in ("long", "bad", "next", "never")]
    with pytest.raises(StoreUncertainError) as raised:
        await together(waiting, 2)
    assert raised.value is UNCERTAIN
    assert {"bad", "long"} <= set(ended) <= {"bad", "long", "next"}
    assert [inspect.getcoroutinestate(one) for one in waiting] == [inspect.CORO_CLOSED] * 4
