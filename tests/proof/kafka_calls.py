"""One worker's connection by the Kafka protocol: what is lost is told as by HTTP."""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any, Final

from seb_appliance.protocols.kafka.wire.codec import Message
from tests.proof.calling import CALL_S, Crowd
from tests.support.kafka_client import NAMED, Client, newest, read_answer, request
from tests.support.load import LostError

_FETCH: Final = 12  # the last version that names topics


class KafkaCaller:
    """It knocks at the next door when `fail` is told that a call was not answered well."""

    def __init__(self, crowd: Crowd, name: str, door: int = 0) -> None:
        self.crowd, self.name = crowd, name
        self.port = 0  # by HTTP, of who is asked: the name of an appliance in a history
        self._door = door
        self._client: Client | None = None

    def begin(self) -> tuple[str, int, float]:
        """The first fields of a call that is made now."""
        return self.name, self.port, time.monotonic()

    async def connect(self) -> None:
        """To the door, with the API key, if there is no connection. Raises LostError."""
        if self._client is not None:
            return
        ports = self.crowd.doors.ports
        self.port = ports[self._door % len(ports)]
        try:
            async with asyncio.timeout(CALL_S):
                port = self.crowd.kafka_ports.get(self.port, 1)
                self._client = Client(*await asyncio.open_connection("127.0.0.1", port))
                await self.call("SaslHandshake", 1, mechanism="PLAIN")
                token = b"\0proof\0" + self.crowd.doors.key.encode()
                told = await self.call("SaslAuthenticate", auth_bytes=token)
        except (OSError, TimeoutError) as error:
            self.close()
            raise LostError(repr(error)) from error
        if told["error_code"]:
            self.close()
            raise LostError("the API key was refused")

    def send(self, name: str, version: int | None = None, /, **body: Any) -> None:
        assert self._client is not None
        self._client.writer.write(request(name, version, **body))

    async def answer(self, name: str, version: int | None = None) -> Message:
        """To the oldest request that has none yet. Raises LostError, also when it takes long."""
        assert self._client is not None
        reader = self._client.reader
        try:
            async with asyncio.timeout(CALL_S):
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(length)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.close()
            raise LostError(repr(error)) from error
        return read_answer(NAMED[name], newest(name) if version is None else version, frame)

    async def call(self, name: str, version: int | None = None, /, **body: Any) -> Message:
        self.send(name, version, **body)
        return await self.answer(name, version)

    async def fetch(self, topic: str, offset: int, most_bytes: int, wait_ms: int) -> Message:
        """The part of the answer for partition 0. Raises LostError."""
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": most_bytes}
        asked = {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": most_bytes}
        topics = [{"topic": topic, "partitions": [part]}]
        told = await self.call("Fetch", _FETCH, topics=topics, **asked)
        found: Message = told["responses"][0]["partitions"][0]
        return found

    async def fail(self) -> None:
        """Leave, rest, and knock at the next door."""
        self.close()
        self._door += 1
        await asyncio.sleep(self.crowd.refused_s)

    def close(self) -> None:
        if self._client is not None:
            self._client.writer.close()
        self._client = None
