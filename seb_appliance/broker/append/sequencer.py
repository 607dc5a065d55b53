"""The writer's loop: close a window, seal it, PUT one entry, apply it, acknowledge.

One entry is in flight while the next window fills and, once it is full, is encoded. A sealed entry
is never abandoned: the journal retries the same bytes until the bucket's answer is definite.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeAlias

from seb_appliance.broker.append.sealing import seal
from seb_appliance.broker.append.window import Linger, Window
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.ports import Journal, SectionSource, State
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.clock import Timer
from seb_appliance.errors import (
    FencedError,
    InternalError,
    OutcomeUnknownError,
    SebError,
    StandbyError,
)
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.entry import EncodedEntry, Encoder, Entry

_SEAL_IN_THREAD_BYTES: Final = 64 * 1024
_COMPRESS_IN_THREAD_BYTES: Final = 8 * 1024
_GATHERED_SHARE: Final = 0.25  # of the time of the PUT before

# An entry, and the sizes of its compressed batches in bytes, before and after.
_Encoded: TypeAlias = tuple[EncodedEntry, tuple[int, int]]


def _entry_of(window: Window, created_us: int, encode: Encoder) -> _Encoded:
    """One call, so that it takes one visit to a thread: while the event loop reads many requests,
    the way there and back takes longer than the work."""
    sealed = seal(window, created_us)
    window.drop_records()
    encoded = encode(sealed.contents, sealed.parts)
    return encoded, (sealed.plain_bytes, sealed.packed_bytes)


class Sequencer:
    """Owns the windows and the order of all entries. `run` is one long-lived task.

    `failure`: why nothing can be written any more. `standby`: the refusal of every write, at an
    appliance that only replicates another one's entries.
    """

    def __init__(
        self,
        catalog: Catalog,
        journal: Journal,
        source: SectionSource,
        state: State,
        *,
        clock: LogClock,
        failpoints: Failpoints,
        executor: Executor,
        counters: Counters,
        linger: Linger,
        on_applied: Callable[[list[Topic]], None],
    ) -> None:
        self._catalog = catalog
        self._journal = journal
        self._source = source
        self._state = state
        self._clock = clock
        self._failpoints = failpoints
        self._executor = executor
        self._counters = counters
        self._linger = linger
        self._on_applied = on_applied
        self._open: Window | None = None
        self._full: deque[Window] = deque()
        self._in_flight: Window | None = None
        self._is_appending = False
        self._gathers_until_s = 0.0
        self._ahead: asyncio.Future[_Encoded] | None = None  # of the first of `_full`
        self._wake = asyncio.Event()
        self._timer: Timer | None = None
        self._timer_at_s = float("inf")
        self._flushing = False
        self.failure: SebError | None = None
        self.standby: StandbyError | None = None
        self.refusal: SebError | None = None  # of every write: `failure`, or `standby`

    # --- called by admission ---

    def open_window(self) -> Window:
        """The window that takes what is admitted now. Raises `refusal`."""
        if self.refusal is not None:
            raise self.refusal
        if self._open is None:
            self._open = Window()
        return self._open

    def close_within(
        self, window: Window, linger_s: float, *, early: bool = False, now_s: float | None = None
    ) -> None:
        """One more caller waits for `window`: it closes when it is full, and in `linger_s` at the
        latest; immediately if `early` and no other window or caller waits."""
        if now_s is None:
            now_s = self._clock.monotonic_s()
        closes_now = early and not (window.callers or self._full or self._in_flight is not None)
        closes_earlier = window.join(now_s, now_s if closes_now else now_s + linger_s)
        if window.is_full:
            self._open = None
            self._full.append(window)
            self._encode_ahead()
            self._wake.set()
        elif closes_now:
            self._wake.set()
        elif closes_earlier:
            self._arm(self._linger.due_s(window, now_s))

    def flush(self) -> None:
        """Close the open window now, and every later one as soon as it is used (for stopping)."""
        self._flushing = True
        self._wake.set()

    def fail(self, error: SebError) -> None:
        """Write nothing any more; everything that waits fails with `error`."""
        self.failure = self.refusal = self.failure or error
        if self._timer is not None:
            self._timer.cancel()
        if self._ahead is not None:
            self._ahead.cancel()
        for window in (self._in_flight, *self._full, self._open):
            if window is not None and not window.is_done:
                window.fail(self.failure)
        self._in_flight = self._open = None
        self._full.clear()
        self._wake.set()

    def stand_by(self, refusal: StandbyError) -> None:
        """Refuse every write with `refusal`, instead of `run`. Called again, it replaces the
        refusal."""
        assert self._open is None, "nothing was admitted"
        self.standby = self.refusal = refusal

    async def replicate(self, entry: Entry) -> None:
        """Apply the next entry, which another appliance wrote. One call at a time."""
        assert self.standby is not None, "only a standby replicates"
        self._on_applied(await self._apply_entry(entry))

    @property
    def open_bytes(self) -> int:
        """About how many bytes the open window holds."""
        return self._open.size_bytes if self._open is not None else 0

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing is in flight."""
        waits = self._full or (self._open is not None and self._open.is_in_use)
        return not waits and self._in_flight is None

    @property
    def late_s(self) -> float:
        """For how long the oldest window has been past its deadline; 0 if it is not."""
        oldest = self._in_flight or (self._full[0] if self._full else self._open)
        return max(0.0, self._clock.monotonic_s() - oldest.deadline_s) if oldest else 0.0

    @property
    def is_storing(self) -> bool:
        """Whether a window is in flight, so that the others wait for it."""
        return self._in_flight is not None

    # --- the loop ---

    async def run(self) -> None:
        """Runs until it is cancelled or cannot write any more (`failure`)."""
        try:
            while True:
                window = await self._next_window()
                self._in_flight = window
                encoded, put_s = await self._store(window)
                await self._apply(window, encoded, put_s)
                self._in_flight = None
                self._gather(put_s)
                if self._state.pause_s > 0:
                    await self._clock.sleep(self._state.pause_s)
        except FencedError as error:
            self.fail(error)
        except asyncio.CancelledError:
            self.fail(
                OutcomeUnknownError(
                    "The appliance stopped before the bucket answered. The request may still be "
                    "stored: read the topic before you send it again."
                )
            )
            raise
        except Exception as error:
            self.fail(InternalError(f"the writer stopped: {error!r}"))
            raise

    def _gather(self, put_s: float) -> None:
        """A window that waited for the entry in flight longer than its linger stays open a little
        for the answers' next requests. Else they would always miss it, and wait for two PUTs."""
        window, now_s = self._open, self._clock.monotonic_s()
        if window is not None and window.deadline_s <= now_s:
            linger_s = window.deadline_s - window.opened_s
            self._gathers_until_s = now_s + min(linger_s, put_s * _GATHERED_SHARE)

    async def _next_window(self) -> Window:
        while self.failure is None:
            if self._full:
                return self._full.popleft()
            window = self._open
            if window is not None and window.is_in_use:
                now_s = self._clock.monotonic_s()
                due_s = max(self._linger.due_s(window, now_s), self._gathers_until_s)
                if self._flushing or due_s <= now_s:
                    self._open = None
                    if not window.is_empty:
                        return window
                    window.resolve(0.0)  # everything its callers wait for is stored
                    continue
                self._arm(due_s)
            self._wake.clear()
            await self._wake.wait()
        raise self.failure

    async def _store(self, window: Window) -> tuple[EncodedEntry, float]:
        window.begin_sealing(self._clock.monotonic_s())
        inline_bytes = _COMPRESS_IN_THREAD_BYTES if window.compresses else _SEAL_IN_THREAD_BYTES
        if self._ahead is not None or window.size_bytes > inline_bytes:
            encoding, self._ahead = self._ahead or self._encoding(window), None
            encoded, sizes = await encoding
        else:
            encoded, sizes = _entry_of(*self._to_encode(window))
        self._counters.note_compressed(*sizes)
        self._failpoints.reach("K3")
        self._is_appending = True
        self._encode_ahead()
        await self._journal.append(encoded)
        self._is_appending = False
        return encoded, self._clock.monotonic_s() - window.sealed_s

    def _encode_ahead(self) -> None:
        """Encode the next window while an entry is appended, if nothing can join it any more."""
        can = self._is_appending and self._journal.encodes_ahead
        if can and self._full and self._ahead is None:
            self._ahead = self._encoding(self._full[0])

    def _encoding(self, window: Window) -> asyncio.Future[_Encoded]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._executor, _entry_of, *self._to_encode(window))

    def _to_encode(self, window: Window) -> tuple[Window, int, Encoder]:
        created_us = self._clock.created_us()
        return window, created_us, self._journal.encoder(created_us)

    async def _apply(self, window: Window, encoded: EncodedEntry, put_s: float) -> None:
        self._source.keep(encoded)
        changed = await self._apply_entry(encoded.entry)
        open_s = window.sealed_s - window.opened_s
        self._counters.note_entry(encoded.entry, window.callers, put_s, open_s)
        self._failpoints.reach("K10")
        window.resolve(put_s)
        # Callers hear first, and then whoever else waits for the entry.
        asyncio.get_running_loop().call_soon(self._on_applied, changed)

    async def _apply_entry(self, entry: Entry) -> list[Topic]:
        """Returns the topics that changed."""
        changed = self._catalog.apply(entry)
        for _ in self._catalog.steps():
            await asyncio.sleep(0)
        self._state.follow(entry)
        return changed

    def _arm(self, deadline_s: float) -> None:
        """Wake the loop at `deadline_s`. One timer at a time: none while nothing waits."""
        if self._timer is not None and self._timer_at_s <= deadline_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = deadline_s
        delay_s = max(0.0, deadline_s - self._clock.monotonic_s())
        self._timer = self._clock.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at_s = float("inf")
        self._wake.set()
