"""`seb consume TOPIC`: values, one a line; or whole records as NDJSON."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.output import printable, write
from seb_appliance.cli.reaching import talks

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import Answer, HttpClient

WAIT: Final = "30s"
RECORDS_MAX: Final = 10_000  # in one request; its bytes are limited, too
OF_GROUP: Final = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class Wanted:
    """`offset` None: `earliest`. `most`: how many records, None for all."""

    topic: str
    offset: str | None
    until: str | None
    most: int | None
    follow: bool
    group: str | None
    commit: bool

    def check(self) -> None:
        """Raises UsageError."""
        if self.follow and self.until is not None:
            raise click.UsageError("say either --follow or --until")
        if self.commit and self.group is None:
            raise click.UsageError("--commit needs a --group")
        if self.group is not None and self.offset not in (None, *OF_GROUP):
            raise click.UsageError(
                "with --group it begins at the committed offset; --offset is earliest or latest, "
                "for a group that has none"
            )


@click.command
@click.argument("topic")
@click.option(
    "--offset",
    metavar="WHERE",
    help="A number, earliest, latest, -N (the last N), @time. [earliest]",
)
@click.option("--until", metavar="WHERE", help="Stop before this offset or @time. [the log end]")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="At most N records.")
@click.option("--follow", is_flag=True, help="Wait for more at the log end.")
@click.option("--group", metavar="GROUP", help="Begin where GROUP has committed.")
@click.option("--commit", is_flag=True, help="Commit for GROUP what was written out.")
@talks
def consume(client: HttpClient, as_json: bool, **asked: Any) -> None:
    """Write the values of TOPIC's records to stdout, one a line, up to the log end of now.

    With --json whole records come, one JSON object a line. Two readers of one group get the same
    records. With --commit an offset is committed after its records were written out, so that
    records may come twice after a failure, but never not at all.
    """
    wanted = Wanted(**asked)
    wanted.check()
    progress = _Progress(client, wanted.topic, wanted.group) if wanted.commit else None
    for answer in answers(client, wanted):
        if answer.body:
            write(answer.body if as_json else values(answer.body))
        if progress is not None:
            progress.commit(answer)


def answers(client: HttpClient, wanted: Wanted) -> Iterator[Answer]:
    """The answers that hold the records, asked for one after another."""
    left = wanted.most
    offset: int | None = None
    end: int | None = None  # where the log ended when we began
    while left is None or left > 0:
        path, query = _request(wanted, offset, left)
        answer = _get(client, path, query)
        reached = answer.number("seb-next-offset")
        if end is None:
            end = answer.number("seb-log-end-offset")
        yield answer
        if left is not None:
            left -= answer.body.count(b"\n")
        if not wanted.follow and (reached == offset or reached >= end):
            return
        offset = reached


def _request(wanted: Wanted, offset: int | None, left: int | None) -> tuple[str, dict[str, object]]:
    """Path and query. `offset` None: the first one; in a group it is told where that stands."""
    query: dict[str, object] = {
        "format": "ndjson",
        "until": wanted.until,
        "max_records": RECORDS_MAX if left is None else min(left, RECORDS_MAX),
        "wait": WAIT if wanted.follow else None,
    }
    if offset is None and wanted.group is not None:
        path = path_of("groups", wanted.group, "topics", wanted.topic, "records")
        return path, {**query, "default": wanted.offset}
    begin = wanted.offset if offset is None else offset
    return path_of("topics", wanted.topic, "records"), {**query, "offset": begin}


def _get(client: HttpClient, path: str, query: dict[str, object]) -> Answer:
    return client.patiently(lambda: client.request("GET", path, query=query))


class _Progress:
    """Commits for a group, each time only if it stands where we left it: another consumer of the
    group that commits meanwhile is found out instead of overwritten."""

    def __init__(self, client: HttpClient, topic: str, group: str | None) -> None:
        assert group is not None
        self._client = client
        self._topic = topic
        self._path = path_of("groups", group, "offsets")
        self._topic_id: int | None = None
        self._committed: int | None = None

    def commit(self, answer: Answer) -> None:
        """Raises AnswerError."""
        if self._topic_id is None:
            self._topic_id = answer.number("seb-topic-id")
            if "seb-committed-offset" in answer.headers:
                self._committed = answer.number("seb-committed-offset")
        reached = answer.number("seb-next-offset")
        if reached == self._committed:
            return
        body = {
            "offsets": {self._topic: reached},
            "expected": {self._topic: self._committed},
            "topic_ids": {self._topic: self._topic_id},
        }
        self._client.patiently(lambda: self._client.request("PUT", self._path, json_body=body))
        self._committed = reached


def values(body: bytes) -> bytes:
    """A tombstone is an empty line. On a terminal, control characters come escaped."""
    values = [_value(json.loads(line)) for line in body.split(b"\n") if line]
    if sys.stdout.isatty():
        values = [printable(value.decode(errors="backslashreplace")).encode() for value in values]
    return b"\n".join(values) + b"\n"


def _value(record: dict[str, Any]) -> bytes:
    if "value_base64" in record:
        return base64.b64decode(record["value_base64"])
    value: str | None = record["value"]
    return b"" if value is None else value.encode()
