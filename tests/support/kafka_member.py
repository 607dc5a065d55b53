"""A Kafka client that sends what a test says, and a running appliance with a Kafka port."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seb_appliance.protocols.kafka.listening import Kafka
from seb_appliance.protocols.kafka.wire.codec import APIS, Message, codec
from seb_appliance.protocols.kafka.wire.types import Frame
from seb_appliance.protocols.sockets.connected import connections_of
from tests.support.appliance import RunningAppliance, running_appliance

KEYS = {api.name: api.key for api in APIS.values()}
FOR_HALF_AN_HOUR_MS = 1_800_000


class Client:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id.encode()

    def send(self, name: str, version: int, body: Message) -> None:
        api = APIS[KEYS[name]]
        out = bytearray(struct.pack(">hhih", api.key, version, 0, len(self._client_id)))
        out += self._client_id
        if api.is_flexible(version):
            out.append(0)
        codec(api.key, version, "request")[1](out, body)
        self._writer.write(struct.pack(">i", len(out)) + out)

    async def answer(self, name: str, version: int) -> Message:
        """To the request that was sent first."""
        async with asyncio.timeout(10):
            (length,) = struct.unpack(">i", await self._reader.readexactly(4))
            frame = Frame(await self._reader.readexactly(length))
        api = APIS[KEYS[name]]
        at = 5 if api.is_flexible(version) and name != "ApiVersions" else 4
        return codec(api.key, version, "response")[0](frame, at)[0]  # type: ignore[no-any-return]

    async def ask(self, name: str, version: int, **body: Any) -> Message:
        self.send(name, version, body)
        return await self.answer(name, version)

    async def log_in(self, password: str) -> None:
        assert not (await self.ask("SaslHandshake", 1, mechanism="PLAIN"))["error_code"]
        token = f"\0user\0{password}".encode()
        assert not (await self.ask("SaslAuthenticate", 1, auth_bytes=token))["error_code"]

    def produce(self, topic: str, batch: bytes) -> None:
        data = [{"index": 0, "records": batch}]
        topics = [{"name": topic, "partition_data": data}]
        self.send("Produce", 8, {"acks": -1, "timeout_ms": 30_000, "topic_data": topics})

    async def join(
        self,
        group: str,
        subscribed: Sequence[str],
        assigned: Mapping[str, Sequence[int]],
        *,
        instance_id: str | None = None,
        assignment: bytes | None = None,
    ) -> str:
        """As the only member, which stays for half an hour. Returns its id."""
        metadata = struct.pack(">hi", 0, len(subscribed)) + b"".join(map(_text, subscribed))
        asked = {
            "group_id": group,
            "session_timeout_ms": FOR_HALF_AN_HOUR_MS,
            "rebalance_timeout_ms": FOR_HALF_AN_HOUR_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata + bytes(4)}],
            "group_instance_id": instance_id,
        }
        joined = await self.ask("JoinGroup", 5, member_id="", **asked)
        if joined["member_id"] and joined["error_code"]:
            joined = await self.ask("JoinGroup", 5, member_id=joined["member_id"], **asked)
        assert joined["error_code"] == 0
        own = {"group_id": group, "generation_id": joined["generation_id"]}
        own |= {"member_id": joined["member_id"], "group_instance_id": instance_id}
        given = assignment_of(assigned) if assignment is None else assignment
        plan = [{"member_id": joined["member_id"], "assignment": given}]
        synced = await self.ask("SyncGroup", 3, assignments=plan, **own)
        assert synced["error_code"] == 0
        return str(joined["member_id"])


def assignment_of(assigned: Mapping[str, Sequence[int]]) -> bytes:
    """As consumers write it."""
    parts = (
        _text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in assigned.items()
    )
    return struct.pack(">hi", 0, len(assigned)) + b"".join(parts) + bytes(4)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@contextlib.asynccontextmanager
async def connected(
    port: int,
    password: str,
    client_id: str = "c",
    *,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    client = Client(reader, writer, client_id)
    try:
        await client.log_in(password)
        yield client
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def serving(data: Path, **given: Any) -> AsyncIterator[tuple[RunningAppliance, Kafka]]:
    async with running_appliance(data, **given) as seb:
        kafka = Kafka(seb.appliance.broker, (["127.0.0.1"], 0))
        await kafka.start()
        connections_of(seb.appliance.beside).add(kafka)
        try:
            yield seb, kafka
        finally:
            await kafka.stop()
