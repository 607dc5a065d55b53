"""Compactions by an external cluster.

A client gets a range of a topic's segments, stores new segments under given names, and hands them
over. The tidier checks them against every record of the range, then switches to them. Segments that
are not handed over are strays. A restart forgets all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from seb_appliance import limits
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.ports import Journal, NewSegment, SectionSource, SignedUpload
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import OPERATOR, AllShares
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.upkeep.due import (
    compaction_of,
    inherits,
    pinned_rows,
    place_of,
    rows_for_all,
)
from seb_appliance.broker.upkeep.rewrite_jobs import Compaction, ExternalSegment, RewriteJob
from seb_appliance.errors import (
    BadRequestError,
    CompactionNotFoundError,
    CompactionRefusedError,
)

UPLOAD_S: Final = limits.PRESIGN_MS_MAX // 1000  # for which a signed PUT is good

_ATTEMPTS: Final = 5

State = Literal["open", "checking", "in_force", "refused"]


@dataclass(slots=True)
class ExternalCompaction:
    """`job` lacks only `made`. `dirty_bytes` were never compacted. `reason`: why it was refused.
    `attempts`: failed checks."""

    compaction_id: str
    topic: str
    item: Compaction
    job: RewriteJob
    size_bytes: int
    dirty_bytes: int
    asked_s: float
    owner: str  # whose share it takes (shares.py), until it is done
    state: State = "open"
    reason: str = ""
    given: dict[str, ExternalSegment] = field(default_factory=dict)  # by name
    attempts: int = 0

    @property
    def log_start_offset(self) -> int:
        """When it began: records below it are not kept."""
        return self.job.log_starts[self.item.topic_id]


class ExternalCompactions:
    def __init__(
        self,
        catalog: Catalog,
        source: SectionSource,
        clock: LogClock,
        settings: BrokerSettings,
        shares: AllShares,
        random_bytes: Callable[[int], bytes],
        journal: Journal,
    ) -> None:
        self._catalog = catalog
        self._source = source
        self._clock = clock
        self._settings = settings
        self._random_bytes = random_bytes
        self._journal = journal
        self._shares = shares.declare(
            "compactions_elsewhere", limits.EXTERNAL_COMPACTIONS_MAX, "compactions on clusters"
        )
        self._known: dict[str, ExternalCompaction] = {}
        self._handed_over: deque[ExternalCompaction] = deque()

    async def begin(self, name: str, owner: str = OPERATOR) -> ExternalCompaction:
        """Compact all of the topic's segments but the youngest into one run. Raises
        TopicNotFoundError, CompactionRefusedError, OverloadedError, StoreError."""
        topic = self._catalog.topic(name)
        await self._signed(topic.topic_id, 0, 0, 0, bytes(16), 1)  # a probe
        found = self._planned(self._catalog.topic(name), owner)
        self._forget()
        self._shares.take(owner, 1)
        self._known[found.compaction_id] = found
        return found

    def _planned(self, topic: Topic, owner: str) -> ExternalCompaction:
        settings = self._settings.effective(topic.settings)
        if not settings.compacts:
            raise CompactionRefusedError(
                f"Topic {topic.name!r} is not compacted: set its cleanup to compact first."
            )
        if pinned_rows(topic) or inherits(topic):
            raise CompactionRefusedError(
                f"Topic {topic.name!r} shares records with a fork. Only the appliance itself can "
                "compact it, and shared records are never compacted."
            )
        end, dirty_bytes = rows_for_all(topic, settings, self._clock)
        if end == 0:
            raise CompactionRefusedError(f"Nothing of topic {topic.name!r} can be compacted yet.")
        if end > limits.EXTERNAL_COMPACTION_SECTIONS_MAX:
            raise CompactionRefusedError(
                f"Topic {topic.name!r} has {end} sections; at most "
                f"{limits.EXTERNAL_COMPACTION_SECTIONS_MAX} are compacted at one time."
            )
        places = tuple(place_of(self._catalog, topic, row) for row in range(end))
        item = compaction_of(topic, 0, end, settings, self._clock)
        job = RewriteJob(
            bucket_id=self._journal.bucket_id,
            epoch=self._journal.epoch,
            name=self._random_bytes(8),
            segment_bytes=self._settings.tidy.segment_bytes,
            log_starts={topic.topic_id: topic.log_start_offset},
            sections=places,
            compactions=(item,),
        )
        return ExternalCompaction(
            self._random_bytes(8).hex(),
            topic.name,
            item,
            job,
            sum(place.length for place in places),
            dirty_bytes,
            self._clock.monotonic_s(),
            owner,
        )

    def get(self, name: str, compaction_id: str) -> ExternalCompaction:
        """Also restarts its idle time. Raises CompactionNotFoundError."""
        self._forget()
        found = self._known.get(compaction_id)
        if found is None or found.topic != name:
            raise CompactionNotFoundError(
                f"No compaction {compaction_id!r} of topic {name!r} is running; begin a new one."
            )
        found.asked_s = self._clock.monotonic_s()
        return found

    async def upload(
        self, found: ExternalCompaction, base: int, last: int, length: int, md5: bytes
    ) -> tuple[str, SignedUpload]:
        """A name for a segment of the offsets base to last, and a signed PUT for exactly these
        bytes. Raises CompactionRefusedError, BadRequestError, StoreError."""
        _check_open(found)
        if not found.item.base_offset <= base <= last <= found.item.last_offset:
            raise BadRequestError("These offsets are outside the range of the compaction.")
        if len(found.given) >= limits.EXTERNAL_COMPACTION_NAMES_MAX:
            raise CompactionRefusedError("The compaction has too many segments; begin a new one.")
        name, upload = await self._signed(found.item.topic_id, base, last, length, md5, UPLOAD_S)
        found.given[name] = ExternalSegment(upload.key, base, last, length)
        return name, upload

    async def _signed(
        self, topic_id: int, base: int, last: int, length: int, md5: bytes, valid_s: int
    ) -> tuple[str, SignedUpload]:
        name, epoch = self._random_bytes(8), self._journal.epoch
        segment = NewSegment(topic_id, base, last, epoch, name, length, md5)
        upload = await self._source.signed_upload(segment, valid_s)
        if upload is None:
            raise CompactionRefusedError("This bucket has no signed URLs to upload segments with.")
        return name.hex(), upload

    def hand_over(self, found: ExternalCompaction, names: Sequence[str]) -> None:
        """Have these segments, all of it in the order of offsets, checked and activated. Calling
        again changes nothing. Raises CompactionRefusedError, BadRequestError."""
        if found.state in {"checking", "in_force"}:
            return
        _check_open(found)
        unknown = [name for name in names if name not in found.given]
        if unknown or not names:
            raise BadRequestError(
                f"Hand over segments that the appliance named; it did not name {unknown[:1]}."
            )
        if len(names) > limits.HANDED_OVER_SEGMENTS_MAX:
            raise BadRequestError(
                f"At most {limits.HANDED_OVER_SEGMENTS_MAX} segments can be handed over at once."
            )
        found.job = replace(found.job, made=tuple(found.given[name] for name in names))
        found.state, found.reason = "checking", ""
        self._handed_over.append(found)

    def give_up(self, found: ExternalCompaction) -> None:
        """End it, unless it is being checked: it may still be activated then."""
        if found.state == "open":
            self._end(found, "refused", "It was given up.")

    def next(self) -> ExternalCompaction | None:
        """The one that was handed over first. Report its result with `done` or `failed`."""
        return self._handed_over[0] if self._handed_over else None

    def failed(self, found: ExternalCompaction, why: str) -> None:
        """The bucket did not answer, or a disk is full: it is checked again later."""
        found.attempts += 1
        if found.attempts == _ATTEMPTS:
            self.done(found, "refused", why)

    def done(self, found: ExternalCompaction, state: State, reason: str = "") -> None:
        assert self._handed_over[0] is found, found.compaction_id
        self._handed_over.popleft()
        self._end(found, state, reason)
        found.asked_s = self._clock.monotonic_s()

    def _end(self, found: ExternalCompaction, state: State, reason: str) -> None:
        found.state, found.reason, found.given = state, reason, {}
        self._shares.give_back(found.owner, 1)

    def holds(self, topic_id: int) -> bool:
        """Whether the topic is being compacted by a cluster: the appliance leaves it alone then."""
        return any(found.item.topic_id == topic_id for found in self._living())

    def inputs(self) -> Collection[str]:
        """Keys of the objects that clusters compact."""
        return {key for found in self._living() for key in found.job.inputs}

    def keys(self) -> Collection[str]:
        """Given keys that may still be activated."""
        return {made.key for found in self._living() for made in found.given.values()}

    def _living(self) -> Iterator[ExternalCompaction]:
        self._forget()
        return (found for found in self._known.values() if found.state in {"open", "checking"})

    def _forget(self) -> None:
        """Drop what was idle for too long."""
        since_s = self._clock.monotonic_s() - limits.EXTERNAL_COMPACTION_IDLE_S
        for compaction_id, found in list(self._known.items()):
            if found.asked_s <= since_s and found.state != "checking":
                del self._known[compaction_id]
                if found.state == "open":
                    self._shares.give_back(found.owner, 1)


def _check_open(found: ExternalCompaction) -> None:
    if found.state != "open":
        raise CompactionRefusedError(
            f"The compaction is {found.state.replace('_', ' ')} already. {found.reason}".strip()
        )
