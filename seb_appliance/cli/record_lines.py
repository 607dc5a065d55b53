"""Records from an appliance to stdout, line by line: a page is read while one is written."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import msgspec

from seb_appliance import limits
from seb_appliance.cli.output import Progress, goes_to_a_file, printable, write
from seb_appliance.cli.remote import CommandError, OutputError
from seb_appliance.client.leasing import Commits
from seb_appliance.client.reading import BATCHES, Form, Page, Reading, Source, begin, pages
from seb_appliance.client.records import Record

if TYPE_CHECKING:
    from seb_appliance.cli.commands.records import Wanted
    from seb_appliance.cli.http_client import HttpClient

T = TypeVar("T")

PAGE_BYTES: Final = 1 * limits.MIB


class RecordLines(NamedTuple, Generic[T]):
    """`of`: a page's records as lines without their ends; the flag says if a person reads them."""

    form: Form[T]
    of: Callable[[Sequence[T], bool], Sequence[bytes]]
    offset: Callable[[T], int]


def _values(records: Sequence[Record], is_terminal: bool) -> Sequence[bytes]:
    """A tombstone is an empty line. On a terminal, control characters come escaped."""
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
    """Commits what was written out, if that is wanted. Raises CommandError."""
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
    """Nothing is sent when it stands there already. Raises AnswerError."""
    if commits is not None:
        client.wait_for(commits.commit({topic: offset}), is_read=False)


def _below(written: int, page: Page[T], lines: RecordLines[T], *, is_terminal: bool) -> int:
    """The first offset whose line is not whole among so many bytes of a page."""
    for record, line in zip(page.records, lines.of(page.records, is_terminal), strict=True):
        written -= len(line) + 1
        if written < 0:
            return lines.offset(record)
    return page.next_offset
