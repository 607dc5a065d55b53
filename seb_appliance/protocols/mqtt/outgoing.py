"""What a client is sent: as much as it takes, in order, and no more than a little waits here."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt.codec import Code, Publish

_IDS: Final = 65_535


class Receiver(Protocol):
    """The connection."""

    transport: Any
    version: int

    def write(self, data: bytes) -> None: ...

    def end(self, code: int, reason: str) -> None: ...


class Outgoing:
    """`asked`: the properties of its CONNECT. A client that reads too slowly is disconnected."""

    def __init__(
        self, connection: Receiver, broker: Broker, key: ApiKeyView, asked: Mapping[str, Any]
    ) -> None:
        self._connection = connection
        self._window = min(asked.get("receive_maximum", _IDS), limits.MQTT_IN_FLIGHT_MAX)
        self._largest = asked.get("maximum_packet", limits.MQTT_PACKET_BYTES_MAX * 2)
        self._unacknowledged: set[int] = set()
        self._last_id = 0
        self._waiting: deque[Publish] = deque()
        self._held = Reservation(broker.followers.budget, key.api_key_id)
        self._meter = broker.access.meters.of(key)
        self._is_over = False
        self._has_gone_on = asyncio.Event()  # something was acknowledged or read

    async def room(self) -> None:
        """Waits until a message can be sent at once."""
        while self._waiting or not self._may_send:
            self._has_gone_on.clear()
            await self._has_gone_on.wait()

    def deliver(self, message: Publish) -> str:
        """What becomes of it: sent, dropped, or delayed."""
        if self._is_over:
            return "dropped"
        if self._meter is not None and self._meter.overdrawn_s > 0:
            self._too_slow("the API key has used its quota of bytes out per second")
            return "dropped"
        if message.qos == 0:
            return self._send(message) if self._has_room else "dropped"
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

    def acknowledged(self, packet_id: int) -> None:
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
        self._is_over = True
        self._waiting.clear()
        self._held.release()

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

    def _send(self, message: Publish) -> str:
        if message.qos:
            message = replace(message, packet_id=self._next_id())
        data = codec.write_publish(message, self._connection.version)
        if len(data) > self._largest:  # as the client asked: it is not sent
            return "dropped"
        if message.qos:
            self._unacknowledged.add(message.packet_id)
        if self._meter is not None:
            self._meter.charge_out(len(data))
        self._connection.write(data)
        return "sent"

    def _next_id(self) -> int:
        """There is a free one, because the window is smaller."""
        while True:
            self._last_id = self._last_id % _IDS + 1
            if self._last_id not in self._unacknowledged:
                return self._last_id
