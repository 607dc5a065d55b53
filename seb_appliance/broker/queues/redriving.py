"""Redriving: dead letters become records again, each once.

The copy and the fact that a dead letter was redriven are in one entry. The latter is progress of
the queue on the topic of its dead letters, which it does not read: `acked` means redriven there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access.audit import Action, Actor, AuditedWrites
from seb_appliance.broker.append.admission import Admission, Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.queues.admission import QueueAdmission
from seb_appliance.broker.queues.burial import append
from seb_appliance.broker.queues.live_queue import LiveQueue
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.record_keys.queries import pick
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.topics.topic import Topic, gone
from seb_appliance.broker.values import BatchSlice, From, NewRecords, ReadRequest
from seb_appliance.errors import BadNameError, BadRequestError, TopicNotFoundError
from seb_appliance.formats.queues.queues import DEAD_LETTER_HEADERS

_headers: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters: those at `offsets`, ascending, or all from `start` on; of records of
    `topic` alone, and whose reason contains `reason`. They go `to` a topic, or back to their own.
    `dry_run`: only count them."""

    offsets: list[int] | None = None
    start: int = 0
    topic: str | None = None
    reason: str = ""
    to: str | None = None
    dry_run: bool = False


@dataclass(slots=True)
class Redriven:
    """How many dead letters became `records` again, by topic, how many were redriven `before`, and
    how many came from `elsewhere`, as they say: the queue does not read their topic, so they need
    `Wanted.to`. `next_offset`: where to continue; None at the end."""

    records: dict[str, int]
    before: int
    next_offset: int | None
    elsewhere: int = 0


@dataclass(frozen=True, slots=True)
class _Letter:
    offset: int
    target: str
    value: bytes | None
    key: bytes | None
    headers: dict[str, bytes]


class Redriving:
    def __init__(
        self,
        catalog: Catalog,
        reads: Reads,
        topics: Admission,
        queues: QueueAdmission,
        audited: AuditedWrites,
        open_queue: Callable[[str], Awaitable[LiveQueue]],
        wall_us: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._reads = reads
        self._topics = topics
        self._queues = queues
        self._audited = audited
        self._open = open_queue
        self._wall_us = wall_us

    async def redrive(
        self, name: str, wanted: Wanted, by: Actor, authorize: Callable[[str], None]
    ) -> Redriven:
        """At most `limits.DELIVERIES_PER_REQUEST_MAX` dead letters, and FETCH_BYTES_DEFAULT bytes.
        `authorize` raises if nothing may be produced to this topic: a dead letter can be forged by
        everyone who may produce to their topic. Raises QueueNotFoundError, BadRequestError,
        and what reading and appending raise."""
        live = await self._open(name)
        if live.settings.dead_letter is None:
            raise BadRequestError(f"The queue {name} has no topic of dead letters.")
        try:
            dead = self._catalog.topic(live.settings.dead_letter)
        except TopicNotFoundError:  # it is made with the first dead letter
            return Redriven({}, 0, None)
        pieces, next_offset = await self._read(dead, wanted)
        result = Redriven({}, 0, next_offset)
        by_target: dict[str, list[_Letter]] = {}
        for letter in _letters(pieces, name, wanted):
            # Others may store records in the topic of dead letters, too.
            if wanted.to is None and not live.patterns.cover(letter.target):
                result.elsewhere += 1
                continue
            by_target.setdefault(letter.target, []).append(letter)
        for target in by_target:
            authorize(target)
        for target, letters in by_target.items():
            if wanted.dry_run:
                settled = live.progress(dead.topic_id).settled
                done = [one for one in letters if one.offset not in settled]
            else:
                done = await self._store(name, dead, target, letters, by)
            result.before += len(letters) - len(done)
            if done:
                result.records[target] = len(done)
        return result

    async def _read(self, dead: Topic, wanted: Wanted) -> tuple[Sequence[BatchSlice], int | None]:
        """And where to continue."""
        if wanted.offsets is not None:
            there = [one for one in wanted.offsets if one < dead.log_end_offset]
            pieces, handled = await pick(self._reads, dead, there, limits.FETCH_BYTES_DEFAULT)
            return pieces, there[handled] if handled < len(there) else None
        start = From(offset=max(wanted.start, dead.log_start_offset))
        most = limits.DELIVERIES_PER_REQUEST_MAX
        request = ReadRequest(start, None, most, limits.FETCH_BYTES_DEFAULT)
        result = await self._reads.read(dead.name, request)
        if result.topic_id != dead.topic_id:
            raise gone(dead)
        at_end = result.next_offset >= result.log_end_offset
        return result.slices, None if at_end else result.next_offset

    async def _store(
        self, name: str, dead: Topic, target: str, letters: list[_Letter], by: Actor
    ) -> list[_Letter]:
        """Those that were not redriven before."""
        done: list[_Letter] | None = None

        def admit(window: Window) -> Action | None:
            nonlocal done
            if live.closed:
                return None
            if not self._queues.lives(dead.topic_id):
                raise Refusal(gone(dead), None)
            progress = live.progress(dead.topic_id)
            done = [one for one in letters if one.offset not in progress.settled]
            if not done:
                return None
            append(self._topics, window, target, _records(done), self._wall_us(), by.owner)
            for one in done:
                begin, end = one.offset, one.offset + 1
                progress.acked += progress.settle(begin, end)
                self._queues.add_range(window, name, dead.topic_id, "acked", begin, end)
            return Action("queue_redriven", "queue", name, None, {target: len(done)})

        while done is None:
            live = await self._open(name)
            await self._audited.store(admit, by, lambda: self._queues.changed_in(name))
        return done


def _letters(pieces: Iterable[BatchSlice], queue: str, wanted: Wanted) -> Iterator[_Letter]:
    """Those of the queue that are wanted."""
    for piece in pieces:
        columns, offsets = piece.batch.columns, piece.batch.offsets()
        for i in range(piece.begin, piece.end):
            packed = b"" if columns.headers is None else columns.headers.get(i)
            headers = _headers(packed) if packed else {}
            told = {
                part: headers.pop(DEAD_LETTER_HEADERS + part, b"").decode(errors="replace")
                for part in ("queue", "topic", "offset", "attempts", "reason")
            }
            for part in ("first-delivered-us", "at-us"):
                headers.pop(DEAD_LETTER_HEADERS + part, None)
            if told["queue"] != queue or wanted.topic not in (None, told["topic"]):
                continue
            target = told["topic"] if wanted.to is None else wanted.to
            if wanted.reason not in told["reason"] or not _is_name(target):
                continue
            key = None if columns.keys is None else columns.keys.get(i)
            yield _Letter(offsets[i], target, columns.values.get(i), key, headers)


def _is_name(text: str) -> bool:
    try:
        check_topic_name(text)
    except BadNameError:
        return False
    return True


def _records(letters: Iterable[_Letter]) -> NewRecords:
    values, keys, headers = list[bytes | None](), list[bytes | None](), list[bytes]()
    for one in letters:
        values.append(one.value)
        keys.append(one.key)
        headers.append(msgspec.msgpack.encode(one.headers) if one.headers else b"")
    return NewRecords(values, keys, headers)
