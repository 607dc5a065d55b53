"""An MQTT 3.1.1 client that does as little as possible for each message.

A message begins with its publisher's number and its own, both from 0 on.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Final

from seb_appliance.bench.connecting import BenchError

HEAD: Final = struct.Struct(">IQ")
ANSWER_S: Final = 10.0
_CONNACK, _PUBLISH, _PUBACK, _SUBACK, _PINGRESP = 0x20, 0x30, 0x40, 0x90, 0xD0
_PING: Final = b"\xc0\0"
_IDS: Final = 65_535


class Client(asyncio.Protocol):
    """`broker`: its name. `on_message` gets payloads; `on_ack` is called for each PUBACK,
    in their order."""

    def __init__(
        self,
        broker: str,
        on_message: Callable[[bytes], None],
        on_ack: Callable[[], None] = lambda: None,
    ) -> None:
        self._broker = broker
        self._on_message = on_message
        self._on_ack = on_ack
        self._rest = b""
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()  # to CONNECT, SUBSCRIBE, PINGREQ
        self._transport: Any = None
        self._number = 0
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True
        self._answers.put_nowait(b"")

    async def enter(self, name: str, password: str | None) -> None:
        """CONNECT. Raises BenchError."""
        flags, rest = 0x02, _text(name)
        if password is not None:
            flags, rest = 0xC2, rest + _text("bench") + _text(password)
        head = _text("MQTT") + bytes((4, flags)) + struct.pack(">H", 300)
        self._transport.write(_packet(0x10, head + rest))
        if await self._answer() != b"\0\0":
            raise BenchError(f"{self._broker} has refused an MQTT connection")

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        """Raises BenchError."""
        body = struct.pack(">H", 1) + _text(topic_filter) + bytes((qos,))
        self._transport.write(_packet(0x82, body))
        if (await self._answer())[2:] != bytes((qos,)):
            raise BenchError(f"{self._broker} has refused a subscription")

    async def ping(self) -> None:
        """Until all that was sent before is read. Raises BenchError."""
        self._transport.write(_PING)
        await self._answer()

    def publisher(self, topic: str, qos: int) -> Callable[[bytes], None]:
        """A function that sends a payload."""
        begin, write = _text(topic), self._transport.write

        def publish(payload: bytes) -> None:
            if not qos:
                write(_packet(_PUBLISH, begin + payload))
                return
            self._number = self._number % _IDS + 1
            write(_packet(_PUBLISH | 2, begin + self._number.to_bytes(2, "big") + payload))

        return publish

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        data, at, acks = self._rest + data, 0, b""
        while True:
            found = _length(data, at)
            if found is None:
                break
            begin, end = found
            if end > len(data):
                break
            first = data[at]
            if first == _PUBACK:
                self._on_ack()
            elif first & 0xF0 == _PUBLISH:
                begin += 2 + int.from_bytes(data[begin : begin + 2], "big")
                if first & 6:
                    acks += b"\x40\x02" + data[begin : begin + 2]
                    begin += 2
                self._on_message(data[begin:end])
            else:
                self._answers.put_nowait(data[begin:end])
            at = end
        self._rest = data[at:]
        if acks:
            self._transport.write(acks)

    async def _answer(self) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await self._answers.get()
        except TimeoutError as error:
            raise BenchError(f"{self._broker} does not answer") from error
        self.check()
        return found

    def check(self) -> None:
        """Raises BenchError if the connection has ended."""
        if self.is_lost:
            raise BenchError(f"{self._broker} has ended an MQTT connection")


def _packet(first: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while size > 127:
        length += bytes((size & 127 | 128,))
        size >>= 7
    return bytes((first,)) + length + bytes((size,)) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _length(data: bytes, at: int) -> tuple[int, int] | None:
    """Where the body of a packet begins and ends; None if its head is not whole."""
    size, shift = 0, 0
    for i in range(at + 1, min(at + 5, len(data))):
        size |= (data[i] & 127) << shift
        if data[i] < 128:
            return i + 1, i + 1 + size
        shift += 7
    return None
