"""A raw Kafka client: it sends any bytes, and reads answers one by one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections import deque
from typing import Any

from seb_appliance.protocols.kafka.listening import Kafka
from seb_appliance.protocols.kafka.records.layout import HEAD, LENGTH_FROM
from seb_appliance.protocols.kafka.records.reading import read_batches
from seb_appliance.protocols.kafka.wire.codec import APIS, Api, Message, codec
from seb_appliance.protocols.kafka.wire.types import Frame
from seb_appliance.protocols.sockets.connected import connections_of
from tests.support.appliance import running_appliance

NAMED = {api.name: api for api in APIS.values()}
BYTES_MAX = 1 << 26


class _Answer(Frame):
    """An answer may have any number of elements."""

    def count(self, number: int, at: int) -> int:  # type: ignore[override]
        del at
        return number


def newest(name: str) -> int:
    return NAMED[name].versions.stop - 1


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def head(api: Api, version: int, correlation_id: int = 1, client_id: str = "test") -> bytes:
    name = client_id.encode()
    found = struct.pack(">hhih", api.key, version, correlation_id, len(name)) + name
    return found + b"\0" if api.is_flexible(version) else found


def request(name: str, version: int | None = None, client: str = "test", /, **body: Any) -> bytes:
    """A whole request, in the newest version if none is given."""
    api, version = NAMED[name], newest(name) if version is None else version
    out = bytearray(head(api, version, client_id=client))
    codec(api.key, version, "request")[1](out, body)
    return framed(bytes(out))


def read_answer(api: Api, version: int, frame: bytes) -> Message:
    flexible = api.is_flexible(version) and api.name != "ApiVersions"
    found, end = codec(api.key, version, "response")[0](_Answer(frame), 4 + flexible)
    assert end == len(frame), (api.name, version, end, len(frame))
    return found


class Client:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str = "test"
    ) -> None:
        self.reader, self.writer, self._client_id = reader, writer, client_id
        self._asked: deque[tuple[Api, int]] = deque()

    def send(self, name: str, version: int | None = None, /, **body: Any) -> None:
        self._asked.append((NAMED[name], newest(name) if version is None else version))
        self.writer.write(request(name, version, self._client_id, **body))

    async def answer(self) -> Message:
        """To the oldest request that is not answered."""
        return read_answer(*self._asked.popleft(), await self.frame())

    async def call(self, name: str, version: int | None = None, /, **body: Any) -> Message:
        self.send(name, version, **body)
        return await self.answer()

    async def frame(self) -> bytes:
        """The next answer without its length; b"" at the end of the connection."""
        async with asyncio.timeout(20):
            try:
                (length,) = struct.unpack(">i", await self.reader.readexactly(4))
                return await self.reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return b""

    async def is_closed(self) -> bool:
        """Whether the connection ends without a further answer."""
        return await self.frame() == b""

    async def authenticate(self, secret: str, version: int | None = None) -> Message:
        await self.call("SaslHandshake", 1, mechanism="PLAIN")
        token = b"\0anybody\0" + secret.encode()
        return await self.call("SaslAuthenticate", version, auth_bytes=token)

    # --- what tests ask most ---

    async def produce(self, topic: str, records: bytes | None, index: int = 0, **given: Any):
        """The part of the answer for the one partition."""
        version = given.pop("version", None)
        answer = await self.call("Produce", version, **to(topic, records, index, **given))
        return answer["responses"][0]["partition_responses"][0]

    async def fetch(self, topic: str, offset: int = 0, index: int = 0, **given: Any) -> Message:
        """The part of the answer for the one partition."""
        answer = await self.call("Fetch", 12, **of((topic, index, offset), **given))
        return answer["responses"][0]["partitions"][0]


def to(topic: str, records: bytes | None, index: int = 0, **given: Any) -> Message:
    """The body of a Produce."""
    part = {"index": index, "records": records}
    body = {"acks": -1, "timeout_ms": 10_000, "transactional_id": None, **given}
    return {**body, "topic_data": [{"name": topic, "partition_data": [part]}]}


def of(*parts: tuple[str, int, int], **given: Any) -> Message:
    """The body of a Fetch: topics, partitions and offsets."""
    most = given.pop("partition_max_bytes", BYTES_MAX)
    asked = [
        {
            "topic": topic,
            "partitions": [
                {"partition": index, "fetch_offset": offset, "partition_max_bytes": most}
            ],
        }
        for topic, index, offset in parts
    ]
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": BYTES_MAX, "topics": asked, **given}


def values(part: Message) -> list[bytes | None]:
    """Of the records in a part of a Fetch."""
    return (
        []
        if not part["records"]
        else read_batches(bytes(part["records"]), BYTES_MAX).records.values
    )


def offsets(part: Message) -> list[int]:
    """The first one of each record batch in a part of a Fetch."""
    data, at, found = bytes(part["records"]), 0, []
    while at < len(data):
        first, length, *_ = HEAD.unpack_from(data, at)
        found.append(first)
        at += LENGTH_FROM + length
    return found


class _Faults(logging.Handler):
    """What the appliance or the event loop logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


@contextlib.contextmanager
def without_faults():
    """Whatever clients send, no handler and no callback fails."""
    faults = _Faults()
    loggers = [logging.getLogger(name) for name in ("asyncio", "seb_appliance.protocols.kafka")]
    for logger in loggers:
        logger.addHandler(faults)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(faults)
    assert not faults.found, faults.found


@contextlib.asynccontextmanager
async def serving(data, partitions=1, **given):
    """A running appliance and its Kafka port."""
    with without_faults():
        async with _serving(data, partitions, given) as running:
            yield running


@contextlib.asynccontextmanager
async def _serving(data, partitions, given):
    async with running_appliance(data, **given) as seb:
        kafka = Kafka(seb.appliance.broker, (["127.0.0.1"], 0), partitions=partitions)
        await kafka.start()
        connections_of(seb.appliance.beside).add(kafka)
        try:
            yield seb, kafka
        finally:
            await kafka.stop()


@contextlib.asynccontextmanager
async def raw(running):
    """Without an API key."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running[1].port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def connected(running, secret=None):
    async with raw(running) as client:
        answer = await client.authenticate(secret or running[0].admin_key)
        assert answer["error_code"] == 0, answer
        yield client


async def api_key(running, *grants, **members):
    """A new one; a grant is an operation, a pattern of topics, and perhaps one of groups."""
    listed = [
        {"operation": operation, "topics": topics, **({"groups": groups[0]} if groups else {})}
        for operation, topics, *groups in grants
    ]
    body = {"name": "test", "grants": listed, **members}
    answer = await running[0].client.post("/v1/api-keys", json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()
