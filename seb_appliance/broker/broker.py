"""Puts the parts of the broker together; `api/`, `ui/` and the command socket call the parts.

A write goes: admission → open window → sequencer → bucket → applied → acknowledged. Reads see only
what is applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from seb_appliance.broker.access.access import Access
from seb_appliance.broker.access.accounts import Accounts
from seb_appliance.broker.access.api_keys import LastUsed
from seb_appliance.broker.access.documents import Documents
from seb_appliance.broker.access.grants import Authorizer
from seb_appliance.broker.append.admission import Admission
from seb_appliance.broker.append.appends import Appends
from seb_appliance.broker.append.deduplication import Deduplication
from seb_appliance.broker.append.sequencer import Sequencer
from seb_appliance.broker.append.window import Linger
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.callbacks import tell
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.delays.queue_delays import QueueDelays
from seb_appliance.broker.delays.upkeep import DelayUpkeep
from seb_appliance.broker.gauges import Gauges
from seb_appliance.broker.groups.admission import GroupAdmission
from seb_appliance.broker.groups.consumer_groups import ConsumerGroups
from seb_appliance.broker.lake.commits import TableCommits
from seb_appliance.broker.lake.queries import TableQueries
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.ports import (
    Journal,
    LoadedState,
    SectionSource,
    State,
)
from seb_appliance.broker.queues.work_queues import WorkQueues
from seb_appliance.broker.read.manifests import Manifests
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.read.sections import SectionIndex, SectionReader
from seb_appliance.broker.read.waiting import (
    Follower,
    FollowerOfMany,
    Followers,
    WaitingReaders,
    check_count,
)
from seb_appliance.broker.readiness import ReadinessCheck
from seb_appliance.broker.record_keys.indexing import KeyIndex
from seb_appliance.broker.record_keys.queries import RecordKeys, read_key
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import AllShares, Shares
from seb_appliance.broker.streams.streams import Streams
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.topics.topics import Topics
from seb_appliance.broker.upkeep.tidying import Tidying
from seb_appliance.broker.values import (
    Readiness,
    ReadRequest,
    ReadResult,
    Remembered,
)
from seb_appliance.clock import Clock
from seb_appliance.errors import SebError, StandbyError
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.tasks import Supervisor, in_slices


class Broker:
    """One per process, on one loop; `start` before anything else. `before_us`: see `LogClock`."""

    _writer: asyncio.Task[None] | None = None
    _forgetting: asyncio.Handle | None = None

    def __init__(
        self,
        loaded: LoadedState,
        journal: Journal,
        source: SectionSource,
        state: State,
        settings: BrokerSettings,
        key_index: KeyIndex,
        *,
        clock: Clock,
        executor: Executor,
        random_bytes: Callable[[int], bytes],
        failpoints: Failpoints = NO_FAILPOINTS,
        on_applied: Callable[[], None] = lambda: None,
        last_used: LastUsed | None = None,
        supervisor: Supervisor | None = None,
        before_us: int | None = None,
    ) -> None:
        assert loaded.position.seq <= journal.position.seq, (loaded.position, journal.position)
        self.shares = shares = AllShares()
        self.pending = shares.declare("pending", settings.max_pending_bytes, "bytes that wait")
        # Theirs alone, so that however many they are they take no room from those with API keys.
        self.strangers = shares.declare(
            "strangers", settings.max_pending_bytes, "bytes of clients without an API key"
        )
        self.reading = shares.declare("reading", settings.max_reading_bytes, "bytes of answers")
        self.counters = counters = Counters()
        self.linger = Linger(settings.linger_ms)
        self._settings = settings
        self._supervisor = supervisor or Supervisor(clock)
        self._journal = journal
        self.clock = self._clock = clock
        self._state = state
        self._random_bytes = random_bytes
        self._after_apply = on_applied
        self._catalog = catalog = Catalog(loaded, clock.monotonic_s, shares)
        self.log_clock = LogClock(clock, lambda: catalog.position.created_us, before_us)
        self._sequencer = Sequencer(
            catalog,
            journal,
            source,
            state,
            clock=self.log_clock,
            failpoints=failpoints,
            executor=executor,
            counters=counters,
            linger=self.linger,
            on_applied=self._applied,
        )
        index = SectionIndex(state, counters)
        self._make_reading(index, SectionReader(source, executor, counters), source, key_index)
        self._make_writing(loaded.next_topic_id, last_used, failpoints, index)
        self._make_upkeep(index, source, journal)
        self._make_readiness()
        self.gauges = Gauges(catalog, self._sequencer, shares)

    def _make_reading(
        self,
        index: SectionIndex,
        sections: SectionReader,
        source: SectionSource,
        key_index: KeyIndex,
    ) -> None:
        catalog, clock, shares = self._catalog, self._clock, self.shares
        self._waiting = waiting = WaitingReaders(clock, shares)
        self.followers = Followers(clock, shares)
        self._reads = Reads(catalog, index, sections, waiting, clock, self.counters)
        self.manifests = Manifests(catalog, self._reads, source, self._settings.tidy.grace_ms)
        # Reads of the key index are no consumer's reads, and are counted apart.
        uncounted = Reads(catalog, index, sections, waiting, clock, Counters())
        self.record_keys = RecordKeys(catalog, uncounted, key_index, self.counters, clock, shares)

    def _make_writing(
        self,
        next_topic_id: int,
        last_used: LastUsed | None,
        failpoints: Failpoints,
        index: SectionIndex,
    ) -> None:
        catalog, settings, clock, shares = self._catalog, self._settings, self._clock, self.shares
        authorizer, log_clock = Authorizer(), self.log_clock
        admission = Admission(
            catalog, next_topic_id, settings.effective, log_clock.created_us, shares
        )
        self._writes = writes = Writes(
            admission,
            self._sequencer,
            self._state,
            self.pending,
            self.linger,
            ack_timeout_ms=settings.ack_timeout_ms,
            clock=clock,
            counters=self.counters,
        )
        self.access = Access(
            catalog.api_keys,
            writes,
            last_used or LastUsed({}, clock, lambda: None),
            authorizer,
            clock=clock,
            random_bytes=self._random_bytes,
            shares=shares,
        )
        self.authorize, self.may = self.access.authorize, self.access.may
        self.accounts = Accounts(catalog.users, writes, clock=clock)
        self.tables = catalog.tables
        self.documents = Documents(catalog.documents, writes, clock=clock, shares=shares)
        group_admission = GroupAdmission(admission, catalog.groups, clock)
        self.appends = Appends(
            catalog,
            writes,
            Deduplication(catalog.requests, catalog.producers),
            group_admission,
            authorizer,
            settings,
            self.access.last_used.note,
            durability=self._journal.durability,
            failpoints=failpoints,
        )
        self.topics = Topics(catalog, index, writes, settings, self.linger, clock)
        self.streams = Streams(catalog, writes, self.appends, self._reads, self._waiting, log_clock)
        self.groups = ConsumerGroups(
            catalog, group_admission, self._reads, index, writes, log_clock.age_us
        )
        self._make_queues(admission)

    def _make_queues(self, admission: Admission) -> None:
        self.queues = WorkQueues(
            self._catalog,
            admission,
            self._reads,
            self._waiting,
            self._writes,
            self.log_clock.created_us,
            partial(QueueDelays, self._catalog.delays, self._state, self._clock),
            self.shares,
            self._random_bytes,
            self.groups.lag,
        )

    def _make_upkeep(self, index: SectionIndex, source: SectionSource, journal: Journal) -> None:
        self.tidying = Tidying(
            self._catalog,
            index,
            self._writes,
            source,
            self.log_clock,
            self._settings,
            self.shares,
            self._random_bytes,
            journal,
        )
        self.table_commits = TableCommits(
            self._catalog,
            index,
            self._writes,
            self.log_clock,
            self._settings,
            self._random_bytes,
        )
        self.tidying.held_from = self.table_commits.hold
        self._delays = DelayUpkeep(
            self._catalog,
            self._state,
            self._writes,
            lambda: (live.delayed for live in self.queues.live()),
        )
        self.sql = TableQueries(self.tables, self.table_commits, self.shares, self._clock)

    def _make_readiness(self) -> None:
        self._readiness = ReadinessCheck(
            self._journal,
            self._state,
            self.pending,
            self._clock,
            self._sequencer,
            ack_timeout_ms=self._settings.ack_timeout_ms,
        )
        self.look_for_newer_writer = self._readiness.look_for_newer_writer
        self.record_keys.asked = self.look_for_newer_writer
        self.wait_at_end = self._reads.wait_at_end
        self.offset_at = self._reads.offset_at
        self.newest_record = self._reads.newest
        self.replicate = self._sequencer.replicate
        self.audit = self._state.audit
        self.audited = self._state.audited

    # --- life ---

    def start(self) -> asyncio.Task[None]:
        """Begin to write. The task ends only once nothing can be written any more: `failure`."""
        self._writer = asyncio.create_task(self._sequencer.run(), name="sequencer")
        self.record_keys.start(self._supervisor)
        self.streams.start(self._supervisor)
        self.queues.start(self._supervisor)
        self._delays.start(self._supervisor)
        return self._writer

    def stand_by(self, refusal: StandbyError) -> None:
        """Instead of `start`: refuse writes with `refusal`, and serve what `replicate` is given.
        Called again, it replaces the refusal."""
        if self._sequencer.standby is None:
            self.record_keys.start(self._supervisor)
        self._sequencer.stand_by(refusal)

    @property
    def durability(self) -> str:
        """Where an acknowledged record is: `s3`, `disk` or `memory`."""
        return self._journal.durability

    @property
    def bucket_id(self) -> bytes:
        """16 bytes that differ for each bucket."""
        return self._journal.bucket_id

    @property
    def epoch(self) -> int:
        """The number of this writer, of a standby that of the writer it follows."""
        return self._journal.epoch

    @property
    def stopping(self) -> bool:
        """No more requests are accepted."""
        return self._writes.stopping

    @property
    def failure(self) -> SebError | None:
        """Why nothing can be written any more (FencedError, or a bug)."""
        return self._sequencer.failure

    @property
    def standby(self) -> StandbyError | None:
        """The refusal of every write, if this appliance is a standby."""
        return self._sequencer.standby

    def stop_stretching(self) -> None:
        """If windows are stretched: the open one closes now, and later ones as soon as possible."""
        if self.linger.stretched_s:
            self._sequencer.flush()

    def stop_accepting(self) -> None:
        """New writes are refused, waiting readers go, what is in the window is sealed now."""
        self._writes.stopping = True
        self._waiting.stop()
        self.queues.stop_waiting()
        self.followers.stop()
        self._sequencer.flush()

    async def drain(self, grace_s: float) -> bool:
        """Whether everything admitted was stored and acknowledged within `grace_s` seconds."""
        until_s = self._clock.monotonic_s() + grace_s
        while not self._sequencer.is_idle and self.failure is None:
            if self._clock.monotonic_s() >= until_s:
                return False
            await self._clock.sleep(0.01)
        return self.failure is None

    async def stop(self) -> None:
        """End the writer. What was not drained fails as "unknown"."""
        self.stop_accepting()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        await self.streams.stop()
        await self.queues.stop()
        await self._delays.close()
        await self.record_keys.stop()

    @property
    def waiting_readers(self) -> int:
        return self._waiting.shares.used

    @property
    def remembered(self) -> Remembered:
        requests, producers = self._catalog.requests, self._catalog.producers
        return Remembered(
            len(requests), requests.shares.used, requests.reaches_back_to_us, len(producers)
        )

    async def readiness(self) -> Readiness:
        """Whether this appliance takes reads and writes, and if not why."""
        readiness = await self._readiness.check()
        readiness.problems.extend(self._supervisor.problems)
        if self.stopping:
            readiness.problems.append("the appliance is stopping")
        return readiness

    # --- records ---

    async def read(self, topic: str, request: ReadRequest) -> ReadResult:
        """Records as of the last applied entry; see `Reads.read` for what is raised."""
        self._readiness.look_for_newer_writer()
        return await self._reads.read(topic, request)

    async def read_key(self, topic: str, request: ReadRequest, key: bytes) -> ReadResult:
        """As `read`, but only records with this record key; see `keyed_reads.read_key`."""
        self._readiness.look_for_newer_writer()
        return await read_key(self._reads, topic, request, key)

    def read_nowait(
        self, topic: str, request: ReadRequest, *, waits: bool = True
    ) -> ReadResult | None:
        """As `read`, if it need not wait for anything: neither for a record (which it never does
        unless it `waits`) nor for bytes that are not in memory. Else None. Does no I/O."""
        self._readiness.look_for_newer_writer()
        return self._reads.read_nowait(topic, request, waits=waits)

    def follow(self, topic: str, owner: str) -> Follower:
        """Be woken whenever the topic changes; `owner`: on whose behalf. Raises
        TopicNotFoundError, OverloadedError, ShuttingDownError."""
        return self.followers.follow(self._catalog.topic(topic), owner)

    async def follow_many(
        self,
        wants: Callable[[str], bool],
        owner: str,
        *,
        is_limited: bool = True,
        room: Shares | None = None,
    ) -> FollowerOfMany:
        """Be woken whenever a topic changes whose name is wanted, also one that is made later.
        Raises BadParameterError for too many, OverloadedError, ShuttingDownError."""
        topics = self._catalog.unsorted()
        newest_id = max((topic.topic_id for topic in topics), default=0)
        follower = self.followers.follow_many(wants, newest_id, owner, room)
        try:
            await self.meet_all(follower, is_limited=is_limited)
        except BaseException:
            follower.__exit__(None, None, None)
            raise
        return follower

    async def meet_all(self, follower: FollowerOfMany, *, is_limited: bool = True) -> None:
        """What it wants has changed: it takes topics up that it did not want before. Raises
        BadParameterError for too many."""
        async for topic in in_slices(self._catalog.topics()):
            follower.meet(topic)
            if is_limited:
                check_count(follower.topics)

    # --- inside ---

    def _applied(self, changed: list[Topic]) -> None:
        tell(self._waiting.wake, changed)
        tell(self._catalog.forget_paged, self._state.paged_seq)
        tell(self.followers.wake, changed)
        tell(self.record_keys.indexing.applied, changed)
        tell(self.streams.applied, changed)
        tell(self.queues.applied, changed)
        tell(self._after_apply)
        if self._forgetting is None and any(topic.deleted for topic in changed):
            self._forget_some()

    def _forget_some(self) -> None:
        """What deleted topics left behind goes in slices, between which others have their turn."""
        self._forgetting = None
        if self._catalog.groups.forget_some():
            self._forgetting = asyncio.get_running_loop().call_soon(self._forget_some)
