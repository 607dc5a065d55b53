"""`seb tail TOPIC`: values as they are stored, until interrupted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.consume import values
from seb_appliance.cli.output import write
from seb_appliance.cli.reaching import talks

if TYPE_CHECKING:
    from seb_appliance.cli.failures import AnswerError
    from seb_appliance.cli.http_client import HttpClient, LiveLines

_ID: Final = b"id: "
_ERROR: Final = b"event: error"
_DATA: Final = b"data: "


@click.command
@click.argument("topic")
@click.option(
    "--offset",
    metavar="WHERE",
    default="latest",
    help="A number, earliest, latest, -N (the last N), @time. [latest]",
)
@talks
def tail(client: HttpClient, as_json: bool, topic: str, offset: str) -> None:
    """Write the values of TOPIC's records to stdout, one a line, as they are stored.

    With --json whole records come, one JSON object a line. It goes on until it is interrupted, and
    goes on where it was when the appliance was away for a moment.
    """
    _Tail(client, topic, offset, as_json=as_json).run()


class _Tail:
    def __init__(self, client: HttpClient, topic: str, offset: str, *, as_json: bool) -> None:
        self._client = client
        self._path = path_of("topics", topic, "records")
        self._offset = offset
        self._seen: str | None = None  # the offset of the last record written out
        self._as_json = as_json
        self._failed: AnswerError | None = None  # why the stream ended, if it says so

    def run(self) -> None:
        """Stream after stream. Raises AnswerError when it makes no sense to go on."""
        from seb_appliance.cli.failures import AnswerError

        while True:
            stream = self._client.patiently(self._open)
            self._offset = stream.headers["seb-next-offset"]
            try:
                self._write(stream)
            except AnswerError as error:
                self._failed = error

    def _open(self) -> LiveLines:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed  # whoever is patient decides whether to ask again, and when
        headers = {"Accept": "text/event-stream"}
        if self._seen is not None:
            headers["Last-Event-ID"] = self._seen
        return self._client.follow(self._path, {"offset": self._offset}, headers)

    def _write(self, stream: LiveLines) -> None:
        """Until the stream ends. Raises AnswerError."""
        from seb_appliance.cli.http_client import refusal

        is_error = False
        offset = ""
        for line in stream.lines:
            if line.startswith(_ID):
                offset = line.removeprefix(_ID).decode()
            elif line == _ERROR:
                is_error = True
            elif line.startswith(_DATA):
                content = line.removeprefix(_DATA)
                if is_error:
                    problem = json.loads(content)
                    raise refusal(problem, problem["status"])
                write(content + b"\n" if self._as_json else values(content))
                self._seen = offset
