"""Writing: rows become record batches, appended as a numbered producer so that nothing is doubled.

A task that is tried again sends the same requests under the same numbers. In a stream the number
of the micro-batch is the producer's epoch: a batch that is replayed is known, and a task of an
older batch that comes late is refused.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_seb.arrow.rows import RowSchema, record_batches
from pyspark_seb.client import Answer, Appliance
from pyspark_seb.errors import (
    ApplianceError,
    BadOptionError,
    RowsChangedError,
    SebSparkError,
)
from pyspark_seb.options import WriteOptions, write_options
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
                stored, sent = error.number("expected"), self._seqs[topic]
                if stored != sent:
                    raise RowsChangedError(topic, f"{stored} requests, and {sent} now") from error

    def _request(self, topic: str, body: bytes, seq: int, checksum: int) -> Answer:
        numbers = {"Producer-Seq": str(seq), "Producer-Checksum": str(checksum)}
        headers = {"Content-Type": MEDIA_TYPE, **self._names, **numbers}
        return self._appliance.request("POST", f"/v1/topics/{topic}/records", body, headers)


class Gathered:
    """Gathers record batches into large requests, and makes the next one while one is under way.

    No request holds rows of two of Spark's batches: when something before the sink fails, Spark
    ends the rows between two batches without an error. A request over that end would hold fewer
    rows than the request of the same number in the next attempt, which would be taken for its
    repetition. Use it as a context, and call `whole` after each of Spark's batches."""

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


# Spark's local properties of a task, held by a test.
BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"


@dataclass
class Written(WriterCommitMessage):
    """What one task appended, by topic."""

    records: Mapping[str, int]


def write_rows(
    options: WriteOptions,
    rows: RowSchema,
    batches: Iterator[pa.RecordBatch],
    producer_id: str,
    epoch: int,
) -> Written:
    """Raises ApplianceError, SebSparkError."""
    with closing(Appliance(options.url, options.token_file)) as appliance:
        producer = Producer(appliance, producer_id, epoch)
        with Gathered(producer) as gathered:
            for batch in batches:
                now_us = time.time_ns() // 1000
                for topic, part in _by_topic(batch, options.topic):
                    for made, checksum in record_batches(rows, part, now_us):
                        gathered.add(topic, made, checksum)
                gathered.whole()
        return Written(producer.records)


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    if "topic" not in batch.schema.names:
        assert topic is not None
        yield topic, batch
        return
    column = batch.column("topic")
    for name in pc.unique(column).to_pylist():
        if name is None:
            raise SebSparkError("a row has no topic: null in the column topic")
        mask = pc.equal(column, name)
        yield name, batch if pc.all(mask).as_py() else batch.filter(mask)


class SebWriter(DataSourceArrowWriter):
    """A batch. Its id goes to every task and every retry; a given `producerId` makes it possible to
    run the same batch again."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise BadOptionError(
                'a log is only appended to: mode("append"). What was written stays.'
            )
        self._options, self._rows = checked(given, schema)
        self._id = self._options.producer_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = this_task()
        producer_id = f"spark-{self._id}-{context.partitionId()}"
        return write_rows(self._options, self._rows, iterator, producer_id, epoch=0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Appended records stay: consumers may have read them already."""


def checked(given: Mapping[str, str], schema: StructType) -> tuple[WriteOptions, RowSchema]:
    options = write_options(given)
    rows = RowSchema.of(schema)
    if options.topic is None and "topic" not in schema.names:
        raise BadOptionError("name the topic: an option topic, or a column topic")
    return options, rows


def this_task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context
