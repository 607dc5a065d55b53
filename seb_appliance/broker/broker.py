"""The facade that `api/`, `ui/` and the command socket call.

Writes go: admission (here and in admission.py) → open window → sequencer → bucket → applied →
acknowledged. Reads see only what is applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

import msgspec

from seb_appliance import limits
from seb_appliance.broker import api_keys
from seb_appliance.broker.api_keys import NewSecret
from seb_appliance.broker.appending import (
    NO_CONDITIONS,
    Conditions,
    Transacted,
    Transaction,
)
from seb_appliance.broker.budget import ByteBudget, Reservation
from seb_appliance.broker.catalog import Catalog, Topic
from seb_appliance.broker.consumer_groups import ConsumerGroups
from seb_appliance.broker.counters import Counters
from seb_appliance.broker.names import check_pattern, check_topic_name
from seb_appliance.broker.ports import Journal, LoadedState, SectionSource, State
from seb_appliance.broker.readiness import ReadinessCheck
from seb_appliance.broker.reads import Reads
from seb_appliance.broker.sections import SectionReader
from seb_appliance.broker.sequencer import Sequencer
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.values import (
    ApiKeyView,
    Appended,
    NewBatches,
    NewRecords,
    Readiness,
    ReadRequest,
    ReadResult,
    TopicView,
)
from seb_appliance.broker.waiting import WaitingReaders
from seb_appliance.broker.window import Window
from seb_appliance.broker.writes import Writes
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    ApiKeyNotFoundError,
    BadRequestError,
)
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.formats.operations import ApiKeyCreated, Grant, TopicSettings


class Broker:
    """One per process. All methods run on one event loop; `start` before anything else."""

    _writer: asyncio.Task[None] | None = None

    def __init__(
        self,
        loaded: LoadedState,
        journal: Journal,
        source: SectionSource,
        state: State,
        settings: BrokerSettings,
        *,
        clock: Clock,
        executor: Executor,
        random_bytes: Callable[[int], bytes],
        failpoints: Failpoints = NO_FAILPOINTS,
        on_applied: Callable[[], None] = lambda: None,
    ) -> None:
        assert loaded.position.seq <= journal.position.seq, (loaded.position, journal.position)
        self.pending = ByteBudget(settings.max_pending_bytes, "records that wait for the bucket")
        self.reading = ByteBudget(settings.max_reading_bytes, "answers that are being read")
        self.counters = Counters()
        self._settings = settings
        self._clock = clock
        self._random_bytes = random_bytes
        self._after_apply = on_applied
        self._catalog = Catalog(loaded, clock.monotonic_s)
        self._waiting = WaitingReaders(clock)
        self._sequencer = Sequencer(
            self._catalog,
            journal,
            source,
            state,
            clock=clock,
            failpoints=failpoints,
            executor=executor,
            counters=self.counters,
            on_applied=self._applied,
        )
        self._reads = Reads(
            self._catalog, SectionReader(source, executor), self._waiting, clock, self.counters
        )
        self._writes = Writes(
            self._catalog,
            loaded.next_topic_id,
            self._sequencer,
            state,
            settings,
            durability=journal.durability,
            clock=clock,
            counters=self.counters,
            failpoints=failpoints,
        )
        self.groups = ConsumerGroups(
            self._catalog,
            self._writes.group_admission,
            self._reads,
            self._writes.operate,
            linger_ms=settings.linger_ms,
            clock=clock,
        )
        self._readiness = ReadinessCheck(journal, state, self.pending, clock, self._sequencer)

    # --- life ---

    def start(self) -> asyncio.Task[None]:
        """Begin to write. The task ends only when nothing can be written any more: `failure`."""
        self._writer = asyncio.create_task(self._sequencer.run(), name="sequencer")
        return self._writer

    @property
    def stopping(self) -> bool:
        """Nothing new is taken any more."""
        return self._writes.stopping

    @property
    def failure(self) -> Exception | None:
        """Why nothing is written any more (FencedError, or a bug); None while all is well."""
        return self._sequencer.failure

    def stop_accepting(self) -> None:
        """New writes are refused, waiting readers go, what is in the window is sealed now."""
        self._writes.stopping = True
        self._waiting.stop()
        self._sequencer.flush()

    async def drain(self, grace_s: float) -> bool:
        """Whether everything admitted was stored and acknowledged within `grace_s` seconds."""
        give_up_s = self._clock.monotonic_s() + grace_s
        while not self._sequencer.is_idle and self.failure is None:
            if self._clock.monotonic_s() >= give_up_s:
                return False
            await self._clock.sleep(0.01)
        return self.failure is None

    async def stop(self) -> None:
        """End the writer. What was not drained fails as "unknown"."""
        self.stop_accepting()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    @property
    def waiting_readers(self) -> int:
        return self._waiting.count

    async def readiness(self) -> Readiness:
        """Whether this appliance takes reads and writes, and if not why."""
        readiness = await self._readiness.check()
        if self.stopping:
            readiness.problems.append("the appliance is stopping")
        return readiness

    # --- records ---

    async def append(
        self,
        key: ApiKeyView,
        topic: str,
        records: NewRecords | NewBatches,
        reservation: Reservation,
        timeout_ms: int | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Appended:
        """Admit, and answer when the bucket has them (all of them, in order, in one entry).

        Takes `reservation` over: it is released when the records wait no longer. Raises
        TopicNotFoundError, RecordTooLargeError, BadBatchError, OverloadedError,
        ShuttingDownError, FencedError; OutcomeUnknownError after `timeout_ms`; for `conditions`
        IdempotencyMismatchError, SequenceGapError, StaleEpochError, PreconditionFailedError.
        """
        return await self._writes.append(key, topic, records, reservation, timeout_ms, conditions)

    async def transact(
        self,
        key: ApiKeyView,
        transaction: Transaction,
        reservation: Reservation,
        timeout_ms: int | None = None,
    ) -> Transacted:
        """Records to several topics and a group's offsets, in one entry or not at all.

        Raises what `append` and `ConsumerGroups.commit` raise. Takes `reservation` over.
        """
        return await self._writes.transact(key, transaction, reservation, timeout_ms)

    async def read(self, topic: str, request: ReadRequest) -> ReadResult:
        """Records as of the last applied entry; see `Reads.read` for what is raised."""
        self._readiness.look_for_newer_writer()
        return await self._reads.read(topic, request)

    # --- topics ---

    def topic(self, name: str) -> TopicView:
        """Raises TopicNotFoundError."""
        return self._view(self._catalog.topic(name))

    def topics(self) -> list[TopicView]:
        """All topics, by name."""
        return [self._view(topic) for topic in self._catalog.topics()]

    async def create_topic(self, name: str, settings: TopicSettings) -> tuple[TopicView, bool]:
        """The topic, and whether it was made now. Raises TopicDiffersError when it exists with
        other settings, BadNameError, BadRequestError."""
        check_topic_name(name)
        self._settings.check(settings)

        made = await self._writes.operate(
            lambda window: self._writes.admission.admit_topic_created(
                window, name, settings, self._clock.wall_us()
            )
        )
        if not made:
            await self._writes.once_stored(self._writes.admission.changed_in(name))
        return self.topic(name), made

    async def change_topic(self, name: str, changes: dict[str, int | bool | None]) -> TopicView:
        """Change the settings named in `changes`; None goes back to the default."""

        def admit(window: Window) -> None:
            known = self._writes.admission.find(name)
            if known is None:
                raise self._writes.admission.missing(name)
            settings = msgspec.structs.replace(known.settings, **changes)
            self._settings.check(settings)
            self._writes.admission.admit_topic_changed(window, name, settings)

        await self._writes.operate(admit)
        return self.topic(name)

    async def delete_topic(self, name: str) -> None:
        """The topic and its records are gone; a new one of that name starts at offset 0."""
        await self._writes.operate(
            lambda window: self._writes.admission.admit_topic_deleted(window, name)
        )

    # --- API keys ---

    def authenticate(self, token: str) -> ApiKeyView:
        """The API key of a token. Raises UnauthenticatedError."""
        return self._catalog.api_keys.authenticate(token, self._clock.wall_us())

    def authorize(
        self, key: ApiKeyView, operation: str, topic: str | None = None, group: str | None = None
    ) -> None:
        """Raises ForbiddenError that names the missing grant. `admin` grants everything."""
        api_keys.authorize(key, operation, topic, group)

    def may(
        self, key: ApiKeyView, operation: str, topic: str | None = None, group: str | None = None
    ) -> bool:
        return api_keys.may(key, operation, topic, group)

    def api_keys(self) -> list[ApiKeyView]:
        """All that are in force or expired, oldest first; revoked ones are gone."""
        return self._catalog.api_keys.all()

    def api_key(self, api_key_id: str) -> ApiKeyView:
        """Raises ApiKeyNotFoundError."""
        found = self._catalog.api_keys.get(api_key_id)
        if found is None:
            raise ApiKeyNotFoundError(f"There is no API key with the id {api_key_id!r}.")
        return found

    def draw_secret(self) -> NewSecret:
        """A new secret. It is worth nothing until `create_api_key` has stored its hash."""
        return api_keys.draw_secret(self._random_bytes)

    async def create_api_key(
        self,
        name: str,
        grants: tuple[Grant, ...],
        expires_us: int | None,
        secret: NewSecret | None = None,
    ) -> tuple[ApiKeyView, str]:
        """The API key and its token, which is shown once and stored nowhere."""
        if not 1 <= len(grants) <= limits.GRANTS_PER_API_KEY_MAX:
            raise BadRequestError(
                f"An API key has 1 to {limits.GRANTS_PER_API_KEY_MAX} grants, not {len(grants)}."
            )
        for grant in grants:
            check_pattern(grant.topics)
            check_pattern(grant.groups)
        now_us = self._clock.wall_us()
        if expires_us is not None and expires_us <= now_us:
            raise BadRequestError("The API key would have expired already.")
        drawn = secret or self.draw_secret()
        event = ApiKeyCreated(
            api_key_id=drawn.api_key_id,
            name=name,
            secret_sha256=drawn.secret_sha256,
            grants=grants,
            created_us=now_us,
            expires_us=expires_us,
        )
        await self._writes.operate(
            lambda window: self._writes.admission.admit_api_key_created(window, event)
        )
        return self.api_key(drawn.api_key_id), drawn.token

    async def revoke_api_key(self, api_key_id: str) -> None:
        """Durable before it returns. Raises ApiKeyNotFoundError, LastAdminKeyError."""
        now_us = self._clock.wall_us()
        await self._writes.operate(
            lambda window: self._writes.admission.admit_api_key_revoked(window, api_key_id, now_us)
        )

    # --- inside ---

    def _applied(self, changed: list[Topic]) -> None:
        self._waiting.wake(changed)
        self._after_apply()

    def _view(self, topic: Topic) -> TopicView:
        return TopicView(
            topic.name,
            topic.topic_id,
            topic.created_us,
            topic.settings,
            self._settings.effective(topic.settings),
            topic.log_start_offset,
            topic.log_end_offset,
            topic.index.total_bytes,
        )
