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
from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.topics.names import check_group_name
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.clock import Timer
from seb_appliance.errors import BadNameError, GroupNotFoundError, SebError, TopicDiffersError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.protocols.mqtt.codec import Code, MqttError, Subscription
from seb_appliance.protocols.mqtt.publishing import Publisher
from seb_appliance.protocols.mqtt.reading import read
from seb_appliance.protocols.mqtt.records import word
from seb_appliance.tasks import in_slices

_log = logging.getLogger(__name__)
_SETTINGS: Final = TopicSettings(cleanup="compact", key_index="latest")
_SECOND_US: Final = 1_000_000
_SESSION_BYTES: Final = 1_024  # about what one without subscriptions takes in memory

Client = tuple[str, str]  # API key id, client id


class Document(msgspec.Struct, omit_defaults=True):
    """A session as it is stored. `until_us`: when it ends, if its client was not connected.
    `filters`: with the log end when each was subscribed."""

    expiry_s: int
    filters: list[tuple[Subscription, int]]
    until_us: int | None = None


class Sent:
    """A message without its last acknowledgement. `offset` None: the retained message of `topic`.
    `is_received`: QoS 2, after PUBREC."""

    __slots__ = ("is_received", "offset", "qos", "topic")

    def __init__(self, qos: int, offset: int | None, topic: str) -> None:
        self.qos = qos
        self.offset = offset
        self.topic = topic
        self.is_received = False


class Session:
    """`next_offset`: all records before it were sent, or are not wanted. `is_live`: and nothing
    but new records is left. `exactly_once`: see `Incoming`."""

    def __init__(self, client: Client, expiry_s: int) -> None:
        self.client = client
        self.expiry_s = expiry_s
        self.subscriptions = dict[str, tuple[Subscription, int]]()
        self.sent = dict[int, Sent]()  # by packet id, in the order of sending
        self.last_id = 0
        self.next_offset = 0
        self.is_live = True
        self.exactly_once = dict[int, Any]()
        self.until_us: int | None = None
        self.is_stored = False
        self.is_over = False
        self.room: Reservation | None = None

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
    def acknowledged_offset(self) -> int:
        """All messages before it are done with."""
        waiting = (one.offset for one in self.sent.values() if one.offset is not None)
        return min(waiting, default=self.next_offset)


class Sessions:
    """`messages`: the topic whose records the clients get; `topic`: where sessions are stored."""

    def __init__(self, broker: Broker, messages: str, topic: str) -> None:
        self._broker = broker
        self._messages = messages
        self._topic = topic
        remedy = "End sessions: connect with clean start."
        self._room = broker.shares.declare(
            "mqtt_sessions", limits.MQTT_SESSIONS_BYTES_MAX, "bytes of MQTT sessions", remedy
        )
        self._all = dict[Client, Session]()
        self._ending = dict[Client, asyncio.Task[None]]()
        self._connected = set[Session]()
        self._changed = set[Session]()
        self._key = ApiKeyView("mqtt", "mqtt", (), broker.clock.wall_us())
        self._timers = dict[str, Timer]()
        self._tasks = set[asyncio.Task[None]]()

    @property
    def count(self) -> int:
        return len(self._all)

    async def start(self) -> None:
        """Raises SebError."""
        with contextlib.suppress(TopicDiffersError):  # somebody has changed its settings
            await self._broker.topics.create(self._topic, _SETTINGS, THE_APPLIANCE)
        found = self._broker.topics.get(self._topic)
        offset, stored = found.log_start_offset, dict[bytes, bytes]()
        while offset < found.log_end_offset:
            rows, offset = await read(self._broker, self._topic, offset)
            for row in rows:
                if row.key is not None:
                    stored.pop(row.key, None)
                    if row.value is not None:
                        stored[row.key] = row.value
        async for key, value in in_slices(stored.items()):
            self._load(key, value)
        self._again("sweep", limits.MQTT_SESSION_SWEEP_S)

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
        return self._ending.get(client)

    def enter(self, session: Session, expiry_s: int) -> None:
        """Its client is connected. Raises MqttError if there is no room for it."""
        session.expiry_s = expiry_s
        if session.is_kept and session.room is None:
            room = Reservation(self._room, session.client[0])
            if not room.try_grow(_SESSION_BYTES):
                raise MqttError(Code.QUOTA, "there are too many sessions")
            session.room, self._all[session.client] = room, session
        self._connected.add(session)
        if session.until_us is not None:
            session.until_us = None
            self._store_soon(session)

    def leave(self, session: Session, expiry_s: int) -> None:
        """Its client has gone."""
        self._connected.discard(session)
        if self._all.get(session.client) is not session:
            return
        session.expiry_s = expiry_s
        session.until_us = self._broker.clock.wall_us() + expiry_s * _SECOND_US
        if expiry_s:
            self.acknowledged(session)
            self._store_soon(session)
        else:
            self.end(session)

    def acknowledged(self, session: Session) -> None:
        """Its offset is committed soon."""
        if session.is_stored:
            self._changed.add(session)
            if "commit" not in self._timers:
                self._again("commit", limits.MQTT_COMMIT_S)

    async def store(self, session: Session, publisher: Publisher) -> None:
        """Its subscriptions, and where it begins. Raises MqttError."""
        records = self._records(session)
        size_bytes = len(records.values[0] or b"")
        assert session.room is not None
        more_bytes = _SESSION_BYTES + size_bytes - session.room.held
        if size_bytes > limits.MQTT_SESSION_BYTES_MAX or (
            more_bytes > 0 and not session.room.try_grow(more_bytes)
        ):
            raise MqttError(Code.QUOTA, "there is no room for the session's subscriptions")
        session.is_stored = True
        found = self._broker.topics.get(self._messages)
        committed = self._broker.groups.committed_offset(session.group, found.topic_id)
        commit = None
        if committed is None or committed < session.acknowledged_offset:
            commit = Commit(session.group, {self._messages: session.acknowledged_offset})
        await publisher.store({self._topic: records}, size_bytes, commit)

    def end(self, session: Session) -> asyncio.Task[None]:
        """It is over; and gone once the task has ended, which raises SebError."""
        session.is_over = True
        del self._all[session.client]
        self._changed.discard(session)
        if session.room is not None:
            session.room.release()
        task = self._ending[session.client] = self._spawn(self._remove(session))
        task.add_done_callback(lambda _: self._ending.pop(session.client, None))
        return task

    # --- inside ---

    async def _remove(self, session: Session) -> None:
        if not session.is_stored:
            return
        gone = NewRecords([None], [_name(session.client)])
        with Reservation(self._broker.pending, self._key.api_key_id) as reservation:
            reservation.grow(limits.PENDING_REQUEST_BYTES)
            held = reservation.handed_over()
        await self._broker.appends.append(self._key, self._topic, gone, held)
        with contextlib.suppress(GroupNotFoundError):
            await self._broker.groups.delete(session.group)

    def _load(self, key: bytes, value: bytes) -> None:
        try:
            api_key_id, _, client_id = key.decode().partition("/")
            document = msgspec.json.decode(value, type=Document)
        except (UnicodeDecodeError, msgspec.MsgspecError) as error:
            _log.warning("the MQTT session %r cannot be read: %s", key, error)
            return
        session = Session((api_key_id, client_id), document.expiry_s)
        session.subscriptions = {one.topic_filter: (one, at) for one, at in document.filters}
        now_us = self._broker.clock.wall_us()
        session.until_us = document.until_us or now_us + document.expiry_s * _SECOND_US
        topic_id = self._broker.topics.get(self._messages).topic_id
        committed = self._broker.groups.committed_offset(session.group, topic_id)
        session.next_offset = committed or 0
        session.room = Reservation(self._room, api_key_id)
        session.room.grow_anyway(_SESSION_BYTES + len(value))
        session.is_stored = True
        self._all[session.client] = session

    def _records(self, session: Session) -> NewRecords:
        filters = list(session.subscriptions.values())
        document = Document(session.expiry_s, filters, session.until_us)
        return NewRecords([msgspec.json.encode(document)], [_name(session.client)])

    def _store_soon(self, session: Session) -> None:
        """If this fails, a restart counts the time of its expiry from then."""
        if not session.is_stored:
            return
        records = self._records(session)
        size_bytes = len(records.values[0] or b"")
        self._broker.appends.append_nowait(self._key, self._topic, records, size_bytes, _NOBODY)

    def _has_expired(self, session: Session) -> bool:
        return session.until_us is not None and session.until_us <= self._broker.clock.wall_us()

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
        topic = self._messages
        topic_id = self._broker.topics.get(topic).topic_id
        async for session in in_slices(changed):
            offset = session.acknowledged_offset
            group = session.group
            if session.is_over or offset <= (
                self._broker.groups.committed_offset(group, topic_id) or 0
            ):
                continue
            commit = Commit(group, {topic: offset})
            if not self._broker.groups.commit_nowait(THE_APPLIANCE, commit, _NOBODY):
                self.acknowledged(session)  # there is no room now

    async def _sweep(self) -> None:
        """Sessions end, and those that get little are committed now and then."""
        async for session in in_slices(list(self._all.values())):
            if session in self._connected:
                self.acknowledged(session)
            elif self._has_expired(session):
                self.end(session)
        self._again("sweep", limits.MQTT_SESSION_SWEEP_S)


class _Nobody:
    """Told of what need not be stored."""

    def stored(self, admitted: object, window_s: float, put_s: float) -> None: ...

    def failed(self, error: SebError) -> None: ...


_NOBODY: Final = _Nobody()


def _name(client: Client) -> bytes:
    return "/".join(client).encode()
