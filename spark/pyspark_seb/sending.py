"""Appends of a task: record batches gathered into requests, and sent as a numbered producer.

An acknowledgement takes as long as the appliance's window is open, so requests are large, and the
next one is made while one is on its way. But no request holds rows of two of Spark's batches: when
something before the sink dies, Spark ends the rows between two of them, and says nothing. What was
gathered over that end would have fewer rows than the request of the same number has when the task
is tried again, and that one would be taken for its repetition.
"""

from __future__ import annotations

import struct
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from crc32c import crc32c

from pyspark_seb.client import Answer, Appliance
from pyspark_seb.errors import ApplianceError, RowsChangedError
from seb_appliance import limits
from seb_appliance.formats import batch as formats

MEDIA_TYPE: Final = "application/vnd.seb.batch"
REPEATED: Final = 200  # what a number that was stored before is answered with, else 201
REQUEST_RECORDS: Final = limits.RECORDS_IN_BATCHES_MAX
REQUEST_BYTES: Final = 14 * 1024 * 1024  # inflated, unless a single batch has more


_CRC: Final = struct.Struct("<I")
_ANY_RECORD: Final = formats.encode_value(b"", 0, base_offset=0, created_us=0)


class Producer:
    """Appends to topics under one producer id and epoch; each topic has its own seqs.

    The checksum of a seq covers all that was sent to the topic before. The appliance compares only
    its newest seqs; so whoever repeats the newest one has repeated all before it, too."""

    def __init__(self, appliance: Appliance, producer_id: str, epoch: int) -> None:
        self._appliance = appliance
        self._names = {"Producer-Id": producer_id, "Producer-Epoch": str(epoch)}
        self._seqs: dict[str, int] = {}
        self._checksums: dict[str, int] = {}
        self._repeating: set[str] = set()  # topics whose last request was stored before
        self.records: dict[str, int] = {}

    def append(self, topic: str, body: bytes, count: int, checksum: int) -> None:
        """`checksum`: of the rows, the same for the same rows. Raises ApplianceError,
        RowsChangedError."""
        checksum = crc32c(_CRC.pack(checksum), self._checksums.get(topic, 0))
        seq = self._seqs.get(topic, 0)
        try:
            answer = self._request(topic, body, seq, checksum)
        except ApplianceError as error:
            if error.code != "idempotency_mismatch":
                raise
            raise RowsChangedError(topic, error.detail) from error
        (self._repeating.add if answer.status == REPEATED else self._repeating.discard)(topic)
        self._seqs[topic] = seq + 1
        self._checksums[topic] = checksum
        self.records[topic] = self.records.get(topic, 0) + count

    def finish(self) -> None:
        """All rows were sent. Raises RowsChangedError if there were more the time before."""
        for topic in self._repeating:
            try:
                # A seq so far on is never stored; its refusal tells the next one.
                self._request(topic, _ANY_RECORD, limits.OFFSET_MAX, 0)
            except ApplianceError as error:
                if error.code != "sequence_gap":
                    raise
                stored, sent = error.data["expected"], self._seqs[topic]
                if stored != sent:
                    raise RowsChangedError(topic, f"{stored} requests, and {sent} now") from error

    def _request(self, topic: str, body: bytes, seq: int, checksum: int) -> Answer:
        numbers = {"Producer-Seq": str(seq), "Producer-Checksum": str(checksum)}
        headers = {"Content-Type": MEDIA_TYPE, **self._names, **numbers}
        return self._appliance.request("POST", f"/v1/topics/{topic}/records", body, headers)


class Gathered:
    """Use it as a context, and say after each of Spark's batches that it is whole."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="append")
        self._under_way: Future[None] | None = None
        self._batches: dict[str, list[tuple[bytes, int]]] = {}  # with their checksums
        self._records = self._bytes = 0  # of all topics

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                assert not self._batches, "the last of Spark's batches is not whole"
                self._wait()
                self._producer.finish()
        finally:
            self._thread.shutdown()

    def add(self, topic: str, batch: bytes, checksum: int) -> None:
        """`checksum`: of the batch's rows. Raises ApplianceError, also of what was added before."""
        header = formats.read_header(batch)
        inflated_bytes = header.inflated_bytes + formats.HEADER_BYTES
        too_many = self._records + header.count > REQUEST_RECORDS
        if self._records and (too_many or self._bytes + inflated_bytes > REQUEST_BYTES):
            self._send()
        self._batches.setdefault(topic, []).append((batch, checksum))
        self._records += header.count
        self._bytes += inflated_bytes

    def whole(self) -> None:
        """Spark's batch is: send what is left of it. Raises ApplianceError."""
        if self._records:
            self._send()

    def _send(self) -> None:
        """A request for each topic, once those before are acknowledged."""
        self._wait()
        batches, self._batches = self._batches, {}
        self._records = self._bytes = 0
        self._under_way = self._thread.submit(self._append, batches)

    def _append(self, batches: dict[str, list[tuple[bytes, int]]]) -> None:
        for topic, parts in batches.items():
            count = sum(formats.read_header(part).count for part, _ in parts)
            checksum = crc32c(b"".join(_CRC.pack(checksum) for _, checksum in parts))
            self._producer.append(topic, b"".join(part for part, _ in parts), count, checksum)

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None
