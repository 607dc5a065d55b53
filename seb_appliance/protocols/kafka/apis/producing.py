"""Produce: record batches become records of ours, acknowledged when the bucket has them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from seb_appliance import limits
from seb_appliance.broker.append.appends import NO_CONDITIONS, Conditions
from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.append.writes import Duplicate
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import SebError
from seb_appliance.protocols.kafka.errors import NO_ROOM, ErrorCode, KafkaError, code_of
from seb_appliance.protocols.kafka.partitions import topic_of
from seb_appliance.protocols.kafka.records.incoming import Incoming, ProducerOf
from seb_appliance.protocols.kafka.records.reading import read_batches, read_batches_in_slices
from seb_appliance.protocols.kafka.requests import Request, handles
from seb_appliance.protocols.kafka.server import Server
from seb_appliance.protocols.kafka.stalling import Stored
from seb_appliance.protocols.kafka.wire.codec import Message
from seb_appliance.protocols.kafka.wire.long_arrays import Each, listed
from seb_appliance.protocols.kafka.wire.repeats import PRODUCE
from seb_appliance.protocols.kafka.wire.templates import Template
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.tasks import in_slices

_log = logging.getLogger(__name__)

_PRODUCER: Final = re.compile(r"kafka (\d+)( .*)?")  # no name by HTTP has a space
_ACKS: Final = (-1, 0, 1)
_RETRY_S: Final = 0.1  # while there is no room
_READ_HERE_BYTES: Final = 64 * limits.KIB  # in less than a millisecond
_PARTS_HERE: Final = 32  # partitions of a request
_RECORDS_HERE: Final = 2_000  # of all of them: a small record takes as long as a large one
_INFLATED_HERE_BYTES: Final = 256 * limits.KIB  # beyond their stored bytes, of all of them
_KEYLESS_TOLD_MAX: Final = 100  # records of a batch, each with a sentence
_TEXTS_MAX: Final = 32  # of what is refused, in an answer
_PART_BYTES: Final = 64  # in an answer, without a text
_TEXT_BYTES: Final = 8 * limits.KIB  # with what is said of records
_INFLATES: Final = 8  # times that compressed records grow, mostly less


@handles(PRODUCE)
def produce(server: Server, request: Request) -> None:
    """Its answer follows once all is stored, or refused."""
    asked = _Produce(server, request)
    if request.body["acks"] not in _ACKS:
        asked.refuse_all(ErrorCode.INVALID_REQUIRED_ACKS)
    else:
        asked.begin()


@lru_cache(limits.KAFKA_CONNECTIONS_MAX)
def _stored(version: int, name: str, index: int) -> Template:
    """The answer to most requests: the records of one partition are stored at an offset."""

    def answer(offset: int) -> Message:
        parts = [{"index": index, "base_offset": offset}]
        return {"responses": [{"name": name, "partition_responses": parts}]}

    return Template(PRODUCE, version, answer)


def stamp_of(producer: ProducerOf, owner: str) -> ProducerStamp:
    name, sequence = f"kafka {producer.producer_id}", producer.base_sequence
    return ProducerStamp.of(name, owner, producer.epoch, sequence, counts_records=True)


def producer_id_of(stored: str) -> int | None:
    """None: it is no producer of Kafka."""
    found = _PRODUCER.fullmatch(stored)
    return None if found is None else int(found[1])


def keyless_of(records: NewRecords) -> list[int]:
    """The places of records without a record key, from 0 on; the first ones of them."""
    if records.keys is None:
        return list(range(min(records.count, _KEYLESS_TOLD_MAX)))
    if None not in records.keys:
        return []
    found = (at for at, key in enumerate(records.keys) if key is None)
    return list(islice(found, _KEYLESS_TOLD_MAX))


class _Part:
    """The records for one partition, and what became of them; an `AckCallback`. `no_room`: the
    refusal, if there was no memory for them."""

    __slots__ = (
        "_produce",
        "code",
        "data",
        "index",
        "log_start_offset",
        "no_room",
        "offset",
        "record_errors",
        "text",
        "topic",
    )

    def __init__(self, produce: _Produce, name: str, asked: Message) -> None:
        self._produce = produce
        self.index: int = asked["index"]
        self.topic = topic_of(name, self.index)
        self.data: Any = asked.pop("records")  # a view of the request, which must not outlive it
        self.code = ErrorCode.NONE
        self.text: str | None = None
        self.log_start_offset = -1
        self.record_errors: list[Message] = []
        self.offset = -1
        self.no_room: SebError | None = None

    def stored(self, admitted: Any, window_s: float, put_s: float) -> None:
        self._produce.waited(Stored(window_s, put_s))
        if not isinstance(admitted, Duplicate):
            self.offset = admitted.offset
        elif admitted.produced is None:
            self.code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        else:
            self.offset = admitted.produced[0].offset
        self._tell()

    def failed(self, error: SebError) -> None:
        if isinstance(error, NO_ROOM):
            self.no_room = error
        else:
            self.refuse(code_of(error), error.detail)

    def held(self) -> None:
        """A transaction has the records: they have no offsets yet."""
        self._tell()

    def refuse(self, code: ErrorCode, text: str, places: Iterable[int] = ()) -> None:
        """`places`: of the records that are to blame, from 0 on."""
        self.code = code
        if self._produce.tells_why():
            self.text = text
            self.record_errors = [
                {"batch_index": at, "batch_index_error_message": text} for at in places
            ]
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # By it Java sees that its records before are gone, begins a new epoch, and goes on.
            self.log_start_offset = self._produce.start_of(self.topic)
        self._tell()

    def _tell(self) -> None:
        self.data = None
        self._produce.told()

    def message(self) -> Message:
        return {
            "index": self.index,
            "error_code": self.code,
            "base_offset": self.offset,
            "error_message": self.text,
            "log_start_offset": self.log_start_offset,
            "record_errors": self.record_errors,
        }


class _Produce:
    def __init__(self, server: Server, request: Request) -> None:
        self._server = server
        self._broker = server.broker
        self._request = request
        self._key = request.caller.key
        self._topics = [
            (one["name"], [_Part(self, one["name"], part) for part in one["partition_data"]])
            for one in request.body["topic_data"]
        ]
        self._patience_ms = max(0, request.body["timeout_ms"]) if request.body["acks"] else None
        self._left = sum(len(parts) for _, parts in self._topics) + 1  # and `begin`
        self._is_long = self._left > _PARTS_HERE
        self._texts_left = _TEXTS_MAX
        self._records_here, self._inflated_here_bytes = _RECORDS_HERE, _INFLATED_HERE_BYTES

    def begin(self) -> None:
        """Admit the records in order. The connection is held up if that takes long, so that
        requests behind this one stay behind it."""
        later = list[_Part]()
        steps = self._begin(later)
        if self._is_long and not self._has_memory():
            return
        if self._is_long:
            self._request.caller.hold(self._request)
            self._server.go(self._store_later(later, steps))
            return
        for _ in steps:
            pass
        if later:
            self._request.caller.hold(self._request)
            self._server.go(self._store_later(later, ()))
        else:
            self.told()

    def _begin(self, later: list[_Part]) -> Iterator[None]:
        """Each step is of one partition. `later` gets those that take long, and all behind them."""
        admitted = 0
        for name, parts in self._topics:
            may = self._request.may("produce", name)
            for part in parts:
                yield
                if not may:
                    text = f"The API key has no grant to produce to {name[:200]!r}."
                    part.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
                elif part.data is None or not self._broker.topics.exists(part.topic):
                    text = f"There is no topic {part.topic[:200]!r}."
                    part.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
                elif later or admitted == _PARTS_HERE or not self._store_here(part):
                    later.append(part)
                else:
                    admitted += 1

    def _has_memory(self) -> bool:
        """For a long answer, before anything is stored. If not, the connection ends."""
        if self._request.body["acks"] == 0:
            return True
        held = self._request.acquired = Reservation(self._broker.reading, self._key.api_key_id)
        names = sum(len(name.encode()) for name, _ in self._topics)
        try:
            held.grow(names + self._left * _PART_BYTES + self._texts_left * _TEXT_BYTES)
        except SebError as error:
            self._request.caller.end(error.detail)
            return False
        return True

    def tells_why(self) -> bool:
        """Whether the next refusal is told in words, too."""
        self._texts_left -= 1
        return self._texts_left >= 0

    def refuse_all(self, code: ErrorCode) -> None:
        for _, parts in self._topics:
            for part in parts:
                part.refuse(code, "")
        self.told()

    def start_of(self, topic: str) -> int:
        found = self._broker.topics
        return found.get(topic).log_start_offset if found.exists(topic) else -1

    def waited(self, stored: Stored) -> None:
        self._request.stored = max(self._request.stored or stored, stored)

    def told(self) -> None:
        """A part is stored or refused, or all are begun."""
        self._left -= 1
        if self._left:
            return
        if self._request.body["acks"] == 0:
            self._request.answer(None)
            return
        if self._is_long:
            self._request.caller.run(self._request, self._answer_on())
            return
        self._request.answer(self._at_once() or self._answer())
        self._topics.clear()  # parts refer to this, so they would wait for the garbage collector

    async def _answer_on(self) -> Message:
        return self._answer()

    def _at_once(self) -> bytes | None:
        """The answer to most requests, which have one part; None: it is another one."""
        request, (name, parts) = self._request, self._topics[0] if self._topics else ("", [])
        if len(self._topics) == len(parts) == 1 and not request.caller.has_quotas:
            (part,) = parts
            if part.code is ErrorCode.NONE:
                stored = _stored(request.version, name, part.index)
                return stored.response(request.correlation_id, part.offset)
        return None

    def _answer(self) -> Message:
        many = Each if self._is_long else listed

        def topic(one: tuple[str, list[_Part]]) -> Message:
            name, parts = one
            return {"name": name, "partition_responses": many(parts, _Part.message)}

        return {"responses": many(self._topics, topic)}

    # --- one partition ---

    def _store_here(self, part: _Part) -> bool:
        """False: it takes long, or there is no room now."""
        stored_bytes = len(part.data)
        if stored_bytes > _READ_HERE_BYTES:
            return False
        try:
            most_bytes = stored_bytes + self._inflated_here_bytes
            incoming = read_batches(part.data, most_bytes, self._records_here)
        except KafkaError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                return False
            part.refuse(error.code, str(error))
            return True
        self._records_here -= incoming.records.count
        self._inflated_here_bytes -= max(0, incoming.size_bytes - stored_bytes)
        return self._store(part, incoming)

    def _store(self, part: _Part, incoming: Incoming) -> bool:
        """False: there is no room now."""
        part.no_room, size_bytes = None, len(part.data)
        if self._broker.topics.compacts(part.topic):
            keyless = keyless_of(incoming.records)
            if keyless:
                text = "A record of a compacted topic needs a record key."
                part.refuse(ErrorCode.INVALID_RECORD, text, keyless)
                return True
        owner = self._key.api_key_id
        stamp = None if incoming.stamp is None else stamp_of(incoming.stamp, owner)
        if incoming.is_transactional:
            self._hold(part, incoming, stamp)
        else:
            conditions = NO_CONDITIONS if stamp is None else Conditions(producer=stamp)
            self._broker.appends.append_told(
                self._key,
                part.topic,
                incoming.records,
                max(size_bytes, incoming.size_bytes),
                part,
                conditions,
                address=self._request.caller.address,
                patience_ms=self._patience_ms,
            )
        if part.no_room is None:
            part.data = None
        return part.no_room is None

    def _hold(self, part: _Part, incoming: Incoming, stamp: ProducerStamp | None) -> None:
        """Add the records to the open transaction: they get offsets when it ends."""
        assert incoming.stamp is not None
        assert stamp is not None
        try:
            self._server.transactions.hold(
                self._key,
                self._request.body["transactional_id"] or "",
                (incoming.stamp.producer_id, incoming.stamp.epoch),
                part.topic,
                incoming.records,
                stamp,
            )
        except KafkaError as error:
            # As Kafka: Produce knows the epoch alone, and clients take only that for fatal.
            is_fenced = error.code is ErrorCode.PRODUCER_FENCED
            part.refuse(ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else error.code, str(error))
        except SebError as error:
            part.failed(error)
        else:
            part.held()

    async def _store_later(self, parts: list[_Part], steps: Iterable[None]) -> None:
        """What `steps` leave in `parts`. Waits for room, so that nothing is refused that would fit
        in a moment."""
        wait_s = min(socket_limits.NO_ROOM_S_MAX, max(0, self._request.body["timeout_ms"]) / 1000)
        until_s = self._broker.clock.monotonic_s() + wait_s
        try:
            async for _ in in_slices(steps):
                pass
            async for part in in_slices(parts):
                with Reservation(self._broker.pending, self._key.api_key_id) as held:
                    try:
                        incoming = await self._read(part, held, until_s)
                        await self._store_in_time(part, incoming, held, until_s)
                    except KafkaError as error:
                        part.refuse(error.code, str(error))
                    except SebError as error:
                        part.refuse(code_of(error), error.detail)
                    except Exception:
                        _log.exception("records for %s failed", part.topic)
                        if part.data is not None:
                            part.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "The log says why.")
        except Exception:
            self._request.caller.failed(self._request)
            return
        finally:
            self._request.caller.go_on()
        self.told()

    async def _read(self, part: _Part, held: Reservation, until_s: float) -> Incoming:
        """`held` is what the records may have, inflated. Raises KafkaError, SebError."""
        most_bytes = min(_INFLATES * len(part.data), limits.REQUEST_BYTES_MAX)
        while True:
            await self._grow(held, most_bytes - held.held, until_s)
            try:
                return await read_batches_in_slices(part.data, most_bytes)
            except KafkaError as error:
                is_whole = most_bytes == limits.REQUEST_BYTES_MAX
                if error.code is not ErrorCode.MESSAGE_TOO_LARGE or is_whole:
                    raise
            most_bytes = limits.REQUEST_BYTES_MAX

    async def _store_in_time(
        self, part: _Part, incoming: Incoming, held: Reservation, until_s: float
    ) -> None:
        size_bytes = held.held
        while True:
            held.release()  # admission reserves what it keeps
            if self._store(part, incoming):
                return
            assert part.no_room is not None
            await self._pause(part.no_room, until_s)
            await self._grow(held, size_bytes, until_s)

    async def _grow(self, held: Reservation, amount: int, until_s: float) -> None:
        while True:
            try:
                held.grow(amount)
            except NO_ROOM as error:
                await self._pause(error, until_s)
            else:
                return

    async def _pause(self, error: SebError, until_s: float) -> None:
        """Raises `error` when it is too late."""
        if self._broker.clock.monotonic_s() >= until_s:
            raise error
        await self._broker.clock.sleep(_RETRY_S)
