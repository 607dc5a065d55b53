"""`seb produce TOPIC`: each line becomes a record."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.failures import UNKNOWN, AnswerError, CommandError
from seb_appliance.cli.output import say, tell
from seb_appliance.cli.reaching import talks

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import Answer, HttpClient
    from seb_appliance.cli.lines import Lines

NDJSON: Final = "application/x-ndjson"


@click.command
@click.argument("topic")
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Read lines from FILE instead of stdin.",
)
@click.option("--key", metavar="KEY", help="The record key of every record.")
@click.option(
    "--ndjson",
    is_flag=True,
    help='Each line is a record object, such as {"key":"a","value":"1"}.',
)
@talks
def produce(
    client: HttpClient, as_json: bool, topic: str, file: Path | None, key: str | None, ndjson: bool
) -> None:
    """Store each line of stdin as a record of TOPIC, in order.

    What is there is sent at once, many lines in one request. A request whose answer is lost, or
    says that it may work later, is sent again for up to a minute; its lines are stored once. Ends
    with 71 when it is still not known whether the last lines were stored. With --json the
    appliance's answers come, one a line.
    """
    if key is not None and ndjson:
        raise click.UsageError("with --ndjson each line has its own key: leave --key out")
    producer = LineProducer(client, topic, as_json)
    try:
        with opened_lines(file) as found:
            for lines in found.batches():
                if ndjson:
                    producer.send([line for line in lines if line.strip()])
                else:
                    producer.send([record_line(line, key) for line in lines])
    except KeyboardInterrupt:
        tell(producer.so_far())
        raise
    tell(producer.so_far())


class LineProducer:
    """Sends batches one after another, and knows how many records are acknowledged.

    As an idempotent producer of its own (docs/GUARANTEES.md): the appliance knows each request by
    its seq, and so does once what is sent again.
    """

    def __init__(self, client: HttpClient, topic: str, as_json: bool) -> None:
        self._client = client
        self._path = path_of("topics", topic, "records")
        self._as_json = as_json
        self._producer_id = f"seb-produce-{secrets.token_hex(8)}"
        self._seq = 0
        self._acknowledged = 0
        self._last_offset = -1

    def send(self, lines: list[bytes]) -> None:
        """Raises CommandError that says what became of the records before and of these."""
        if not lines:
            return
        body = b"\n".join(lines)
        numbered = {
            "Producer-Id": self._producer_id,
            "Producer-Epoch": "0",
            "Producer-Seq": str(self._seq),
        }

        def post() -> Answer:
            return self._client.request(
                "POST", self._path, body=body, content_type=NDJSON, more_headers=numbered
            )

        try:
            answer = self._client.patiently(post, is_known_again=True)
        except AnswerError as error:
            fate = "may be stored or not" if error.exit_code == UNKNOWN else "are not stored"
            raise CommandError(
                f"{error.sentence} Before that, {self.so_far()}; the next {len(lines):,} {fate}.",
                error.exit_code,
            ) from error
        self._seq += 1
        produced: dict[str, Any] = answer.json()
        self._acknowledged += produced["count"]
        self._last_offset = produced["last_offset"]
        if self._as_json:
            say(json.dumps(produced))

    def so_far(self) -> str:
        if not self._acknowledged:
            return "no record acknowledged"
        noun = "record" if self._acknowledged == 1 else "records"
        last = f"the last at offset {self._last_offset:,}"
        return f"{self._acknowledged:,} {noun} acknowledged, {last}"


def record_line(value: bytes, key: str | None) -> bytes:
    """A record object of NDJSON that holds exactly these bytes."""
    record: dict[str, str] = {} if key is None else {"key": key}
    try:
        record["value"] = value.decode()
    except UnicodeDecodeError:
        record["value_base64"] = base64.b64encode(value).decode()
    return json.dumps(record).encode()


@contextmanager
def opened_lines(file: Path | None) -> Iterator[Lines]:
    """Of the file, or stdin. Raises CommandError."""
    from seb_appliance.cli.lines import Lines

    if file is None:
        yield Lines(sys.stdin.fileno())
        return
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CommandError(f"cannot read {file} ({error.strerror})") from error
    try:
        yield Lines(descriptor)
    finally:
        os.close(descriptor)
