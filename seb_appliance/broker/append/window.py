"""The open window: what has arrived and is not sealed, in admission order.

A window is one journal entry to be. It holds, per topic, runs of records: plain appends that lie
side by side become one batch when the window is sealed, client-made batches stay as they came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from seb_appliance import limits
from seb_appliance.broker.callbacks import tell
from seb_appliance.broker.values import NewRecords
from seb_appliance.formats.batch import BatchHeader
from seb_appliance.formats.compression import Compressor
from seb_appliance.formats.contents import ProducerAppend, RequestResult
from seb_appliance.formats.operations import Event
from seb_appliance.formats.topic_settings import TopicSettings


@dataclass(slots=True)
class PlainRun:
    """Records of neighbouring plain appends. The optional columns are absent until one needs
    them. `size_bytes`: about what they take when encoded."""

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
    """Batches that a client made: headers as they came, and the bytes that follow each."""

    batches: list[tuple[BatchHeader, memoryview]]


@dataclass(slots=True)
class TopicRuns:
    """All that one window holds for one topic, in offset order. `compressor`: for its plain runs,
    if they are to be stored compressed."""

    topic_id: int
    base_offset: int
    next_offset: int
    compressor: Compressor | None = None
    runs: list[PlainRun | ClientRun] = field(default_factory=list)
    producers: list[ProducerAppend] = field(default_factory=list)

    def add_value(self, value: bytes, timestamp_us: int) -> None:
        """One record with neither record key nor headers."""
        run = self.runs[-1] if self.runs else None
        if isinstance(run, PlainRun) and run.keys is None and run.headers is None:
            run.values.append(value)
            run.timestamps_us.append(timestamp_us)
            self.next_offset += 1
        else:
            self.add_plain(NewRecords([value]), [timestamp_us])

    def add_plain(self, records: NewRecords, timestamps_us: list[int]) -> None:
        if not self.runs or not isinstance(self.runs[-1], PlainRun):
            self.runs.append(PlainRun())
        run = self.runs[-1]
        assert isinstance(run, PlainRun)
        run.add(records, timestamps_us)
        self.next_offset += len(records.values)

    def add_batches(self, batches: list[tuple[BatchHeader, memoryview]]) -> None:
        self.runs.append(ClientRun(batches))
        self.next_offset += sum(header.count for header, _ in batches)


class Window:
    """`steps` are events and, at the place of a topic's first append, its id. A window
    is done when its entry was applied, or never will be (fenced)."""

    def __init__(self) -> None:
        self.deadline_s = float("inf")
        self.is_done = False
        self.steps: list[Event | int] = []
        self.topics: dict[int, TopicRuns] = {}
        self.results: list[RequestResult] = []
        self.size_bytes = 0
        self.callers = 0
        self.opened_s = 0.0  # when the first of them came
        self.compresses = False  # some of it, when it is sealed
        self.sealed_s = 0.0
        self._on_stored: list[Callable[[float], None]] = []
        self._on_failed: list[Callable[[Exception], None]] = []

    @property
    def is_empty(self) -> bool:
        return not self.steps

    @property
    def is_in_use(self) -> bool:
        """It holds something, or somebody waits for it."""
        return bool(self.steps or self.callers)

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= limits.WINDOW_BYTES_MAX

    def runs_of(self, topic_id: int, next_offset: int, compressor: Compressor | None) -> TopicRuns:
        """The topic's runs in this window, begun at `next_offset` and with that `compressor` when
        it has none yet."""
        runs = self.topics.get(topic_id)
        if runs is None:
            runs = TopicRuns(topic_id, next_offset, next_offset, compressor)
            self.topics[topic_id] = runs
            self.compresses |= compressor is not None
            self.steps.append(topic_id)
        return runs

    def add_event(self, event: Event, size_bytes: int = 512) -> None:
        """`size_bytes`: about what the event takes in the table of contents."""
        self.steps.append(event)
        self.size_bytes += size_bytes

    def when_done(
        self, on_stored: Callable[[float], None], on_failed: Callable[[Exception], None]
    ) -> None:
        """Call one of them: `on_stored` with the seconds the bucket took, `on_failed` with why."""
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
        """Let go of everything: others may hold on to the window for long, as a topic does to the
        one that changed it last. What is in the entry (`results`) lives on there."""
        self.is_done = True
        self.steps = []
        self.topics = {}
        self.results = []
        self._on_stored = []
        self._on_failed = []


# How long windows stay open for topics that set nothing themselves.


class Linger:
    """`default_ms`: of now. Whoever keeps to a budget changes it; a window that is open already
    keeps the time that it has."""

    def __init__(self, default_ms: int) -> None:
        self.default_ms = default_ms

    def of(self, settings: TopicSettings) -> int:
        """How long a window may wait for a topic with these settings, as they were set, in ms."""
        return self.default_ms if settings.linger_ms is None else settings.linger_ms
