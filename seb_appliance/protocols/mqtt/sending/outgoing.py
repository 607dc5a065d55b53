"""What a client is sent: as much as it takes, in order. What cannot be sent at once is read from
the log later, so that nothing waits here."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code, Publish, Subscription
from seb_appliance.protocols.mqtt.sessions import Position, Session, Sessions
from seb_appliance.protocols.mqtt.unfinished import Giver, Place, Sent

_IDS: Final = 65_535


class Receiver(Protocol):
    """The connection."""

    version: int

    @property
    def holds_key(self) -> bool: ...

    @property
    def writes_later(self) -> bool: ...

    def may_write(self, size_bytes: int) -> bool: ...

    def write_later(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def end(self, reason: str, code: int = 0) -> None: ...


class Feed(Protocol):
    """Reads for a session what cannot be sent at once."""

    def read_on(self, topic_id: int, at: Position) -> None: ...

    def close(self) -> None: ...


class Outgoing:
    """`asked`: the properties of its CONNECT."""

    def __init__(
        self,
        connection: Receiver,
        broker: Broker,
        key: ApiKeyView,
        asked: Mapping[str, Any],
        session: Session,
        sessions: Sessions,
        counts: Counter[str],
    ) -> None:
        self._connection = connection
        self._window = min(asked.get("receive_maximum", _IDS), mqtt_limits.IN_FLIGHT_MAX)
        self._largest = asked.get("maximum_packet", mqtt_limits.PACKET_BYTES_MAX * 2)
        self._aliases_max = min(asked.get("topic_alias_maximum", 0), mqtt_limits.ALIASES_MAX)
        self._aliases = dict[str, int]()  # by topic
        self._session = session
        self._sessions = sessions
        self._counts = counts
        self.sent = 0  # messages
        self._unacknowledged = set[int]()  # of this connection
        self.shares = set[Giver]()  # told when there is room
        self._meter = broker.access.meters.of(key)
        self._is_over = False
        self._has_gone_on = asyncio.Event()  # something was acknowledged or read
        self.feed: Feed | None = None

    @property
    def waiting(self) -> int:
        """Messages that were sent and are not acknowledged."""
        return len(self._unacknowledged)

    async def room(self, message: Publish | None = None, *, again: bool = False) -> None:
        """Waits until it can be sent at once; None: one that is not known yet. `again`: it was sent
        before."""
        is_open = self._is_open if again else self.may_send
        while self._connection.writes_later or not is_open(message):
            self._has_gone_on.clear()
            await self._has_gone_on.wait()

    def deliver(self, message: Publish, place: Place | None = None) -> str:
        """What becomes of it: sent, dropped, or delayed. `place` None: it is retained, and there
        is `room`."""
        if self._is_over:
            return "dropped"
        if self._meter is not None and self._meter.overdrawn_s > 0:
            self.close()
            why = "the API key has used its quota of bytes out per second"
            self._connection.end(why, Code.QUOTA)
            return "dropped"
        if message.qos == 0:
            return self.send(message) if self._may_write(message) else "dropped"
        if place is None:
            return self.send(message)
        at = self._session.position(place.topic_id)
        if not at.is_live or place.offset < at.next_offset:
            return "delayed"
        at.next_offset = place.offset
        if not self.may_send(message):
            assert self.feed is not None
            self.feed.read_on(place.topic_id, at)
            return "delayed"
        at.next_offset += 1
        return self.send(message, place)

    def offer(self, message: Publish, share: Giver, place: Place) -> str | None:
        """Send a message of a share; None if the client takes none now."""
        overdrawn = self._meter is not None and self._meter.overdrawn_s > 0
        if self._is_over or overdrawn or not self.may_send(message):
            return None
        return self.send(message, place, share)

    def send_again(self, sent: Sent, packet_id: int, message: Publish | None = None) -> bool:
        """What was sent on an earlier connection. No message: its PUBREL. False if the client does
        not take it now."""
        if not self._is_open(message):
            return False
        self._unacknowledged.add(packet_id)
        if message is None:
            self._release(packet_id)
            return True
        again = replace(message, qos=sent.qos, retain=False)
        version = self._connection.version
        self._write(codec.write_publish(again, version, packet_id, duplicate=True))
        return True

    def was_sent(self, packet_id: int) -> bool:
        """On this connection."""
        return packet_id in self._unacknowledged

    def acknowledged(self, kind: int, packet_id: int, code: int) -> None:
        """PUBACK, PUBREC or PUBCOMP."""
        sent = self._session.sent
        if kind == codec.PUBREC and code < Code.UNSPECIFIED:
            known = sent.get(packet_id)
            if known is not None:
                known.is_received = True
            self._release(packet_id, Code.SUCCESS if known is not None else Code.NO_PACKET_ID)
            return
        done = sent.drop(packet_id)
        if done is not None and done.share is not None and done.place is not None:
            done.share.done(done.place)
        elif done is not None:
            self._sessions.acknowledged(self._session)
        self._unacknowledged.discard(packet_id)
        self.pump()

    def pump(self) -> None:
        """There may be room now."""
        self._has_gone_on.set()
        for share in self.shares:
            share.has_room(self)

    def fail(self, why: str) -> None:
        """What it must be sent cannot be read."""
        self.close()
        self._connection.end(why, Code.UNAVAILABLE)

    def close(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        for packet_id, sent in list(self._session.sent.items()):
            if sent.share is not None and sent.place is not None:
                self._session.sent.drop(packet_id)
                sent.share.give_back(sent.place)
        if self.feed is not None:
            self.feed.close()

    # --- inside ---

    def may_send(self, message: Publish | None) -> bool:
        """Whether the client takes the message now, and there is memory to wait for its end. If it
        does not, `pump` follows."""
        return self._is_open(message) and self._session.sent.may_grow()

    def _is_open(self, message: Publish | None) -> bool:
        if len(self._unacknowledged) >= self._window:
            return False
        if self._may_write(message):
            return True
        if self._may_write(None):  # nothing that is on its way ends the wait
            self._connection.write_later()
        return False

    def _may_write(self, message: Publish | None) -> bool:
        size_bytes = 0 if message is None else _size_bytes(message)
        return self._connection.may_write(size_bytes)

    def send(self, message: Publish, place: Place | None = None, share: Giver | None = None) -> str:
        """Whether it is sent or dropped. There is `room`."""
        packet_id = self._next_id() if message.qos else 0
        alias = self._alias_of(message.topic)
        short = message if alias is None else aliased(message, alias, self._aliases)
        data = codec.write_publish(short, self._connection.version, packet_id)
        if len(data) > self._largest:  # as the client asked: it is not sent
            return "dropped"
        if alias is not None:
            self._aliases[message.topic] = alias
        if packet_id:
            self._unacknowledged.add(packet_id)
            self._session.sent[packet_id] = Sent(message.qos, place, share)
        self._write(data)
        self.sent += 1
        return "sent"

    def _alias_of(self, topic: str) -> int | None:
        """What stands for the topic, now or from its next message on."""
        following = len(self._aliases) + 1
        return self._aliases.get(topic, following if following <= self._aliases_max else None)

    def _write(self, data: bytes) -> None:
        if not self._connection.holds_key:
            self._connection.end("the API key has changed or expired", Code.NOT_AUTHORIZED)
            return
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


def _size_bytes(message: Publish) -> int:
    """About that of its packet."""
    size_bytes = len(message.topic) + len(message.payload)
    return size_bytes + (len(codec.properties(message.properties)) if message.properties else 0)


def aliased(message: Publish, alias: int, known: Mapping[str, int]) -> Publish:
    """Without its topic, if the client knows the alias."""
    topic = "" if message.topic in known else message.topic
    return replace(message, topic=topic, properties=message.properties | {"topic_alias": alias})


def merged(message: Publish, subscriptions: Sequence[Subscription]) -> Publish:
    """The message as a client gets it, once, for all its subscriptions that match."""
    identifiers = [one.identifier for one in subscriptions if one.identifier]
    qos = min(message.qos, max([one.qos for one in subscriptions]))
    retain = message.retain and any(one.retain_as_published for one in subscriptions)
    if not identifiers and (qos, retain) == (message.qos, message.retain):
        return message  # most are: a copy takes longer than all else here
    given = message.properties | ({"subscription_id": identifiers} if identifiers else {})
    return replace(message, qos=qos, retain=retain, properties=given)
