"""A Kafka client that is a member of groups, also of an appliance in another process."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Mapping, Sequence

from tests.support import kafka_client

FOR_HALF_AN_HOUR_MS = 1_800_000


class Client(kafka_client.Client):
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
        joined = await self.call("JoinGroup", 5, member_id="", **asked)
        if joined["member_id"] and joined["error_code"]:
            joined = await self.call("JoinGroup", 5, member_id=joined["member_id"], **asked)
        assert joined["error_code"] == 0
        own = {"group_id": group, "generation_id": joined["generation_id"]}
        own |= {"member_id": joined["member_id"], "group_instance_id": instance_id}
        given = assignment_of(assigned) if assignment is None else assignment
        plan = [{"member_id": joined["member_id"], "assignment": given}]
        synced = await self.call("SyncGroup", 3, assignments=plan, **own)
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
        assert not (await client.authenticate(password))["error_code"]
        yield client
    finally:
        writer.close()
