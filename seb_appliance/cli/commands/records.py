"""`seb produce`, `seb consume` and `seb tail`: lines to records, and records to lines."""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.cli.errors import UNKNOWN, AnswerError, CommandError
from seb_appliance.cli.options import connects, file_option, group_names, topic_argument
from seb_appliance.cli.output import Progress, say, tell

if TYPE_CHECKING:
    from seb_appliance.cli.connection import HttpClient
    from seb_appliance.cli.record_lines import Body


LINES_BYTES: Final = 4 * limits.MIB  # in one request; zstd makes less of it
NDJSON_BYTES: Final = 1 * limits.MIB


@click.command
@topic_argument
@file_option("--file", "Read lines from FILE instead of stdin.", metavar="FILE")
@click.option("--key", metavar="KEY", help="The record key of every record.")
@click.option(
    "--ndjson",
    is_flag=True,
    help='Each line is a record object, such as {"key":"a","value":"1"}.',
)
@connects
def produce(
    client: HttpClient, as_json: bool, topic: str, file: Path | None, key: str | None, ndjson: bool
) -> None:
    """Store each line of stdin as a record of TOPIC, in order.

    Lines are sent as soon as they are read, many in one request. A request whose answer is lost, or
    is retryable, is sent again for up to a minute; its lines are stored once. The exit code is 71
    if it is still unknown whether the last lines were stored. With --json, the appliance's answers
    are written, one a line.
    """
    from seb_appliance.cli.record_lines import Lines, of_lines, of_objects

    if key is not None and ndjson:
        raise click.UsageError("with --ndjson each line has its own key: leave --key out")
    record_key = None if key is None else key.encode(errors="surrogateescape")
    producer = LineProducer(client, topic, as_json)
    try:
        with (
            opened_input(file) as source,
            Progress(wanted=source.is_of_a_program and not as_json) as progress,
        ):
            most = limits.RECORDS_PER_REQUEST_MAX if ndjson else limits.RECORDS_IN_BATCHES_MAX
            lines = Lines(source.descriptor, most, NDJSON_BYTES if ndjson else LINES_BYTES)
            for batch in lines.batches():
                now_us = client.caller.clock.wall_us()
                body = of_objects(batch) if ndjson else of_lines(batch, record_key, now_us)
                if body is not None:
                    producer.send(body)
                progress.show(producer.so_far(), source.done(lines.taken_bytes))
    except NotStoredError:
        raise
    except BaseException:
        tell(producer.so_far())
        raise
    tell(producer.so_far())


class NotStoredError(CommandError):
    """Its sentence says what was stored before."""


class LineProducer:
    """Sends batches one after another, and counts acknowledged records.

    An idempotent producer (docs/GUARANTEES.md): the appliance recognizes a request that is sent
    again by its seq.
    """

    def __init__(self, client: HttpClient, topic: str, as_json: bool) -> None:
        self._client = client
        self._path = path_of("topics", topic, "records")
        self._as_json = as_json
        self._producer_id = f"seb-produce-{secrets.token_hex(8)}"
        self._seq = 0
        self._acknowledged = 0
        self._last_offset = -1

    def send(self, body: Body) -> None:
        """Raises NotStoredError."""
        caller = self._client.caller
        numbered = {
            "Producer-Id": self._producer_id,
            "Producer-Epoch": "0",
            "Producer-Seq": str(self._seq),
        }
        request = caller.endpoint.request(
            "POST", self._path, body=body.content, content_type=body.content_type, headers=numbered
        )
        try:
            answer = self._client.wait_for(caller.ask(request, is_known_again=True), is_read=False)
        except AnswerError as error:
            fate = "may be stored or not" if error.exit_code == UNKNOWN else "are not stored"
            raise NotStoredError(
                f"{error.sentence} Before that, {self.so_far()}; the next {body.records:,} {fate}.",
                error.exit_code,
            ) from error
        self._seq += 1
        produced: dict[str, Any] = answer.json()
        self._acknowledged += produced["count"]
        self._last_offset = produced["last_offset"]
        if self._as_json:
            try:
                say(json.dumps(produced))
            except BrokenPipeError:
                self._as_json = False  # the reader left; the lines must still be stored

    def so_far(self) -> str:
        if not self._acknowledged:
            return "no record acknowledged"
        noun = "record" if self._acknowledged == 1 else "records"
        last = f"the last at offset {self._last_offset:,}"
        return f"{self._acknowledged:,} {noun} acknowledged, {last}"


class _Source(NamedTuple):
    """`size_bytes`: None if unknown, as of a pipe."""

    descriptor: int
    size_bytes: int | None

    @property
    def is_of_a_program(self) -> bool:
        """Not typed on a terminal."""
        return not os.isatty(self.descriptor)

    def done(self, taken_bytes: int) -> float | None:
        """The part that has been read, 0 to 1."""
        return taken_bytes / self.size_bytes if self.size_bytes else None


@contextmanager
def opened_input(file: Path | None) -> Iterator[_Source]:
    """Raises CommandError."""
    if file is None:
        yield _source(sys.stdin.fileno())
        return
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CommandError(f"cannot read {file} ({error.strerror})") from error
    try:
        yield _source(descriptor)
    finally:
        os.close(descriptor)


def _source(descriptor: int) -> _Source:
    found = os.fstat(descriptor)
    return _Source(descriptor, found.st_size if stat.S_ISREG(found.st_mode) else None)


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
def consume(client: HttpClient, as_json: bool, **asked: Any) -> None:
    """Write the values of TOPIC's records to stdout, one a line, up to the current log end.

    With --json, whole records are written, one JSON object a line. Two readers of one group get the
    same records. With --commit, an offset is committed after its records were written out: after a
    failure records may be repeated, but none is missing.
    """
    _copy_out(client, as_json, **asked)


def _copy_out(client: HttpClient, as_json: bool, **asked: Any) -> None:
    """Raises CommandError, which says up to where records were written out if stdout is full."""
    from seb_appliance.cli.record_lines import JSON_LINES, VALUE_LINES, Wanted, copy

    wanted, is_terminal = Wanted(**asked), sys.stdout.isatty()
    wanted.check()
    if as_json:
        copy(client, wanted, JSON_LINES, is_terminal=is_terminal)
    else:
        copy(client, wanted, VALUE_LINES, is_terminal=is_terminal)


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
    """Write the values of TOPIC's records to stdout, one a line, as they are stored.

    With --json, whole records are written, one JSON object a line. It runs until it is interrupted,
    and continues where it was after the appliance was unreachable for a moment.
    """
    _copy_out(client, as_json, topic=topic, offset=offset, follow=True)
