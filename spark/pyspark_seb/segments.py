"""Segments read straight from the bucket, by signed URLs that the appliance's manifest gives.

What lies in no segment yet comes by the API: journal entries hold other topics' records, too, and
are never handed out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from crc32c import crc32c

from pyspark_seb.client import Appliance, Connection
from pyspark_seb.errors import ApplianceError, TopicChangedError
from pyspark_seb.offsets import TopicRange
from seb_appliance.errors import BadBatchError
from seb_appliance.formats.columns import Bytes

PRESIGN: Final = "15m"
# One GET takes neighbouring sections of about so much.
GET_BYTES: Final = 8 * 1024 * 1024
PAUSE_S: Final = 0.2
_RENEWALS_WITHOUT_PROGRESS: Final = 5

Stored = tuple[Bytes, int]
ByApi = Callable[[int, int], Iterator[Stored]]


class _UrlRefusedError(Exception):
    """The bucket does not give the object by this URL: it expired, or the object is gone."""


class SegmentReader:
    """Reads one range; keeps a connection to the bucket."""

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
        manifest = self._appliance.get(
            path, offset=at, until=self._wanted.end, presign=PRESIGN
        ).json()
        if manifest["topic_id"] != self._wanted.topic_id:
            raise TopicChangedError(f"topic {self._wanted.topic!r} was made anew meanwhile")
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

    def _get(self, url: str, run: list[dict[str, Any]]) -> bytes:
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
            self._bucket, self._bucket_at = Connection(host), host
        asked = {"Range": f"bytes={begin}-{begin + length - 1}"}
        try:
            answer = self._bucket.exchange("GET", f"{parts.path}?{parts.query}", None, asked)
        except (OSError, HTTPException) as error:
            raise _UrlRefusedError(f"no answer from {host} ({error!r})") from error
        body = answer.body if answer.status == 206 else answer.body[begin : begin + length]
        if answer.status not in {200, 206} or len(body) != length:
            raise _UrlRefusedError(f"{host} answers {answer.status}")
        return body


def _runs(sections: list[dict[str, Any]], at: int) -> Iterator[list[dict[str, Any]]]:
    """Sections from offset `at` on, in runs that lie back to back and have about GET_BYTES."""
    run: list[dict[str, Any]] = []
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
