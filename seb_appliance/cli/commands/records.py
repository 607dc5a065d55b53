"""`seb produce`, `seb consume` and `seb tail`: lines to records, and records to lines.

Lines are sent as soon as they are read. A thread reads ahead while a request is on its way, so a
slow bucket makes the batches larger. In the other direction, a page is read while one is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import stat
import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import click
import msgspec

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.errors import UNKNOWN, AnswerError, CommandError, OutputError
from seb_appliance.cli.options import Quantity, connects, file_option, group_names, topic_argument
from seb_appliance.cli.output import Progress, goes_to_a_file, say, tell, write
from seb_appliance.client.leasing import Commits
from seb_appliance.client.producing import BATCH, ZSTD_FROM_BYTES, ZSTD_LEVEL
from seb_appliance.client.reading import BATCHES, Form, Page, Reading, Source, begin, pages
from seb_appliance.client.records import Record
from seb_appliance.errors import printable
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns
from seb_appliance.formats.queues.queues import DELIVER_AT_HEADER
from seb_appliance.quantities import counted

LINES_BYTES: Final = 4 * limits.MIB  # in one request; zstd makes it smaller
NDJSON_BYTES: Final = 1 * limits.MIB
NDJSON: Final = "application/x-ndjson"
PAGE_BYTES: Final = 1 * limits.MIB
READ_BYTES: Final = 256 * limits.KIB
READS_AHEAD: Final = 16


@click.command
@topic_argument
@file_option("--file", "Read lines from FILE instead of stdin.", metavar="FILE")
@click.option("--key", metavar="KEY", help="The record key of every record.")
@click.option(
    "--ndjson",
    is_flag=True,
    help='Each line is a record object, such as {"key":"a","value":"1"}.',
)
@click.option(
    "--delay",
    type=Quantity("DURATION", 0, limits.DELAY_US_MAX // 1000),
    help="Queues hand the records out after this time, such as 15m.",
)
@connects
def produce(
    client: HttpClient,
    as_json: bool,
    topic: str,
    file: Path | None,
    key: str | None,
    ndjson: bool,
    delay: int | None,
) -> None:
    """Store each line of stdin as a record of TOPIC, in order.

    Lines are sent as soon as they are read, many in one request. A request whose answer is lost, or
    is retryable, is sent again for up to a minute; its lines are stored once. The exit code is 71
    if it is still unknown whether the last lines were stored. With --json, the appliance's answers
    are written, one a line.
    """
    if key is not None and ndjson:
        raise click.UsageError("with --ndjson each line has its own key: leave --key out")
    if ndjson:
        if delay is not None:
            raise click.UsageError("with --ndjson each line has its own delay_ms or deliver_at")
        send_objects(client, topic, file, as_json)
        return
    record_key = None if key is None else key.encode(errors="surrogateescape")
    wall_us = client.caller.clock.wall_us
    headers = {} if delay is None else {"Seb-Deliver-At": "records"}

    def body_of(lines: list[bytes]) -> _Body:
        now_us = wall_us()
        due_us = None if delay is None else now_us + delay * 1000
        return _of_lines(lines, record_key, now_us, due_us)

    sender = _Sender(client, topic, as_json, body_of, headers)
    sender.send_all(file, limits.RECORDS_IN_BATCHES_MAX, LINES_BYTES)


def send_objects(
    client: HttpClient,
    topic: str,
    file: Path | None,
    as_json: bool,
    converted: Callable[[bytes], bytes] = bytes,
) -> None:
    """Each line of `file` (None: stdin) is a record object, which the appliance parses. Raises
    CommandError."""

    def body_of(lines: list[bytes]) -> _Body:
        objects = [converted(line) for line in lines if line.strip()]
        return _Body(b"\n".join(objects), NDJSON, len(objects))

    sender = _Sender(client, topic, as_json, body_of)
    sender.send_all(file, limits.RECORDS_PER_REQUEST_MAX, NDJSON_BYTES)


class _Body(NamedTuple):
    """`records`: how many are in it."""

    content: bytes
    content_type: str
    records: int


def _of_lines(
    lines: list[bytes], record_key: bytes | None, now_us: int, due_us: int | None
) -> _Body:
    """Each line is a value, byte for byte; the time of all is `now_us`."""
    count = len(lines)
    columns = Columns(
        array("q", [now_us]) * count,
        BinaryColumn.of(lines),
        None if record_key is None else BinaryColumn.of([record_key] * count),
        None if due_us is None else BinaryColumn.of([_told(due_us)] * count),
    )
    level = ZSTD_LEVEL if sum(map(len, lines)) >= ZSTD_FROM_BYTES else None
    content = batch.encode(columns, base_offset=0, created_us=now_us, zstd_level=level)
    return _Body(content, BATCH, count)


def _told(due_us: int) -> bytes:
    return msgspec.msgpack.encode({DELIVER_AT_HEADER: str(due_us).encode()})


class NotStoredError(CommandError):
    """Its sentence says what was stored before."""


class _Sender:
    """Sends batches of lines one after another, and counts acknowledged records.

    An idempotent producer (docs/GUARANTEES.md): the appliance recognizes a request that is sent
    again by its seq.
    """

    def __init__(
        self,
        client: HttpClient,
        topic: str,
        as_json: bool,
        body_of: Callable[[list[bytes]], _Body],
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._client = client
        self._path = path_of("topics", topic, "records")
        self._as_json = as_json
        self._body_of = body_of
        self._headers = headers
        self._producer_id = f"seb-produce-{secrets.token_hex(8)}"
        self._seq = 0
        self._acknowledged = 0
        self._last_offset = -1

    def send_all(self, file: Path | None, most: int, most_bytes: int) -> None:
        """The lines of a file (None: stdin), and says on stderr what was stored. Raises
        CommandError."""
        try:
            with _opened(file) as descriptor:
                found = os.fstat(descriptor)
                size = found.st_size if stat.S_ISREG(found.st_mode) else 0
                lines = Lines(descriptor, most, most_bytes)
                is_typed = os.isatty(descriptor)
                with Progress(wanted=not (is_typed or self._as_json)) as progress:
                    for some in lines.batches():
                        body = self._body_of(some)
                        if body.records:
                            self._send(body)
                        done = lines.taken_bytes / size if size else None
                        progress.show(self._so_far(), done)
        except NotStoredError:
            raise
        except BaseException:
            tell(self._so_far())
            raise
        tell(self._so_far())

    def _send(self, body: _Body) -> None:
        """Raises NotStoredError."""
        caller = self._client.caller
        numbered = {
            **self._headers,
            "Producer-Id": self._producer_id,
            "Producer-Epoch": "0",
            "Producer-Seq": str(self._seq),
        }
        # Record objects are read as such, whatever the topic's setting `body` says of others.
        query = {"body": "envelope"} if body.content_type == NDJSON else None
        request = caller.endpoint.request(
            "POST",
            self._path,
            query,
            body=body.content,
            content_type=body.content_type,
            headers=numbered,
        )
        try:
            answer = self._client.wait_for(caller.ask(request, is_known_again=True), is_read=False)
        except AnswerError as error:
            fate = "may be stored or not" if error.exit_code == UNKNOWN else "are not stored"
            sentence = f"Before that, {self._so_far()}; the next {body.records:,} {fate}."
            raise NotStoredError(f"{error.sentence} {sentence}", error.exit_code) from error
        self._seq += 1
        produced: dict[str, Any] = answer.json()
        self._acknowledged += produced["count"]
        self._last_offset = produced["last_offset"]
        if self._as_json:
            try:
                say(json.dumps(produced))
            except BrokenPipeError:
                self._as_json = False  # the reader left; the lines must still be stored

    def _so_far(self) -> str:
        if not self._acknowledged:
            return "no record acknowledged"
        last = f"the last at offset {self._last_offset:,}"
        return f"{counted(self._acknowledged, 'record')} acknowledged, {last}"


@contextlib.contextmanager
def _opened(file: Path | None) -> Iterator[int]:
    """The descriptor of a file (None: stdin). Raises CommandError."""
    if file is None:
        yield sys.stdin.fileno()
        return
    try:
        opened = file.open("rb", buffering=0)
    except OSError as error:
        raise CommandError(f"cannot read {file} ({error.strerror})") from error
    with opened:
        yield opened.fileno()


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
                raise CommandError("a line is longer than 16 MiB, the limit of a record")
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


@click.command
@topic_argument
@click.option(
    "--offset",
    metavar="WHERE",
    help="A number, earliest, latest, -N (the last N), @time. [earliest]",
)
@click.option("--until", metavar="WHERE", help="Stop before this offset or @time. [the log end]")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="At most N records.")
@click.option("--follow", is_flag=True, help="Wait for more at the log end.")
@click.option(
    "--group", metavar="GROUP", help="Begin where GROUP has committed.", shell_complete=group_names
)
@click.option("--commit", is_flag=True, help="Commit for GROUP the offset after what was written.")
@connects
def consume(
    client: HttpClient,
    as_json: bool,
    topic: str,
    offset: str | None,
    group: str | None,
    commit: bool,
    **reading: Any,
) -> None:
    """Write the values of TOPIC's records to stdout, one a line, up to the log end.

    With --json, whole records are written, one JSON object a line. Two readers of one group get the
    same records. With --commit, an offset is committed after its records were written out: after a
    failure records may be repeated, but none is missing.
    """
    if reading["follow"] and reading["until"] is not None:
        raise click.UsageError("give either --follow or --until")
    if commit and group is None:
        raise click.UsageError("--commit needs a --group")
    if group is not None and offset not in (None, "earliest", "latest"):
        raise click.UsageError(
            "with --group, reading begins at the committed offset; --offset is earliest or latest, "
            "for a group that has none"
        )
    asked = Reading(offset or "earliest", None, max_bytes=PAGE_BYTES, **reading)
    commits = None if group is None else Commits(client.caller, group, None)
    copy(client, topic, asked, as_json=as_json, commits=commits, commit=commit)


@click.command
@topic_argument
@click.option(
    "--offset",
    metavar="WHERE",
    default="latest",
    help="A number, earliest, latest, -N (the last N), @time. [latest]",
)
@connects
def tail(client: HttpClient, as_json: bool, topic: str, offset: str) -> None:
    """Write the values of TOPIC's new records to stdout, one a line.

    With --json, whole records are written, one JSON object a line. It runs until it is interrupted,
    and continues after the appliance was unreachable for a moment.
    """
    copy(client, topic, Reading(offset, None, True, PAGE_BYTES), as_json=as_json)


class _Form(NamedTuple):
    """`lines`: a page's records as lines without their ends."""

    form: Form[Any]
    lines: Callable[[Sequence[Any]], Sequence[bytes]]
    offset: Callable[[Any], int]


def _values(records: Sequence[Record]) -> Sequence[bytes]:
    """A tombstone is an empty line. On a terminal, control characters are escaped."""
    values = [record.value or b"" for record in records]
    if sys.stdout.isatty():
        return [printable(value.decode(errors="backslashreplace")).encode() for value in values]
    return values


class _Placed(msgspec.Struct):
    offset: int


_VALUES: Final = _Form(BATCHES, _values, lambda record: record.offset)
_OBJECTS: Final = _Form(
    Form("ndjson", lambda _, body, *__: body.split(b"\n")[:-1]),
    lambda records: records,
    lambda line: msgspec.json.decode(line, type=_Placed).offset,
)


def copy(
    client: HttpClient,
    topic: str,
    reading: Reading,
    *,
    as_json: bool,
    commits: Commits | None = None,
    commit: bool = False,
    put: Callable[[bytes], object] | None = None,
) -> int:
    """Write records as lines to `put` (None: stdout), and commit them if `commit`. The number of
    records. Raises CommandError, which says up to where records were written if stdout is full."""
    form = _OBJECTS if as_json else _VALUES
    source = Source(client.caller, topic)
    began, end = client.wait_for(begin(source, reading, commits), is_read=True)
    reached, count = began, 0
    with Progress(wanted=goes_to_a_file() and not reading.follow) as progress:
        for page in client.ahead(pages(source, reading, form.form, began, end)):
            lines = form.lines(page.records)
            try:
                (put or write)(b"\n".join([*lines, b""]))
            except OutputError as error:
                below = _first_torn(error.written, page, lines, form)
                sentence = f"{error.sentence}; what comes before offset {below:,} is written"
                if commit:
                    stands = f"offset {reached:,}" if reached != began else "nothing new"
                    sentence += f", {stands} is committed"
                raise CommandError(f"{sentence}.", error.exit_code) from error
            reached, count = page.next_offset, count + len(lines)
            if commit and commits is not None:
                client.wait_for(commits.commit({topic: reached}), is_read=False)
            progress.show(f"{topic}: {reached:,}", (reached - began) / max(1, end - began))
    if commit and commits is not None:  # nothing is sent if the offset is committed already
        client.wait_for(commits.commit({topic: reached}), is_read=False)
    return count


def _first_torn(written: int, page: Page[Any], lines: Sequence[bytes], form: _Form) -> int:
    """The first offset whose line is not whole in the first `written` bytes of a page."""
    for record, line in zip(page.records, lines, strict=True):
        written -= len(line) + 1
        if written < 0:
            return form.offset(record)
    return page.next_offset
