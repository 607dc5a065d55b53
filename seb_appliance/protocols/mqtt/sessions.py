"""Sessions: what the appliance keeps of a client while it is not connected.

A session's subscriptions are a record of a compacted topic; what its client has got is the
committed offset of a consumer group. So no message waits in memory, and a new machine brings
sessions back.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.topics.names import check_group_name
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.clock import Timer
from seb_appliance.errors import (
    BadNameError,
    CommitBackwardError,
    GroupNotFoundError,
    SebError,
    TopicDiffersError,
)
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code, MqttError, Subscription
from seb_appliance.protocols.mqtt.messages.grants import word
from seb_appliance.protocols.mqtt.messages.reading import Logs, Offsets, read
from seb_appliance.protocols.mqtt.messages.records import check_filter, share_of, unshared
from seb_appliance.protocols.mqtt.messages.routes import Route, Routes
from seb_appliance.protocols.mqtt.receiving.publishing import Publisher, code_of
from seb_appliance.protocols.mqtt.unfinished import Sent, Unfinished
from seb_appliance.protocols.sockets.connected import NUMBERS
from seb_appliance.tasks import in_slices

_log = logging.getLogger(__name__)
_SETTINGS: Final = TopicSettings(cleanup="compact", key_index="latest")
_SECOND_US: Final = 1_000_000
_TOGETHER: Final = 100  # sessions that one request stores
_SESSION_BYTES: Final = 1_024  # about what one without subscriptions takes in memory
_DOCUMENT_BYTES_MAX: Final = 4 * mqtt_limits.SESSION_BYTES_MAX  # with routes

Client = tuple[str, str]  # API key id, client id
Subscribed = tuple[Subscription, Offsets]  # and the log ends when it was made


class Document(msgspec.Struct, omit_defaults=True):
    """A session as it is stored. `until_us`: when it ends, by the log's clock, if ever.
    `filters`: with the log ends when each was subscribed; a number is that of the default topic of
    that time, which had the id `default_id` (0: an older release did not tell). `routes`: those of
    that time."""

    expiry_s: int
    filters: list[tuple[Subscription, int | Offsets]]
    until_us: int | None = None
    shared: list[tuple[Subscription, int | Offsets]] = []
    routes: list[Route] = []
    default_id: int = 0


class Cursor(Protocol):
    """What a consumer group keeps: all messages before the `acknowledged` offsets are done with."""

    is_over: bool

    @property
    def is_stored(self) -> bool: ...

    @property
    def group(self) -> str: ...

    @property
    def acknowledged(self) -> Offsets: ...


class Position:
    """Where a session is in the log of a topic. `next_offset`: all records before it were sent, or
    are not wanted. `is_live`: and nothing but new records is left."""

    __slots__ = ("is_live", "next_offset")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.is_live = True


class Session:
    """`positions`: by topic id. `exactly_once`: see `Incoming`."""

    def __init__(self, client: Client, expiry_s: int) -> None:
        self.number = next(NUMBERS)
        self.client = client
        self.expiry_s = expiry_s
        self.subscriptions = dict[str, Subscribed]()
        self.shared = dict[str, Subscribed]()
        self.sent = Unfinished[Sent]()
        self.last_id = 0
        self.positions = dict[int, Position]()
        self.exactly_once = Unfinished[Any]()
        self.until_us: int | None = None
        self.is_stored = False
        self.is_over = False
        self.room: Reservation | None = None

    @property
    def unfinished(self) -> tuple[Unfinished[Any], ...]:
        """What takes memory of a share."""
        return self.sent, self.exactly_once

    @property
    def is_kept(self) -> bool:
        """It outlives its connection."""
        return self.expiry_s > 0

    @property
    def group(self) -> str:
        api_key_id, client_id = self.client
        name = f"mqtt.{api_key_id}.{word(client_id)}"
        try:
            return check_group_name(name)
        except BadNameError:  # it is too long
            return f"mqtt.{api_key_id}._x{hashlib.sha256(client_id.encode()).hexdigest()}"

    @property
    def acknowledged(self) -> Offsets:
        """All messages before them are done with."""
        found = {topic_id: one.next_offset for topic_id, one in self.positions.items()}
        for sent in self.sent.values():
            if sent.place is not None and sent.share is None:
                topic_id, offset = sent.place
                found[topic_id] = min(found.get(topic_id, offset), offset)
        return found

    def position(self, topic_id: int) -> Position:
        """In a topic. One that it does not know yet is newer than its subscriptions."""
        found = self.positions.get(topic_id)
        if found is None:
            found = self.positions[topic_id] = Position(0)
        return found


class _Documents(dict[bytes, bytes]):
    """What is stored of sessions, by key. Anybody who may produce to the topic writes them, so what
    no session has, and more than all sessions may have, is left out."""

    def __init__(self) -> None:
        super().__init__()
        self._size_bytes = 0

    def put(self, key: bytes, value: bytes | None) -> None:
        self._size_bytes -= _SESSION_BYTES + len(self.pop(key)) if key in self else 0
        if value is None or len(key) + len(value) > _DOCUMENT_BYTES_MAX:
            return
        size_bytes = self._size_bytes + _SESSION_BYTES + len(value)
        if size_bytes <= 2 * mqtt_limits.SESSIONS_BYTES_MAX:
            self[key], self._size_bytes = value, size_bytes
        else:
            _log.warning("the MQTT session %r is left out: there are too many", key[:200])


class Sessions:
    """`logs`: what the clients get; `topic`: where sessions are stored."""

    def __init__(self, broker: Broker, logs: Logs, topic: str) -> None:
        self._broker = broker
        self._logs = logs
        self._topic, self._topic_id = topic, 0
        remedy = "End sessions: connect with clean start."
        self._room = broker.shares.declare(
            "mqtt_sessions", mqtt_limits.SESSIONS_BYTES_MAX, "bytes of MQTT sessions", remedy
        )
        waiting = "bytes of MQTT messages without acknowledgement"
        self._unfinished = broker.shares.declare(
            "mqtt_unacknowledged", mqtt_limits.SESSIONS_BYTES_MAX, waiting
        )
        self._all = dict[Client, Session]()
        self._ending = dict[Client, asyncio.Task[None]]()
        self._connected = set[Session]()
        self._changed = set[Cursor]()
        self.ended: Callable[[Session], None] = lambda _: None
        self._key = ApiKeyView("mqtt", "mqtt", (), broker.clock.wall_us())
        self._timers = dict[str, Timer]()
        self._tasks = set[asyncio.Task[None]]()

    @property
    def count(self) -> int:
        return len(self._all)

    def all(self) -> list[Session]:
        """Those that outlive their connections."""
        return list(self._all.values())

    async def start(self) -> None:
        """Raises SebError."""
        await self._make_topic()
        found = self._broker.topics.get(self._topic)
        offset, stored = found.log_start_offset, _Documents()
        while offset < found.log_end_offset:
            rows, offset = await read(self._broker, self._topic, offset)
            for row in rows:
                if row.key is not None:
                    stored.put(row.key, row.value)
        routed_anew = list[Session]()
        async for key, value in in_slices(stored.items()):
            if (session := self._load(key, value)) is not None:
                routed_anew.append(session)
        await self._store_all(routed_anew)
        self._again("sweep", mqtt_limits.SESSION_SWEEP_S)

    async def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- connections ---

    def find(self, client: Client) -> Session | None:
        return self._all.get(client)

    def ending(self, client: Client, *, clean_start: bool) -> asyncio.Task[None] | None:
        """What must be done before the client enters: an earlier session ends."""
        session = self._all.get(client)
        if session is not None and (clean_start or self._has_expired(session)):
            return self.end(session)
        task = self._ending.get(client)
        return None if task is None or task.done() else task

    def enter(self, session: Session, expiry_s: int) -> None:
        """Its client is connected. Raises MqttError if there is no room for it."""
        session.expiry_s = expiry_s
        if session.is_kept and session.room is None:
            room = Reservation(self._room, session.client[0])
            if not room.try_grow(_SESSION_BYTES):
                raise MqttError(Code.QUOTA, "there are too many sessions")
            session.room, self._all[session.client] = room, session
        for one in session.unfinished:
            if one.room is None:
                one.room = Reservation(self._unfinished, session.client[0])
        self._connected.add(session)
        if session.until_us is not None:
            session.until_us = None
            self._store_soon(session)

    def leave(self, session: Session, expiry_s: int) -> None:
        """Its client has gone."""
        self._connected.discard(session)
        if self._all.get(session.client) is not session:
            self._close(session)
            return
        session.expiry_s = expiry_s
        session.until_us = self._broker.log_clock.created_us() + expiry_s * _SECOND_US
        if expiry_s:
            self.acknowledged(session)
            self._store_soon(session)
        else:
            self.end(session)

    def acknowledged(self, session: Cursor) -> None:
        """Its offset is committed soon."""
        if session.is_stored:
            self._changed.add(session)
            if "commit" not in self._timers:
                self._again("commit", mqtt_limits.COMMIT_S)

    async def store(self, session: Session, publisher: Publisher) -> None:
        """Its subscriptions, and where it begins. Raises MqttError."""
        records = self._records(session)
        size_bytes = len(records.values[0] or b"")
        assert session.room is not None
        more_bytes = _SESSION_BYTES + size_bytes - session.room.held
        if size_bytes > mqtt_limits.SESSION_BYTES_MAX or (
            more_bytes > 0 and not session.room.try_grow(more_bytes)
        ):
            raise MqttError(Code.QUOTA, "there is no room for the session's subscriptions")
        try:
            await self._make_topic()
        except SebError as error:
            raise MqttError(code_of(error), error.detail) from error
        session.is_stored = True
        commit = self._logs.commit(session.group, session.acknowledged)
        try:
            await publisher.store({self._topic: records}, size_bytes, commit)
        except MqttError as error:
            if not isinstance(error.__cause__, CommitBackwardError):
                raise
            # While this waited, a further offset was committed.
            await publisher.store({self._topic: records}, size_bytes)

    def end(self, session: Session) -> asyncio.Task[None]:
        """It is over; and gone once the task has ended, which raises SebError."""
        session.is_over = True
        del self._all[session.client]
        self._changed.discard(session)
        self.ended(session)
        self._close(session)
        if session.room is not None:
            session.room.release()
        task = self._ending[session.client] = self._spawn(self._remove(session))
        task.add_done_callback(lambda _: self._ending.pop(session.client, None))
        return task

    # --- inside ---

    @staticmethod
    def _close(session: Session) -> None:
        for one in session.unfinished:
            one.close()

    async def _remove(self, session: Session) -> None:
        if not session.is_stored:
            return
        gone = NewRecords([None], [_name(session.client)])
        held = self._reserved()
        # Its client may wait for CONNACK, for nobody knows how long.
        await self._broker.appends.append(self._key, self._topic, gone, held, patience_ms=0)
        with contextlib.suppress(GroupNotFoundError):
            await self._broker.groups.delete(session.group)

    async def _make_topic(self) -> None:
        """If somebody has deleted it, with all sessions that are kept. Raises SebError."""
        topics, name = self._broker.topics, self._topic
        if topics.exists(name) and topics.get(name).topic_id == self._topic_id:
            return
        with contextlib.suppress(TopicDiffersError):  # somebody has changed its settings
            await topics.create(name, _SETTINGS, THE_APPLIANCE)
        topic_id = topics.get(name).topic_id
        await self._store_all([one for one in self._all.values() if one.is_stored])
        self._topic_id = topic_id

    def _reserved(self) -> Reservation:
        """Raises OverloadedError, ShareExceededError."""
        with Reservation(self._broker.pending, self._key.api_key_id) as reservation:
            reservation.grow(limits.PENDING_REQUEST_BYTES)
            return reservation.handed_over()

    def _load(self, key: bytes, value: bytes) -> Session | None:
        """Returns it if the routes have changed: it must be stored again."""
        found = read_document(key, value)
        if found is None:
            return None
        client, document = found
        session = Session(client, document.expiry_s)
        default_id = document.default_id or self._logs.default_id
        session.subscriptions = _loaded(document.filters, default_id)
        session.shared = _loaded(document.shared, default_id)
        routes = self._logs.routes
        is_routed_anew = document.routes != routes.all
        if is_routed_anew:
            self._route_anew(session, Routes(routes.default, document.routes))
        now_us = self._broker.log_clock.created_us()
        session.until_us = document.until_us or now_us + document.expiry_s * _SECOND_US
        for topic_filter, (_, since) in session.subscriptions.items():
            for topic in self._logs.all(topic_filter):
                done = self._broker.groups.committed_offset(session.group, topic.topic_id)
                offset = since.get(topic.topic_id, 0) if done is None else done
                session.positions.setdefault(topic.topic_id, Position(offset))
        session.room = Reservation(self._room, client[0])
        session.room.grow_anyway(_SESSION_BYTES + len(value))
        session.is_stored = True
        self._all[session.client] = session
        return session if is_routed_anew else None

    async def _store_all(self, sessions: list[Session]) -> None:
        """Raises SebError."""
        for begin in range(0, len(sessions), _TOGETHER):
            made = [self._records(one) for one in sessions[begin : begin + _TOGETHER]]
            records = NewRecords(
                [value for one in made for value in one.values],
                [key for one in made for key in one.keys or ()],
            )
            await self._broker.appends.append(self._key, self._topic, records, self._reserved())

    def _route_anew(self, session: Session, earlier: Routes) -> None:
        """What the earlier routes did not have, its filters have from the log end on."""
        for topic_filter, (_, since) in (*session.subscriptions.items(), *session.shared.items()):
            for topic in self._logs.all(unshared(topic_filter)):
                if not earlier.is_log(topic.name):
                    since.setdefault(topic.topic_id, topic.log_end_offset)

    def _records(self, session: Session) -> NewRecords:
        filters, shared = map(self._stored, (session.subscriptions, session.shared))
        routes, default_id = self._logs.routes.all, self._logs.default_id
        document = Document(session.expiry_s, filters, session.until_us, shared, routes, default_id)
        return NewRecords([msgspec.json.encode(document)], [_name(session.client)])

    def _stored(self, given: dict[str, Subscribed]) -> list[tuple[Subscription, int | Offsets]]:
        default = self._logs.default_id
        return [(one, at[default] if [*at] == [default] else at) for one, at in given.values()]

    def _store_soon(self, session: Session) -> None:
        """If this fails, a restart counts the time of its expiry from then."""
        if not session.is_stored:
            return
        records = self._records(session)
        size_bytes = len(records.values[0] or b"")
        self._broker.appends.append_nowait(self._key, self._topic, records, size_bytes, _NOBODY)

    def _has_expired(self, session: Session) -> bool:
        if session.until_us is None:
            return False
        for_us = session.expiry_s * _SECOND_US
        return self._broker.log_clock.age_us(session.until_us - for_us) >= for_us

    def _again(self, name: str, seconds: float) -> None:
        def begin() -> None:
            self._spawn(self._sweep() if name == "sweep" else self._commit())

        self._timers[name] = self._broker.clock.call_later(seconds, begin)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="mqtt sessions")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("an MQTT session is not stored: %s", error)

    async def _commit(self) -> None:
        del self._timers["commit"]
        changed, self._changed = self._changed, set()
        async for session in in_slices(changed):
            commit = self._logs.commit(session.group, session.acknowledged)
            if session.is_over or commit is None:
                continue
            if not self._broker.groups.commit_nowait(THE_APPLIANCE, commit, _NOBODY):
                try:  # the first one of a share makes its group
                    await self._broker.groups.commit(commit, self._reserved())
                except SebError:  # there is no room now
                    self.acknowledged(session)

    async def _sweep(self) -> None:
        """Sessions end, and those that get little are committed now and then."""
        with contextlib.suppress(SebError):  # there is no room now
            await self._make_topic()
        async for session in in_slices(list(self._all.values())):
            if session in self._connected:
                self.acknowledged(session)
            elif self._has_expired(session):
                self.end(session)
        self._again("sweep", mqtt_limits.SESSION_SWEEP_S)


class _Nobody:
    """Told of what need not be stored."""

    def stored(self, admitted: object, window_s: float, put_s: float) -> None: ...

    def failed(self, error: SebError) -> None: ...


_NOBODY: Final = _Nobody()


def _name(client: Client) -> bytes:
    return "/".join(client).encode()


def _loaded(
    stored: list[tuple[Subscription, int | Offsets]], default_id: int
) -> dict[str, Subscribed]:
    return {
        one.topic_filter: (one, {default_id: at} if isinstance(at, int) else at)
        for one, at in stored
    }


def read_document(key: bytes, value: bytes) -> tuple[Client, Document] | None:
    """Whose session a record is, and what is stored of it; None for a record that is none: others
    may have stored it."""
    try:
        api_key_id, _, client_id = key.decode().partition("/")
        document = msgspec.json.decode(value, type=Document)
        for one, _ in document.filters:
            check_filter(one.topic_filter)
        for one, _ in document.shared:
            share_of(one.topic_filter)
    except (UnicodeDecodeError, RecursionError, msgspec.MsgspecError, MqttError) as error:
        _log.warning("the MQTT session %r cannot be read: %s", key, error)
        return None
    return (api_key_id, client_id), document
