"""The store test at startup: what this store guarantees, found by requests and not by its name.

Some stores create an object only if it is absent, some answer 501, some ignore the condition and
overwrite. `seb serve` tests at each start; `seb doctor` prints the same report.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from seb_appliance.clock import Clock
from seb_appliance.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreConflictError,
    StoreDeniedError,
    StoreError,
    StoreUncertainError,
    StoreUnsupportedError,
)
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.stores.object_store import ObjectRange

RACE_WRITERS: Final = 4
RACE_KEYS: Final = 5
LIST_ROUNDS: Final = 200
LIST_ROUNDS_AT_ONCE: Final = 8
RANGE_ATTEMPTS: Final = 5
CLOCK_OFFSET_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Check:
    """One guarantee. `fatal`: without it the store cannot be used."""

    name: str
    passed: bool
    detail: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class StoreTestReport:
    """`mode`: the better fencing mode that this store allows. Latencies of PUT in seconds."""

    mode: Mode
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]
    put_p50_s: float
    put_p99_s: float
    clock_offset_s: float

    @property
    def failure(self) -> str:
        """Why the store cannot be used, in words; "" if it can."""
        return "; ".join(check.detail for check in self.checks if check.fatal and not check.passed)


class StoreTest:
    """One run, on `probe/<probe id>/` of its own; what it wrote is removed at the end."""

    def __init__(
        self,
        store: RetryingStore,
        clock: Clock,
        probe_id: str,
        *,
        list_rounds: int = LIST_ROUNDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._folder = f"{layout.PROBE}{probe_id}/"
        self._list_rounds = list_rounds
        self._checks: list[Check] = []
        self._warnings: list[str] = []
        self._put_s: list[float] = []
        self._written: set[str] = set()

    async def run(self, wanted: Mode | None = None) -> StoreTestReport:
        """The whole test. `wanted` "B": test what mode B needs even if the store allows mode A."""
        try:
            creates = await self._creates_only_if_absent()
            if creates:
                creates = await self._race_has_one_winner()
            await self._range_is_exact()
            await self._list_is_ordered()
            versioned = await self._configuration()
            mode: Mode = "A" if creates and not versioned else "B"
            if mode == "B" or wanted == "B":
                await self._list_shows_what_was_put()
        finally:
            await self._clean_up()
        return self._report(mode)

    def _report(self, mode: Mode) -> StoreTestReport:
        offset_s = 0.0
        if (ahead_s := self._store.date_ahead_s) is not None:
            offset_s = ahead_s + self._clock.monotonic_s() - self._clock.wall_us() / 1e6
        if abs(offset_s) > CLOCK_OFFSET_S_MAX:
            self._warnings.append(
                f"the clock of this machine is {abs(offset_s):.0f} s "
                f"{'behind' if offset_s > 0 else 'ahead of'} the store's: set up NTP"
            )
        durations = sorted(self._put_s)
        return StoreTestReport(
            mode,
            tuple(self._checks),
            tuple(self._warnings),
            durations[len(durations) // 2],
            durations[len(durations) * 99 // 100],
            offset_s,
        )

    def _note(self, name: str, passed: bool, detail: str, *, fatal: bool = False) -> None:
        self._checks.append(Check(name, passed, detail, fatal))

    async def _timed(self, key: str, request: Callable[[], Awaitable[None]]) -> None:
        self._written.add(key)
        began_s = self._clock.monotonic_s()
        await request()
        self._put_s.append(self._clock.monotonic_s() - began_s)

    async def _put(self, key: str, body: bytes) -> None:
        await self._store.ask(lambda: self._timed(key, lambda: self._store.raw.put(key, body)))

    async def _create(self, key: str, body: bytes) -> None:
        await self._store.ask(
            lambda: self._timed(key, lambda: self._store.raw.create(key, body)),
            ask_once_if_501=True,
        )

    async def _creates_only_if_absent(self) -> bool:
        """Create, then create again with other bytes; look at what the object holds."""
        key, first, second = self._folder + "once", b"first " * 20, b"second" * 20
        name = "create-only PUT"
        try:
            # An earlier attempt of ours whose answer was lost is no failure: the bytes will tell.
            with contextlib.suppress(ObjectExistsError):
                await self._create(key, first)
            await self._create(key, second)
        except ObjectExistsError:
            await self._returns(key, first)
            self._note(name, True, "yes: 412 for a key that is taken")
            return True
        except StoreUnsupportedError:
            await self._put(key, first)
            await self._returns(key, first)
            self._note(name, False, "no: the store answers 501, so claims are checked (mode B)")
            return False
        await self._returns(key, second)
        self._note(name, False, "no: the store ignores the condition and overwrites (mode B)")
        self._warnings.append(
            "this store answers 200 to a create-only PUT of a key that is taken, and overwrites. "
            "Other software that relies on the condition will lose data here; Seb uses claims."
        )
        return False

    async def _returns(self, key: str, body: bytes) -> None:
        held = await self._store.get(key)
        detail = "yes" if held == body else f"{key} holds other bytes than were stored"
        self._note("GET returns what was PUT", held == body, detail, fatal=True)

    async def _race_has_one_winner(self) -> bool:
        bad = 0
        for number in range(RACE_KEYS):
            key = f"{self._folder}race-{number}"
            bodies = [f"writer {writer} of {key}".encode() for writer in range(RACE_WRITERS)]
            answers = await asyncio.gather(*(self._race(key, body) for body in bodies))
            try:
                held = await self._store.get(key)
            except ObjectMissingError:
                held = b""
            said_won = [body for body, won in zip(bodies, answers, strict=True) if won]
            possible = [body for body, won in zip(bodies, answers, strict=True) if won is not False]
            bad += len(said_won) > 1 or held not in possible or said_won not in ([], [held])
        passed = bad == 0
        self._note(
            "one winner of a race",
            passed,
            f"{RACE_WRITERS} writers: one winner for {RACE_KEYS - bad} of {RACE_KEYS} keys",
        )
        if not passed:
            self._warnings.append(
                "create-only PUT works on this store, but not when several race for one key"
            )
        return passed

    async def _race(self, key: str, body: bytes) -> bool | None:
        """Whether this writer was told that it created the key; None if it was not told."""
        unsure = False
        for _ in range(20):
            try:
                await self._timed(key, lambda: self._store.raw.create(key, body))
            except ObjectExistsError:
                return None if unsure else False
            except StoreConflictError:
                await self._clock.sleep(0.01)
            except StoreUncertainError:
                unsure = True
                await self._clock.sleep(0.1)
            else:
                return True
        return None

    async def _range_is_exact(self) -> None:
        key, body = self._folder + "range", bytes(range(256)) * 4
        await self._put(key, body)
        wrong = ""
        for start, length in ((0, 1), (100, 300), (1000, 100)):
            wanted = ObjectRange(body[start : start + length], len(body))
            wrong = wrong or await self._wrong_range(key, start, length, wanted)
        self._note("GET of a range", not wrong, wrong or "exact", fatal=True)

    async def _wrong_range(self, key: str, start: int, length: int, wanted: ObjectRange) -> str:
        """What is wrong with a range, or "". A wrong status or range looks like a lost answer, so
        it is requested only a few times."""
        why = ""
        for attempt in range(RANGE_ATTEMPTS):
            try:
                part = await self._store.raw.get_range(key, start, length)
            except StoreUncertainError as error:
                why = error.detail
                await self._clock.sleep(0.2 * 2**attempt)
            else:
                return "" if part == wanted else f"wrong bytes or size for {start}+{length}"
        return why

    async def _list_is_ordered(self) -> None:
        keys = [f"{self._folder}list-{name}" for name in ("a", "b", "c")]
        for key in keys:
            await self._put(key, b"listed")
        prefix = self._folder + "list-"
        whole = await self._store.list_after(prefix)
        after = await self._store.list_after(prefix, keys[0], 1)
        passed = [x.key for x in whole] == keys and [x.key for x in after] == keys[1:2]
        detail = "sees what was PUT, honours start-after"
        if not passed:
            shown = [x.key for x in whole], [x.key for x in after]
            detail = f"expected {keys} and then the second alone, got {shown}"
        self._note("LIST", passed, detail, fatal=True)

    async def _configuration(self) -> bool:
        """Whether versioning is on or suspended: create-only PUT cannot be trusted there."""
        said = await self._store.check_configuration()
        self._warnings.extend(said)
        versioned = any(warning.startswith("versioning") for warning in said)
        self._note("bucket settings", not said, "see warnings" if said else "nothing that disturbs")
        return versioned

    async def _list_shows_what_was_put(self) -> None:
        numbers = iter(range(self._list_rounds))
        prefix = self._folder + "claim-"

        async def rounds() -> int:
            missed = 0
            for number in numbers:
                key = f"{prefix}{number:010d}"
                await self._put(key, b"claim")
                before = f"{prefix}{number - 1:010d}" if number else ""
                shown = await self._store.list_after(prefix, before)
                missed += key not in [found.key for found in shown]
            return missed

        misses = sum(await asyncio.gather(*(rounds() for _ in range(LIST_ROUNDS_AT_ONCE))))
        detail = f"{self._list_rounds} of {self._list_rounds}"
        if misses:
            detail = (
                f"{misses} of {self._list_rounds} objects were missing in the LIST after their "
                "PUT, and fencing mode B needs every one of them: this store cannot be used"
            )
        self._note("LIST shows what was just PUT", not misses, detail, fatal=True)

    async def _clean_up(self) -> None:
        """A remaining probe object is harmless, so errors do not fail a start. But credentials that
        may not delete it may not delete what the tidier replaces, either."""
        denied: list[str] = []

        async def remove(keys: list[str]) -> None:
            try:
                for key in keys:
                    await self._store.raw.delete(key)
            except StoreDeniedError as error:
                denied.append(error.detail)
            except StoreError:
                pass

        keys = sorted(self._written)
        await asyncio.gather(*(remove(keys[first::8]) for first in range(8)))
        if denied:
            self._warnings.append(
                f"the credentials may not delete ({denied[0]}): what is merged or past its "
                "retention stays in the bucket and is paid for. Allow s3:DeleteObject."
            )
