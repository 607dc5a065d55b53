"""Lines to records and records to lines: the work of `seb produce`, `consume`, `import`, `export`.

What can be read goes out at once; a thread reads ahead while a batch is on its way, so that a slow
bucket makes batches bigger. The other way, a page is read while one is written.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import click
import msgspec

from seb_appliance import limits
from seb_appliance.cli.errors import CommandError, OutputError
from seb_appliance.cli.output import Progress, goes_to_a_file, printable, write
from seb_appliance.client.leasing import Commits
from seb_appliance.client.producing import BATCH, ZSTD_FROM_BYTES, ZSTD_LEVEL
from seb_appliance.client.reading import BATCHES, Form, Page, Reading, Source, begin, pages
from seb_appliance.client.records import Record
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns

if TYPE_CHECKING:
    from seb_appliance.cli.connection import HttpClient

T = TypeVar("T")

PAGE_BYTES: Final = 1 * limits.MIB
READ_BYTES: Final = 256 * limits.KIB
READS_AHEAD: Final = 16


class Lines:
    """Lines of an open file, which stays open; the last one may have no end. A batch has at most
    `most` lines and about `most_bytes`, but at least one line. `taken_bytes`: read so far."""

    def __init__(self, descriptor: int, most: int, most_bytes: int) -> None:
        self._descriptor = descriptor
        self._most = most
        self._most_bytes = most_bytes
        self.taken_bytes = 0
        self._ahead: queue.Queue[bytes | OSError] = queue.Queue(READS_AHEAD)
        self._ended = False

    def batches(self) -> Iterator[list[bytes]]:
        """Lines without their ends. Raises CommandError for a line that no record can hold."""
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
    """Each line is a record object, which the appliance parses. None if all lines are empty."""
    objects = [line for line in lines if line.strip()]
    return Body(b"\n".join(objects), NDJSON, len(objects)) if objects else None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records of a topic. `offset` None: `earliest`; `most` None: all."""

    topic: str
    offset: str | None
    until: str | None = None
    most: int | None = None
    follow: bool = False
    group: str | None = None
    commit: bool = False

    def check(self) -> None:
        """Raises UsageError."""
        if self.follow and self.until is not None:
            raise click.UsageError("say either --follow or --until")
        if self.commit and self.group is None:
            raise click.UsageError("--commit needs a --group")
        if self.group is not None and self.offset not in (None, "earliest", "latest"):
            raise click.UsageError(
                "with --group, reading begins at the committed offset; --offset is earliest or "
                "latest, for a group that has none"
            )


class RecordLines(NamedTuple, Generic[T]):
    """`of`: a page's records as lines without their ends; the flag: for a terminal."""

    form: Form[T]
    of: Callable[[Sequence[T], bool], Sequence[bytes]]
    offset: Callable[[T], int]


def _values(records: Sequence[Record], is_terminal: bool) -> Sequence[bytes]:
    """A tombstone is an empty line. On a terminal, control characters are escaped."""
    values = [record.value or b"" for record in records]
    if is_terminal:
        return [printable(value.decode(errors="backslashreplace")).encode() for value in values]
    return values


class _Placed(msgspec.Struct):
    offset: int


def _split(_: str, body: bytes, __: int, ___: int) -> Sequence[bytes]:
    return body.split(b"\n")[:-1]


VALUE_LINES: Final[RecordLines[Record]] = RecordLines(
    BATCHES, _values, lambda record: record.offset
)
JSON_LINES: Final[RecordLines[bytes]] = RecordLines(
    Form("ndjson", _split),
    lambda records, _: records,
    lambda line: msgspec.json.decode(line, type=_Placed).offset,
)


def copy(client: HttpClient, wanted: Wanted, lines: RecordLines[T], *, is_terminal: bool) -> None:
    """Writes the records, and commits them if that is wanted. Raises CommandError."""
    offset: int | str = wanted.offset or "earliest"
    reading = Reading(offset, None, wanted.follow, PAGE_BYTES, wanted.until, wanted.most)
    commits = None if wanted.group is None else Commits(client.caller, wanted.group, None)
    source = Source(client.caller, wanted.topic)
    began, end = client.wait_for(begin(source, reading, commits), is_read=True)
    commit = functools.partial(_commit, client, commits if wanted.commit else None, wanted.topic)
    reached = began
    with Progress(wanted=goes_to_a_file() and not wanted.follow) as progress:
        for page in client.ahead(pages(source, reading, lines.form, began, end)):
            try:
                _write(page, lines, is_terminal=is_terminal)
            except OutputError as error:
                below = _below(error.written, page, lines, is_terminal=is_terminal)
                sentence = f"{error.sentence}; what comes before offset {below:,} is written"
                if wanted.commit:
                    stands = f"offset {reached:,}" if reached != began else "nothing new"
                    sentence += f", {stands} is committed"
                raise CommandError(f"{sentence}.", error.exit_code) from error
            reached = page.next_offset
            commit(reached)
            progress.show(f"{wanted.topic}: {reached:,}", (reached - began) / max(1, end - began))
    commit(reached)


def _write(page: Page[T], lines: RecordLines[T], *, is_terminal: bool) -> None:
    """Raises OutputError."""
    if page.records:
        write(b"\n".join([*lines.of(page.records, is_terminal), b""]))


def _commit(client: HttpClient, commits: Commits | None, topic: str, offset: int) -> None:
    """Nothing is sent if the offset is committed already. Raises AnswerError."""
    if commits is not None:
        client.wait_for(commits.commit({topic: offset}), is_read=False)


def _below(written: int, page: Page[T], lines: RecordLines[T], *, is_terminal: bool) -> int:
    """The first offset whose line is not whole in the first `written` bytes of a page."""
    for record, line in zip(page.records, lines.of(page.records, is_terminal), strict=True):
        written -= len(line) + 1
        if written < 0:
            return lines.offset(record)
    return page.next_offset
