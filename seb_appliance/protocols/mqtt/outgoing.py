"""What a client is sent: as much as it takes, in order. For a session that outlives its connection,
what cannot be sent at once is read from the log; for others no more than a little waits here."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import SebError
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt.codec import Code, Publish, Subscription
from seb_appliance.protocols.mqtt.filters import Filters
from seb_appliance.protocols.mqtt.reading import Row, Turns, read
from seb_appliance.protocols.mqtt.records import to_publish
from seb_appliance.protocols.mqtt.sessions import Sent, Session, Sessions

_IDS: Final = 65_535


class Receiver(Protocol):
    """The connection."""

    transport: Any
    version: int

    def write(self, data: bytes) -> None: ...

    def end(self, code: int, reason: str) -> None: ...


class Log(Protocol):
    """The dispatcher. `begun_offset`: it has not begun to send records from there on."""

    topic: str
    begun_offset: int
    done_offset: int


class Outgoing:
    """`asked`: the properties of its CONNECT. A client that reads too slowly is disconnected,
    unless its session is kept."""

    def __init__(
        self,
        connection: Receiver,
        broker: Broker,
        key: ApiKeyView,
        asked: Mapping[str, Any],
        session: Session,
        sessions: Sessions,
        log: Log,
        counts: Counter[str],
    ) -> None:
        self._connection = connection
        self._broker = broker
        self._window = min(asked.get("receive_maximum", _IDS), limits.MQTT_IN_FLIGHT_MAX)
        self._largest = asked.get("maximum_packet", limits.MQTT_PACKET_BYTES_MAX * 2)
        self._session = session
        self._sessions = sessions
        self._log = log
        self._counts = counts
        self._unacknowledged = set[int]()  # of this connection
        self._waiting = deque[Publish]()
        self._held = Reservation(broker.followers.budget, key.api_key_id)
        self._meter = broker.access.meters.of(key)
        self._is_over = False
        self._has_gone_on = asyncio.Event()  # something was acknowledged or read
        self._reading: asyncio.Task[None] | None = None

    def resume(self) -> None:
        """Sends again what the session's client has not acknowledged, and then what it missed."""
        if self._session.subscriptions or self._session.sent:
            self._read_on(self._session.next_offset)
        else:
            self._session.is_live = True

    async def room(self) -> None:
        """Waits until a message can be sent at once."""
        while self._waiting or not self._may_send:
            self._has_gone_on.clear()
            await self._has_gone_on.wait()

    def deliver(self, message: Publish, offset: int | None = None) -> str:
        """What becomes of it: sent, dropped, or delayed. `offset` None: it is retained, and there
        is `room`."""
        if self._is_over:
            return "dropped"
        if self._meter is not None and self._meter.overdrawn_s > 0:
            self._too_slow("the API key has used its quota of bytes out per second")
            return "dropped"
        if message.qos == 0:
            return self._send(message) if self._has_room else "dropped"
        session = self._session
        if offset is not None and (session.is_kept or not session.is_live):
            if not session.is_live or offset < session.next_offset:
                return "delayed"
            if not self._may_send:
                self._read_on(offset)
                return "delayed"
            session.next_offset = offset + 1
            return self._send(message, offset)
        if not self._waiting and self._may_send:
            return self._send(message)
        size_bytes = len(message.payload) + limits.PENDING_RECORD_BYTES
        if self._held.held + size_bytes > limits.MQTT_WAITING_BYTES_MAX or not self._held.try_grow(
            size_bytes
        ):
            self._too_slow("messages are read or acknowledged too slowly")
            return "dropped"
        self._waiting.append(message)
        return "delayed"

    def acknowledged(self, kind: int, packet_id: int, code: int) -> None:
        """PUBACK, PUBREC or PUBCOMP."""
        sent = self._session.sent
        if kind == codec.PUBREC and code < Code.UNSPECIFIED:
            known = sent.get(packet_id)
            if known is not None:
                known.is_received = True
            self._release(packet_id, Code.SUCCESS if known is not None else Code.NO_PACKET_ID)
            return
        if sent.pop(packet_id, None) is not None:
            self._sessions.acknowledged(self._session)
        self._unacknowledged.discard(packet_id)
        self.pump()

    def pump(self) -> None:
        """Sends what waits, as far as the client takes it."""
        while self._waiting and self._may_send:
            self._send(self._waiting.popleft())
        if not self._waiting:
            self._held.release()
        self._has_gone_on.set()

    def fail(self, why: str) -> None:
        """What it must be sent cannot be read."""
        self.close()
        self._connection.end(Code.UNAVAILABLE, why)

    def close(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._waiting.clear()
        self._held.release()
        if self._reading is not None:
            self._reading.cancel()
        session = self._session
        if session.is_live:
            session.next_offset = max(session.next_offset, self._log.done_offset)
            session.is_live = False

    # --- inside ---

    @property
    def _may_send(self) -> bool:
        return self._has_room and len(self._unacknowledged) < self._window

    @property
    def _has_room(self) -> bool:
        unsent: int = self._connection.transport.get_write_buffer_size()
        return unsent < limits.MQTT_UNSENT_BYTES_MAX

    def _too_slow(self, why: str) -> None:
        self.close()
        self._connection.end(Code.QUOTA, why)

    def _send(self, message: Publish, offset: int | None = None) -> str:
        if message.qos:
            message = replace(message, packet_id=self._next_id())
        data = codec.write_publish(message, self._connection.version)
        if len(data) > self._largest:  # as the client asked: it is not sent
            return "dropped"
        if message.qos:
            self._unacknowledged.add(message.packet_id)
            self._session.sent[message.packet_id] = Sent(message.qos, offset, message.topic)
        self._write(data)
        return "sent"

    def _write(self, data: bytes) -> None:
        if self._meter is not None:
            self._meter.charge_out(len(data))
        self._connection.write(data)

    def _release(self, packet_id: int, code: int = Code.SUCCESS) -> None:
        self._connection.write(
            codec.write_ack(codec.PUBREL, packet_id, self._connection.version, code)
        )

    def _next_id(self) -> int:
        """There is a free one, because the window is smaller."""
        session = self._session
        while True:
            session.last_id = session.last_id % _IDS + 1
            if session.last_id not in session.sent:
                return session.last_id

    # --- the log ---

    def _read_on(self, offset: int) -> None:
        """Read the log from there on, until nothing but new records is left."""
        self._session.is_live, self._session.next_offset = False, offset
        self._reading = asyncio.create_task(self._catch_up(), name="mqtt session")

    async def _catch_up(self) -> None:
        session, turns = self._session, Turns()
        try:
            await self._send_again()
            while session.next_offset < self._log.begun_offset:
                start = self._broker.topics.get(self._log.topic).log_start_offset
                begin = max(session.next_offset, start)
                rows, after = await read(self._broker, self._log.topic, begin)
                filters = Filters[tuple[Subscription, int]]()
                for topic_filter, value in session.subscriptions.items():
                    filters.put(topic_filter, session, value)
                for row in rows:
                    await turns.step()
                    await self._send_row(row, filters)
                session.next_offset = max(session.next_offset, after)
        except SebError as error:
            self.fail(error.detail)
        else:
            session.is_live = True

    async def _send_row(self, row: Row, filters: Filters[tuple[Subscription, int]]) -> None:
        """QoS 0 is not kept for a client that was away."""
        found = to_publish(row.key, row.value, row.headers, self._broker.clock.wall_us())
        if found is None or row.offset < self._session.next_offset:
            return
        message, origin = found
        wanted = [
            one
            for _, (one, since) in filters.match(message.topic)
            if row.offset >= since and not (one.no_local and origin == self._session.client[1])
        ]
        if message.qos and any(one.qos for one in wanted):
            await self.room()
            self._counts[self._send(merged(message, wanted), row.offset)] += 1
        self._session.next_offset = row.offset + 1

    async def _send_again(self) -> None:
        session = self._session
        for packet_id, sent in list(session.sent.items()):
            if packet_id in self._unacknowledged:
                continue  # it was sent on this connection
            await self.room()
            if sent.is_received:
                self._unacknowledged.add(packet_id)
                self._release(packet_id)
                continue
            topic = self._log.topic
            rows = (
                [] if sent.offset is None else (await read(self._broker, topic, sent.offset, 1))[0]
            )
            row = rows[0] if rows and rows[0].offset == sent.offset else None
            found = row and to_publish(*row[1:], self._broker.clock.wall_us())
            if not found:  # it has expired, or was replaced
                del session.sent[packet_id]
                continue
            again = replace(found[0], packet_id=packet_id, qos=sent.qos, retain=False)
            self._unacknowledged.add(packet_id)
            self._write(codec.write_publish(again, self._connection.version, duplicate=True))


def merged(message: Publish, subscriptions: Sequence[Subscription]) -> Publish:
    """The message as a client gets it, once, for all its subscriptions that match."""
    identifiers = [one.identifier for one in subscriptions if one.identifier]
    given = message.properties | ({"subscription_id": identifiers} if identifiers else {})
    return replace(
        message,
        qos=min(message.qos, max(one.qos for one in subscriptions)),
        retain=message.retain and any(one.retain_as_published for one in subscriptions),
        properties=given,
    )
