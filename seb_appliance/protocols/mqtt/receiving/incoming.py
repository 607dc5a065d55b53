"""What a client publishes: checked and stored in its order, acknowledged when the bucket has it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Literal, Protocol

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.errors import SebError
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import V5, Code, MqttError, Publish
from seb_appliance.protocols.mqtt.messages.grants import Grants
from seb_appliance.protocols.mqtt.messages.reading import Logs
from seb_appliance.protocols.mqtt.messages.records import check_topic, to_records
from seb_appliance.protocols.mqtt.receiving.publishing import Pending, Publisher, code_of
from seb_appliance.protocols.mqtt.sending.retained import Retained
from seb_appliance.protocols.mqtt.unfinished import Unfinished


class Source(Protocol):
    """The connection."""

    version: int
    client_id: str
    wants_origin: bool

    def write(self, data: bytes) -> None: ...

    def end(self, reason: str, code: int = 0) -> None: ...

    def done(self) -> None: ...

    def go_on(self) -> None: ...


class Incoming:
    """`exactly_once`: of the session; by packet id of a message of QoS 2 True, if it is stored,
    or whom to tell."""

    def __init__(
        self,
        connection: Source,
        broker: Broker,
        key: ApiKeyView,
        logs: Logs,
        retained: Retained,
        counts: Counter[str],
    ) -> None:
        self.grants = Grants(key, logs.routes)
        self.publisher = Publisher(broker, key)
        self.exactly_once = Unfinished[Literal[True] | Incoming]()
        self.connection = connection
        self._broker = broker
        self._key = key
        self._logs = logs
        self._retained = retained
        self._counts = counts
        self._aliases = dict[int, str]()
        self._in_flight = 0  # messages that are being stored, and their bytes
        self._in_flight_bytes = 0
        self.received = 0  # messages
        self._unacknowledged = 0  # QoS 1 and 2, as the client counts them
        self._storing: asyncio.Task[None] | None = None  # one that waits for room

    @property
    def must_wait(self) -> bool:
        """No packet is taken meanwhile."""
        return (
            self._storing is not None
            or self._in_flight >= 2 * mqtt_limits.IN_FLIGHT_MAX
            or self._in_flight_bytes >= mqtt_limits.IN_FLIGHT_BYTES_MAX
        )

    @property
    def is_busy(self) -> bool:
        """Something is being stored."""
        return self._storing is not None or self._in_flight > 0

    def close(self) -> None:
        if self._storing is not None:
            self._storing.cancel()

    def check(self, message: Publish) -> None:
        """Raises MqttError."""
        check_topic(message.topic)
        if not self.grants.may_publish(message.topic):
            text = f"the API key has no grant to produce to {message.topic[:100]!r}"
            raise MqttError(Code.NOT_AUTHORIZED, text)
        topic, is_keyed = self._logs.routes.place(message.topic)
        if is_keyed or self._logs.has(topic):
            return
        if not self.grants.may_create(topic):
            text = f"there is no topic {topic[:100]}, and the API key has no grant to create it"
            raise MqttError(Code.NOT_AUTHORIZED, text)
        if self._logs.is_full:
            raise MqttError(Code.QUOTA, "there are too many topics with messages")

    def records(self, message: Publish) -> dict[str, NewRecords]:
        """By topic. Raises MqttError."""
        origin = self.connection.client_id if self.connection.wants_origin else ""
        made = to_records(message, self._broker.clock.wall_us(), origin)
        topic, is_keyed = self._logs.routes.place(message.topic)
        found = {topic: made if is_keyed else replace(made, keys=None)}
        if message.retain:
            found[self._retained.topic] = self._retained.records(made, self._key.api_key_id)
        return found

    def publish(self, flags: int, body: bytes) -> None:
        """Raises MqttError."""
        version = self.connection.version
        message = codec.read_publish(flags, body, version)
        self.received += 1
        self._resolve_alias(message)
        known = self.exactly_once.get(message.packet_id) if message.qos == 2 else None
        if known is not None:  # sent again: its PUBREC follows once it is stored
            if known is True:
                self.acknowledge(codec.PUBREC, message.packet_id)
            else:  # perhaps on an earlier connection
                self.exactly_once[message.packet_id] = self
            return
        if message.qos:
            too_many = version == V5 and self._unacknowledged >= mqtt_limits.IN_FLIGHT_MAX
            if too_many or len(self.exactly_once) >= mqtt_limits.IN_FLIGHT_MAX:
                raise MqttError(Code.TOO_MANY_IN_FLIGHT, "there are too many unfinished messages")
            if message.qos == 2 and not self.exactly_once.may_grow():
                raise MqttError(Code.QUOTA, "there is no memory for a further unfinished message")
        try:
            self.check(message)
            records = self.records(message)
        except MqttError as error:
            if version != V5 or not message.qos:
                raise
            self.acknowledge(codec.PUBACK if message.qos == 1 else codec.PUBREC,
                              message.packet_id, error)  # fmt: skip
            return
        self._store(records, Pending(self, message))

    async def store(self, records: dict[str, NewRecords], size_bytes: int) -> None:
        """As the publisher does, also if somebody has deleted a topic that routes name. Raises
        MqttError."""
        try:
            await self._logs.make()
        except SebError as error:
            raise MqttError(code_of(error), error.detail) from error
        await self.publisher.store(records, size_bytes)

    def released(self, packet_id: int) -> None:
        """PUBREL."""
        if self.exactly_once.drop(packet_id) is not None:
            self._unacknowledged = max(0, self._unacknowledged - 1)
        self.acknowledge(codec.PUBCOMP, packet_id)

    def stored(self, pending: Pending) -> None:
        """The bucket has it."""
        self._counts["stored"] += 1
        was_waiting = self._leave(pending)
        if pending.qos == 1:
            self._unacknowledged -= 1
            self.acknowledge(codec.PUBACK, pending.packet_id)
        elif pending.qos == 2:
            waiting = self.exactly_once.get(pending.packet_id)
            self.exactly_once[pending.packet_id] = True
            if isinstance(waiting, Incoming):
                waiting.acknowledge(codec.PUBREC, pending.packet_id)
        if was_waiting:
            self.connection.go_on()
        self.connection.done()

    def failed(self, pending: Pending, error: SebError) -> None:
        """After it was admitted: whether the bucket has it is not known."""
        self._not_stored(pending, MqttError(code_of(error), error.detail))

    # --- inside ---

    def _resolve_alias(self, message: Publish) -> None:
        alias = message.properties.pop("topic_alias", None)
        if alias is None:
            return
        if not 0 < alias <= mqtt_limits.ALIASES_MAX:
            raise MqttError(Code.BAD_ALIAS, "the topic alias is too large, or 0")
        if message.topic:
            self._aliases[alias] = check_topic(message.topic)
        elif alias in self._aliases:
            message.topic = self._aliases[alias]
        else:
            raise MqttError(Code.PROTOCOL_ERROR, "the topic alias stands for nothing")

    def _store(self, records: dict[str, NewRecords], pending: Pending) -> None:
        self._in_flight += 1
        self._in_flight_bytes += pending.size_bytes
        self._unacknowledged += pending.qos > 0
        if pending.qos == 2:
            self.exactly_once[pending.packet_id] = self
        if not self.publisher.store_nowait(records, pending):
            self._storing = asyncio.create_task(self._store_later(records, pending), name="mqtt")

    async def _store_later(self, records: dict[str, NewRecords], pending: Pending) -> None:
        """No packet is taken meanwhile, so that the order stays."""
        try:
            await self.store(records, pending.size_bytes)
        except MqttError as error:
            self._storing = None
            self._not_stored(pending, error)
        else:
            self._storing = None
            self.stored(pending)
            self.connection.go_on()

    def _not_stored(self, pending: Pending, error: MqttError) -> None:
        """Without an acknowledgement the client sends it again."""
        self._leave(pending)
        if pending.qos == 2:
            waiting = self.exactly_once.drop(pending.packet_id)
            if isinstance(waiting, Incoming):
                waiting.connection.end(error.text, error.code)
        self._counts["failed"] += 1
        self.connection.end(error.text, error.code)

    def _leave(self, pending: Pending) -> bool:
        was_waiting = self.must_wait
        self._in_flight -= 1
        self._in_flight_bytes -= pending.size_bytes
        return was_waiting

    def acknowledge(self, kind: int, packet_id: int, error: MqttError | None = None) -> None:
        code, text = (Code.SUCCESS, "") if error is None else (error.code, error.text)
        if error is not None:
            self._counts["refused"] += 1
        self.connection.write(codec.write_ack(kind, packet_id, self.connection.version, code, text))
