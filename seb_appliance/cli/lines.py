"""Lines from a file or a pipe, in batches: what is there goes out, nobody waits for more.

A thread reads ahead while a batch is on its way, so that a slow bucket makes batches bigger.
"""

from __future__ import annotations

import os
import queue
import threading
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from seb_appliance import limits
from seb_appliance.cli.remote import CommandError
from seb_appliance.client.producing import BATCH, ZSTD_FROM_BYTES, ZSTD_LEVEL
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns

READ_BYTES: Final = 256 * limits.KIB
READS_AHEAD: Final = 16


class Lines:
    """`descriptor`: of an open file, which stays open. The end of the last line may be missing. A
    batch has at most `most` lines, and about `most_bytes`, but at least one line. `taken_bytes`: of
    the file, so far."""

    def __init__(self, descriptor: int, most: int, most_bytes: int) -> None:
        self._descriptor = descriptor
        self._most = most
        self._most_bytes = most_bytes
        self.taken_bytes = 0
        self._ahead: queue.Queue[bytes | OSError] = queue.Queue(READS_AHEAD)
        self._ended = False

    def batches(self) -> Iterator[list[bytes]]:
        """Lines without their ends. Raises CommandError for one that no record can hold."""
        threading.Thread(target=self._read, name="lines", daemon=True).start()
        rest = b""
        while not self._ended:
            lines = (rest + self._take()).split(b"\n")
            rest = lines.pop()
            if len(rest) > limits.RECORD_BYTES_MAX:
                raise CommandError("a line is longer than 16 MiB, which no record can be")
            yield from self._parts(lines)
        if rest:
            yield [rest]

    def _take(self) -> bytes:
        """What has been read ahead, at least something; b"" at the end."""
        pieces: list[bytes] = []
        taken = 0
        while not self._ended and taken < self._most_bytes:
            try:
                piece = self._ahead.get(block=not pieces)
            except queue.Empty:
                break
            if isinstance(piece, OSError):
                raise CommandError(f"cannot read the lines ({piece.strerror})") from piece
            self._ended = not piece
            pieces.append(piece)
            taken += len(piece)
        self.taken_bytes += taken
        return b"".join(pieces)

    def _read(self) -> None:
        piece = b" "
        while piece:
            try:
                piece = os.read(self._descriptor, READ_BYTES)
            except OSError as error:
                self._ahead.put(error)
                return
            self._ahead.put(piece)

    def _parts(self, lines: list[bytes]) -> Iterator[list[bytes]]:
        """Pieces of a list that fit into a request each."""
        part: list[bytes] = []
        size = 0
        for line in lines:
            if part and (len(part) == self._most or size + len(line) > self._most_bytes):
                yield part
                part, size = [], 0
            part.append(line)
            size += len(line)
        if part:
            yield part


# Lines as the body of a request.


NDJSON: Final = "application/x-ndjson"


class Body(NamedTuple):
    """`records`: how many are in it."""

    content: bytes
    content_type: str
    records: int


def of_lines(lines: list[bytes], record_key: bytes | None, now_us: int) -> Body:
    """Each line is a value, byte for byte; the time of all is `now_us`."""
    count = len(lines)
    columns = Columns(
        array("q", [now_us]) * count,
        BinaryColumn.of(lines),
        None if record_key is None else BinaryColumn.of([record_key] * count),
    )
    level = ZSTD_LEVEL if sum(map(len, lines)) >= ZSTD_FROM_BYTES else None
    content = batch.encode(columns, base_offset=0, created_us=now_us, zstd_level=level)
    return Body(content, BATCH, count)


def of_objects(lines: list[bytes]) -> Body | None:
    """Each line is a record object, that only the appliance looks into; empty lines are left out.
    None: there is no other."""
    objects = [line for line in lines if line.strip()]
    return Body(b"\n".join(objects), NDJSON, len(objects)) if objects else None
