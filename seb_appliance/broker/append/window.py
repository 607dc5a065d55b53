"""The open window: records and events that are admitted and not sealed yet, in admission order.

A window becomes one journal entry. For each topic it holds runs of records: the records of
neighbouring plain appends become one batch at sealing; batches made by clients stay as they are.
Only the methods of `Window` change it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from seb_appliance import limits
from seb_appliance.broker.callbacks import tell
from seb_appliance.broker.values import NewBatches, NewRecords, Prepared
from seb_appliance.formats.batch import BatchHeader
from seb_appliance.formats.compression import Compressor
from seb_appliance.formats.contents import ProducerAppend, RequestResult, encoded_bytes
from seb_appliance.formats.operations import Event
from seb_appliance.formats.queues.queues import Delay
from seb_appliance.formats.topic_settings import TopicSettings

# Estimates of the bytes that these take in the entry's table of contents.
_EVENT_BYTES: Final = 512  # at least, of one that is measured
_RESULT_BYTES: Final = 48
_PRODUCED_BYTES: Final = 40
_PRODUCER_APPEND_BYTES: Final = 80
_DELAY_BYTES: Final = 24


@dataclass(slots=True)
class PlainRun:
    """Records of neighbouring plain appends. `keys` and `headers` are None until one record has
    them."""

    values: list[bytes | None] = field(default_factory=list)
    timestamps_us: list[int] = field(default_factory=list)
    keys: list[bytes | None] | None = None
    headers: list[bytes] | None = None

    def add(self, records: NewRecords, timestamps_us: list[int]) -> None:
        before, count = len(self.values), len(records.values)
        if records.keys is not None and self.keys is None:
            self.keys = [None] * before
        if records.headers is not None and self.headers is None:
            self.headers = [b""] * before
        self.values += records.values
        self.timestamps_us += timestamps_us
        if self.keys is not None:
            self.keys += records.keys if records.keys is not None else [None] * count
        if self.headers is not None:
            self.headers += records.headers if records.headers is not None else [b""] * count


@dataclass(slots=True)
class ClientRun:
    """Batches made by a client: each header as it came, and the bytes after it."""

    batches: list[tuple[BatchHeader, memoryview]]


@dataclass(slots=True)
class TopicRuns:
    """All that one window holds for one topic, in offset order. `compressor` is for plain runs;
    None stores them uncompressed."""

    topic_id: int
    base_offset: int
    next_offset: int
    compressor: Compressor | None = None
    runs: list[PlainRun | ClientRun] = field(default_factory=list)
    producers: list[ProducerAppend] = field(default_factory=list)
    delays: list[Delay] = field(default_factory=list)

    def add_value(self, value: bytes, timestamp_us: int) -> None:
        """Add one record with neither record key nor headers."""
        run = self.runs[-1] if self.runs else None
        if isinstance(run, PlainRun) and run.keys is None and run.headers is None:
            run.values.append(value)
            run.timestamps_us.append(timestamp_us)
        else:
            self._plain_run().add(NewRecords([value]), [timestamp_us])
        self.next_offset += 1

    def add(self, prepared: Prepared | Gathered) -> None:
        for one in prepared.delays:
            self.delays.append(Delay(self.next_offset + one.offset, one.count, one.due_us))
        if isinstance(prepared, Gathered):
            self.runs += prepared.runs
        elif isinstance(prepared.records, NewBatches):
            self.runs.append(ClientRun(prepared.records.batches))
        else:
            self._plain_run().add(prepared.records, prepared.timestamps_us)
        self.next_offset += prepared.count

    def _plain_run(self) -> PlainRun:
        run = self.runs[-1] if self.runs else None
        if not isinstance(run, PlainRun):
            run = PlainRun()
            self.runs.append(run)
        return run


class Gathered:
    """Records of one topic from several requests, checked one after another; all of them are placed
    at once. As `Prepared` of all."""

    def __init__(self) -> None:
        self._topic = TopicRuns(0, 0, 0)
        self.size_bytes = 0
        self.timestamp_us = 0

    @property
    def count(self) -> int:
        return self._topic.next_offset

    @property
    def runs(self) -> list[PlainRun | ClientRun]:
        return self._topic.runs

    @property
    def delays(self) -> Sequence[Delay]:
        return self._topic.delays

    def add(self, prepared: Prepared) -> None:
        self._topic.add(prepared)
        self.size_bytes += prepared.size_bytes
        self.timestamp_us = prepared.timestamp_us


Placeable: TypeAlias = Prepared | Gathered


class Window:
    """`steps` are events and, at the place of a topic's first append, the topic's id. A window
    is done when its entry was applied, or never will be because the writer is fenced."""

    def __init__(self) -> None:
        self.deadline_s = float("inf")
        self.is_done = False
        self.steps: list[Event | int] = []
        self.topics: dict[int, TopicRuns] = {}
        self.results: list[RequestResult] = []
        self.size_bytes = 0
        self.is_full = False
        self.callers = 0
        self.opened_s = 0.0  # when the first caller joined
        self.compresses = False  # whether sealing compresses any of it
        self.sealed_s = 0.0
        self._on_stored: list[Callable[[float], None]] = []
        self._on_failed: list[Callable[[Exception], None]] = []

    @property
    def is_empty(self) -> bool:
        return not self.steps

    @property
    def is_in_use(self) -> bool:
        """Whether it holds something, or a caller waits for it."""
        return bool(self.steps or self.callers)

    # --- what is admitted ---

    def add_value(
        self,
        topic_id: int,
        next_offset: int,
        compressor: Compressor | None,
        value: bytes,
        timestamp_us: int,
        size_bytes: int,
    ) -> None:
        """Add one record with neither record key nor headers, at `next_offset` of the topic."""
        runs = self.topics.get(topic_id)
        if runs is None:
            runs = self._begin_topic(topic_id, next_offset, compressor)
        runs.add_value(value, timestamp_us)
        self.size_bytes += size_bytes

    def add_records(
        self, topic_id: int, next_offset: int, compressor: Compressor | None, prepared: Placeable
    ) -> None:
        runs = self.topics.get(topic_id)
        if runs is None:
            runs = self._begin_topic(topic_id, next_offset, compressor)
        runs.add(prepared)
        self.size_bytes += prepared.size_bytes + _DELAY_BYTES * len(prepared.delays)

    def _begin_topic(
        self, topic_id: int, next_offset: int, compressor: Compressor | None
    ) -> TopicRuns:
        runs = self.topics[topic_id] = TopicRuns(topic_id, next_offset, next_offset, compressor)
        self.compresses |= compressor is not None
        self.steps.append(topic_id)
        return runs

    def add_event(self, event: Event, size_bytes: int | None = None) -> None:
        """`size_bytes`: in the table of contents; None: it is measured."""
        if size_bytes is None:
            size_bytes = max(_EVENT_BYTES, encoded_bytes(event))
        self.steps.append(event)
        self.size_bytes += size_bytes

    def add_result(self, result: RequestResult) -> None:
        """Remember what a request with an Idempotency-Key did."""
        self.results.append(result)
        self.size_bytes += _RESULT_BYTES + _PRODUCED_BYTES * len(result.produced)

    def add_producer(self, topic_id: int, append: ProducerAppend) -> None:
        """Remember a producer's append to a topic that has records in this window."""
        self.topics[topic_id].producers.append(append)
        self.size_bytes += _PRODUCER_APPEND_BYTES + len(append.producer_id.encode())

    # --- when it closes ---

    def holds(self, records: int) -> bool:
        """Whether it has so many records, or twice as many requests: a record is sent and
        acknowledged."""
        if max(self.callers // 2, len(self.topics)) >= records:
            return True
        held = sum(runs.next_offset - runs.base_offset for runs in self.topics.values())
        return held >= records

    def join(self, now_s: float, deadline_s: float) -> bool:
        """One more caller waits for this window, which closes at `deadline_s` at the latest, and
        now if it is full. Whether it closes earlier than before."""
        if not self.callers:
            self.opened_s = now_s
        self.callers += 1
        if self.size_bytes >= limits.WINDOW_BYTES_MAX:
            self.is_full = True
            deadline_s = now_s
        if deadline_s >= self.deadline_s:
            return False
        self.deadline_s = deadline_s
        return True

    def begin_sealing(self, now_s: float) -> None:
        self.sealed_s = now_s

    def drop_records(self) -> None:
        """The sealed entry holds the records now."""
        self.topics = {}

    # --- when it is done ---

    def when_done(
        self, on_stored: Callable[[float], None], on_failed: Callable[[Exception], None]
    ) -> None:
        """Call one of them: `on_stored` with the seconds that the PUT took, or `on_failed`."""
        self._on_stored.append(on_stored)
        self._on_failed.append(on_failed)

    def resolve(self, put_s: float) -> None:
        for callback in self._on_stored:
            tell(callback, put_s)
        self._end()

    def fail(self, error: Exception) -> None:
        for callback in self._on_failed:
            tell(callback, error)
        self._end()

    def _end(self) -> None:
        """Free everything: a topic may refer to the window that changed it last for a long time.
        `results` live on in the entry."""
        self.is_done = True
        self.steps = []
        self.topics = {}
        self.results = []
        self._on_stored = []
        self._on_failed = []


class Linger:
    """How long windows stay open: `default_ms`, or less if they hold `enough` records after the
    linger of the settings, `shortest_ms` (None: no number is enough). Upkeep of the cost changes
    the other two; a window that is open already keeps its deadline."""

    def __init__(self, default_ms: int) -> None:
        self.default_ms = default_ms
        self.enough: int | None = None
        self.shortest_ms = max(1, default_ms)

    @property
    def stretched_s(self) -> float:
        """By how much windows are longer than the settings say."""
        return max(0, self.default_ms - self.shortest_ms) / 1000

    @property
    def stretch(self) -> float:
        """By which factor the budget makes windows longer."""
        return 1.0 if self.enough else max(1.0, self.default_ms / self.shortest_ms)

    def of(self, settings: TopicSettings) -> int:
        """How many ms a window may wait for a topic with these settings, as set."""
        return self.default_ms if settings.linger_ms is None else settings.linger_ms

    def within(self, linger_ms: int, patience_ms: int) -> int:
        """`linger_ms`, or less if it is stretched and its caller waits for `patience_ms` only: the
        bucket has half of that, or as much as it has where callers wait for 30 s."""
        if linger_ms != self.default_ms:
            return linger_ms
        most_ms = max(patience_ms // 2, patience_ms - limits.PUT_MS_LEFT)
        return min(linger_ms, max(self.shortest_ms, most_ms))

    def due_s(self, window: Window, now_s: float) -> float:
        """When `window` is to be closed: now, or when to ask again. What comes in one burst waits
        for one linger of the settings at most, as in a window that is not stretched."""
        if self.enough is None or window.deadline_s <= now_s:
            return window.deadline_s
        shortest_s = self.shortest_ms / 1000
        ask_s = window.opened_s + shortest_s
        if ask_s <= now_s:
            ask_s = now_s if window.holds(self.enough) else now_s + shortest_s
        return min(window.deadline_s, ask_s)
