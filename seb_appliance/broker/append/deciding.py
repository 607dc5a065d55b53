"""The steps of a decision about records: may the topic take them, were they sent before, where do
they go. All checks come first, and change nothing; then placing cannot fail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from seb_appliance import limits
from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.access.grants import Authorizer
from seb_appliance.broker.append.admission import AdmittedTopic, Refusal
from seb_appliance.broker.append.deduplication import Deduplication, ProducerStamp, RequestStamp
from seb_appliance.broker.append.transactions import HeldTopic
from seb_appliance.broker.append.window import Placeable, Window
from seb_appliance.broker.append.writes import Admitted, Duplicate, Writes
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import ApiKeyView, NewBatches, NewRecords, Prepared
from seb_appliance.errors import PreconditionFailedError
from seb_appliance.formats.contents import Produced, ProducerAppend, RequestResult
from seb_appliance.formats.topic_settings import TopicSettings

_NO_TOPIC = 0  # an id that no topic has


@dataclass(slots=True)
class Draft:
    """A request that is being decided: its window, and how soon its topics want that closed."""

    window: Window
    by: Actor
    linger_ms: int = limits.LINGER_AUTO_MS_MAX
    early_flush: bool = False
    placed: dict[str, Produced] = field(default_factory=dict)

    def admitted(self) -> Admitted:
        return Admitted(self.window, self.placed, self.linger_ms, self.early_flush)


class Decisions:
    """`may_append_stream`: whether a topic that is a stream takes records now, which counts as a
    use of it. The room of streams sets it."""

    def __init__(
        self,
        catalog: Catalog,
        writes: Writes,
        deduplication: Deduplication,
        authorizer: Authorizer,
        settings: BrokerSettings,
    ) -> None:
        self.may_append_stream: Callable[[AdmittedTopic], bool] = lambda _: True
        self.linger = writes.linger
        self.admission = writes.admission
        self.deduplication = deduplication
        self._sequencer = writes.sequencer
        self._delays = catalog.delays
        self._authorizer = authorizer
        self._settings = settings
        self._clock = writes.clock

    def draft(self, by: Actor) -> Draft:
        """Raises SebError where nothing can be written."""
        return Draft(self._sequencer.open_window(), by)

    # --- topics ---

    def takes(self, known: AdmittedTopic) -> bool:
        """Whether it is no stream that is closed or expired."""
        return known.stream is None or (not known.is_closed and self.may_append_stream(known))

    def check_takes(self, topic: str, known: AdmittedTopic) -> None:
        """Raises Refusal where it does not take records."""
        if known.is_closed:
            raise self.admission.closed(topic)
        if not self.takes(known):
            raise self.admission.missing(topic)

    def check_topic(self, key: ApiKeyView, topic: str, draft: Draft) -> TopicSettings:
        """The topic's effective settings. It exists and takes records, or may be created. Raises
        Refusal, BadNameError."""
        known = self.admission.find(check_topic_name(topic))
        if known is not None:
            self.check_takes(topic, known)
            as_set, effective = known.settings, known.effective
        else:
            may_create = self._settings.auto_create_topics and not self.admission.is_held(topic)
            if not (may_create and self._authorizer.may(key, "manage", topic)):
                raise self.admission.missing(topic)
            as_set = TopicSettings()
            effective = self.admission.effective(as_set)
        draft.linger_ms = min(draft.linger_ms, self.linger.of(as_set))
        draft.early_flush |= bool(effective.early_flush)
        if known is None:
            self.admission.check_room_for(1, draft.by.owner)
        return effective

    def check_room_for(self, topics: Iterable[str], by: Actor) -> None:
        """There is room for those of the topics that are not there. Raises Refusal."""
        missing = sum(self.admission.find(topic) is None for topic in topics)
        self.admission.check_room_for(missing, by.owner)

    def check_end(self, topic: str, expected_offset: int | None) -> None:
        """Raises Refusal if the log ends elsewhere; None: anywhere."""
        if expected_offset is None:
            return
        known = self.admission.find(topic)
        end = known.next_offset if known is not None else 0
        if end != expected_offset:
            error = PreconditionFailedError(
                f"The log of {topic!r} ends at {end}, not at {expected_offset}.",
                log_end_offset=end,
            )
            after = known.appended_in if known is not None else self.admission.deleted_in(topic)
            raise Refusal(error, after)

    def topic_id(self, topic: str) -> int | None:
        known = self.admission.find(topic)
        return known.topic_id if known is not None else None

    # --- records ---

    def prepare(self, records: NewRecords | NewBatches, effective: TopicSettings) -> Prepared:
        """Raises Refusal."""
        return self.admission.prepare(records, effective, self._clock.wall_us())

    def place(self, draft: Draft, prepared: Mapping[str, Placeable]) -> None:
        delayed = sum(one.count for records in prepared.values() for one in records.delays)
        if delayed:
            self._delays.shares.check(draft.by.owner, delayed)
        now_us = self._clock.wall_us()
        window, by = draft.window, draft.by
        for topic, records in prepared.items():
            is_new = self.admission.find(topic) is None
            draft.placed[topic] = self.admission.place(window, topic, records, now_us, by.owner)
            if is_new:
                created = self.admission.find(topic)
                audit.note(window, by, now_us, audit.topic_created(topic, created))

    # --- duplicates ---

    def find_request(
        self, request: RequestStamp | None, topics: Iterable[str], *, is_append: bool
    ) -> Duplicate | None:
        """What a request with an Idempotency-Key did before. Raises Refusal."""
        if request is None:
            return None
        topic_ids = [self.topic_id(topic) for topic in topics]
        return self.deduplication.find_request(request, topic_ids, is_append=is_append)

    def find_append(
        self, topic: str, stamp: ProducerStamp | None, count: int = 0
    ) -> Duplicate | None:
        """What a producer's request did before; None if it is new. `count`: of its records, which
        matters only where the stamp counts records. Raises Refusal."""
        if stamp is None:
            return None
        return self.deduplication.find_append(self.topic_id(topic) or _NO_TOPIC, stamp, count)

    def find_before_close(
        self, topic: str, stamp: ProducerStamp | None, count: int
    ) -> Duplicate | None:
        """What a producer's request did before its stream was closed."""
        known = self.admission.find(topic)
        if known is None or not known.is_closed:
            return None
        with contextlib.suppress(Refusal):
            return self.find_append(topic, stamp, count)
        return None

    def check_later(self, topic: str, stamp: ProducerStamp) -> None:
        """See `Deduplication.check_later`. Raises Refusal."""
        self.deduplication.check_later(self.topic_id(topic) or _NO_TOPIC, stamp)

    def note_producer(self, window: Window, placed: Produced, stamp: ProducerStamp) -> None:
        """Remember that the producer's request was placed."""
        append = ProducerAppend(
            stamp.producer_id,
            stamp.epoch,
            stamp.numbered,
            placed.offset,
            placed.count,
            placed.timestamp_us,
        )
        self.deduplication.note_append(window, placed.topic_id, append, self._clock.wall_us())

    def note_held(self, draft: Draft, topic: str, held: HeldTopic) -> None:
        """As `note_producer`, of the requests that a transaction gathered."""
        placed = draft.placed[topic]
        for stamp, first, number, timestamp_us in held.requests:
            one = Produced(placed.topic_id, placed.offset + first, number, timestamp_us)
            self.note_producer(draft.window, one, stamp)

    def remember(self, draft: Draft, request: RequestStamp | None) -> None:
        if request is not None:
            produced = list(draft.placed.values())
            result = RequestResult(request.scope, request.body_hash, produced)
            self.deduplication.remember(draft.window, result)
