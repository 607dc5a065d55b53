"""What a task does: the records of one range, as Arrow, by the API or straight from the bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from crc32c import crc32c
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_seb.answers import Manifest, Section, Topic
from pyspark_seb.arrow.columns import ArrowBatches, arrow_schema
from pyspark_seb.client import Answer, Appliance, Connection
from pyspark_seb.errors import (
    ApplianceError,
    CompactedError,
    RecordsGoneError,
    TopicChangedError,
)
from pyspark_seb.options import ReadOptions, TopicRange, compacted_seq
from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats.columns import Bytes

PRESIGN: Final = "15m"
# One GET takes neighbouring sections of about so much.
GET_BYTES: Final = 8 * 1024 * 1024
PAUSE_S: Final = 0.2
_RENEWALS_WITHOUT_PROGRESS: Final = 5

Stored = tuple[Bytes, int]  # record batches back to back, and the next offset after them
ByApi = Callable[[int, int], Iterator[Stored]]


class _UrlRefusedError(Exception):
    """The bucket does not give the object by this URL: it expired, or the object is gone."""


class SegmentReader:
    """Reads segments of one range from the bucket, by the signed URLs of the manifest.

    Records that are in no segment yet come by the API: journal entries hold records of other topics
    too, and are never handed out."""

    def __init__(self, appliance: Appliance, wanted: TopicRange) -> None:
        self._appliance = appliance
        self._wanted = wanted
        self._bucket: Connection | None = None
        self._bucket_at = ""

    def read(self, at: int, by_api: ByApi) -> Iterator[Stored]:
        """Parts of the range from `at` on. Raises ApplianceError, TopicChangedError,
        BadBatchError."""
        refused = 0
        try:
            while at < self._wanted.end:
                before = at
                try:
                    for stored, following in self._by_manifest(at, by_api):
                        yield stored, following
                        at = following
                except _UrlRefusedError as error:
                    refused = refused + 1 if at == before else 1
                    if refused > _RENEWALS_WITHOUT_PROGRESS:
                        raise ApplianceError(
                            "GET of a segment", 0, "unreachable", str(error), {}
                        ) from error
                    time.sleep(PAUSE_S * refused)
        finally:
            if self._bucket is not None:
                self._bucket.close()

    def _by_manifest(self, at: int, by_api: ByApi) -> Iterator[Stored]:
        """One manifest's worth. What no segment of it covers goes by the API."""
        path = f"/v1/topics/{self._wanted.topic}/manifest"
        manifest: Manifest = self._appliance.get(
            path, offset=at, until=self._wanted.end, presign=PRESIGN
        ).json(Manifest)
        if manifest["topic_id"] != self._wanted.topic_id:
            raise TopicChangedError(f"topic {self._wanted.topic!r} was deleted and created again")
        if manifest["next_offset"] <= at:
            raise _shorter(self._wanted, manifest["next_offset"])
        for segment in manifest["segments"]:
            if segment["url"] is None:
                continue
            for run in _runs(segment["sections"], at):
                if at < run[0]["base_offset"]:
                    yield from by_api(at, run[0]["base_offset"])
                at = min(run[-1]["last_offset"] + 1, self._wanted.end)
                yield self._get(segment["url"], run), at
        end = min(manifest["next_offset"], self._wanted.end)
        if at < end:
            yield from by_api(at, end)

    def _get(self, url: str, run: list[Section]) -> bytes:
        """The bytes of neighbouring sections, checked."""
        begin = run[0]["at"]
        length = run[-1]["at"] + run[-1]["length"] - begin
        read = self._request(url, begin, length)
        for section in run:
            at = section["at"] - begin
            if crc32c(memoryview(read)[at : at + section["length"]]) != section["crc32c"]:
                raise BadBatchError(
                    f"the bucket gave other bytes of topic {self._wanted.topic!r}, offsets "
                    f"{section['base_offset']} to {section['last_offset']}, than were stored"
                )
        return read

    def _request(self, url: str, begin: int, length: int) -> bytes:
        """Raises _UrlRefusedError, whose text has nothing of the URL but the host."""
        parts = urlsplit(url)
        host = f"{parts.scheme}://{parts.netloc}"
        if self._bucket is None or self._bucket_at != host:
            self._bucket = Connection(host, limits.OBJECT_BYTES_MAX)
            self._bucket_at = host
        asked = {"Range": f"bytes={begin}-{begin + length - 1}"}
        try:
            answer = self._bucket.exchange("GET", f"{parts.path}?{parts.query}", None, asked)
        except (OSError, HTTPException) as error:
            raise _UrlRefusedError(f"no answer from {host} ({error!r})") from error
        body = answer.body if answer.status == 206 else answer.body[begin : begin + length]
        if answer.status not in {200, 206} or len(body) != length:
            raise _UrlRefusedError(f"{host} answers {answer.status}")
        return body


def _runs(sections: list[Section], at: int) -> Iterator[list[Section]]:
    """Sections from offset `at` on, in runs that lie back to back and have about GET_BYTES."""
    run: list[Section] = []
    for section in sections:
        if section["last_offset"] < at:
            continue
        if run:
            last = run[-1]
            touches = section["at"] == last["at"] + last["length"]
            follows = section["base_offset"] == last["last_offset"] + 1
            if not touches or not follows or last["at"] - run[0]["at"] >= GET_BYTES:
                yield run
                run = []
        run.append(section)
    if run:
        yield run


_ASKED: Final[dict[str, Any]] = {
    "format": "batch",
    "max_records": limits.FETCH_RECORDS_MAX,
    "max_bytes": limits.FETCH_BYTES_MAX // 2,
}


@dataclass
class RangePartition(InputPartition):
    """What one task reads; None: nothing. It is all that a task is told, and holds no secret."""

    wanted: TopicRange | None


def partitions_of(parts: list[TopicRange]) -> list[RangePartition]:
    """One for each part. Of an empty list Spark would make one that it cannot read."""
    return [RangePartition(part) for part in parts] or [RangePartition(None)]


def read_partition(
    options: ReadOptions, partition: InputPartition, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """As `read_range`, of what a task was sent."""
    assert isinstance(partition, RangePartition), partition
    if partition.wanted is not None:
        yield from read_range(options, partition.wanted, arrow_schema(schema))


def read_range(
    options: ReadOptions, wanted: TopicRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Raises ApplianceError, RecordsGoneError, TopicChangedError, BadBatchError."""
    made = ArrowBatches(wanted.topic, schema, options.record_keys)
    at = wanted.start
    log_start_offset = 0
    with closing(Appliance(options.url, options.token_file)) as appliance:
        _check_topic(appliance, wanted)
        while at < wanted.end:
            try:
                with closing(ahead(_parts(appliance, options, wanted, at))) as parts:
                    for stored, following in parts:
                        yield from made.take(stored, at, min(following, wanted.end))
                        at = following
            except ApplianceError as error:
                if error.code != "offset_expired":
                    raise
                log_start_offset = error.number("log_start_offset")
                if options.fail_on_data_loss:
                    raise RecordsGoneError(wanted.topic, at, log_start_offset) from error
                at = max(at, log_start_offset)
        yield from made.rest()
        _check_compaction(appliance, wanted, log_start_offset)


def ahead(parts: Iterator[Stored]) -> Generator[Stored, None, None]:
    """The same, of which the next one is already received while one is in use: 8 MiB more."""
    with ThreadPoolExecutor(1, "seb-read-ahead") as pool:
        coming = pool.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = pool.submit(next, parts, None)
            yield part


def _check_compaction(appliance: Appliance, wanted: TopicRange, log_start_offset: int) -> None:
    """Raises CompactedError if it was compacted since the plan: after the read, which may be what
    it overtook."""
    if wanted.compacted_seq is None:
        return
    start = max(wanted.start, log_start_offset)
    if compacted_seq(appliance, wanted.topic, start, wanted.end) > wanted.compacted_seq:
        raise CompactedError(wanted.topic)


def _parts(
    appliance: Appliance, options: ReadOptions, wanted: TopicRange, at: int
) -> Iterator[Stored]:
    if options.is_direct:
        by_segments = SegmentReader(appliance, wanted)
        return by_segments.read(at, lambda begin, end: by_api(appliance, wanted, begin, end))
    return by_api(appliance, wanted, at, wanted.end)


def by_api(appliance: Appliance, wanted: TopicRange, at: int, end: int) -> Iterator[Stored]:
    """Parts of the range through the appliance."""
    path = f"/v1/topics/{wanted.topic}/records"
    while at < end:
        answer = _records(appliance, wanted, path, offset=at, until=end)
        following = answer.number("seb-next-offset")
        if following <= at:
            raise _shorter(wanted, following)
        yield answer.body, following
        at = following


def _shorter(wanted: TopicRange, log_end_offset: int) -> TopicChangedError:
    return TopicChangedError(
        f"the log of topic {wanted.topic!r} ends at {log_end_offset}, and was planned to be read "
        f"up to {wanted.end}"
    )


def _records(appliance: Appliance, wanted: TopicRange, path: str, **query: int) -> Answer:
    """Of this very topic: it may be deleted, and created again, between two requests."""
    try:
        return appliance.get(path, topic_id=wanted.topic_id, **query, **_ASKED)
    except ApplianceError as error:
        if error.code != "topic_replaced":
            raise
        raise TopicChangedError(
            f"topic {wanted.topic!r} was deleted and created again while it was read"
        ) from error


def _check_topic(appliance: Appliance, wanted: TopicRange) -> None:
    topic_id = appliance.get(f"/v1/topics/{wanted.topic}").json(Topic)["topic_id"]
    if topic_id != wanted.topic_id:
        raise TopicChangedError(
            f"topic {wanted.topic!r} was deleted and created again since the read was planned"
        )
