"""`seb import`: topics of a Go broker's bucket, while no appliance serves; or lines, by HTTP."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.cli.failures import AnswerError, CommandError
from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.outline import outline
from seb_appliance.cli.output import say, size, tell
from seb_appliance.cli.parts import need_server
from seb_appliance.cli.produce import NDJSON_BYTES, LineProducer, opened_input
from seb_appliance.cli.progress import showing
from seb_appliance.cli.quantity import Quantity
from seb_appliance.cli.reaching import make_client
from seb_appliance.settings import Settings, load

if TYPE_CHECKING:
    from seb_appliance.app.importing import Imported
    from seb_appliance.cli.http_client import HttpClient

FORMATS: Final = ("seb-v1", "ndjson")
_SETTINGS: Final = (
    "url", "key_file", "profile",
    "bucket", "data", "s3_endpoint", "s3_region", "s3_access_key_id", "s3_checksums",
    "s3_immediate_list", "s3_connect_timeout", "s3_read_timeout",
)  # fmt: skip


@click.command("import")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False))
@click.option("--format", "kind", type=click.Choice(FORMATS), default="seb-v1", help="[seb-v1]")
@click.option("--from", "source", metavar="ADDRESS", help="The old bucket, or a directory.")
@click.option(
    "--from-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file (TOML) with the s3_… settings of --from, where they are others.",
)
@click.option("--topic", "topics", multiple=True, metavar="PATTERN", help="Which topics. [**]")
@click.option("--copy", is_flag=True, help="Store the records anew, in this appliance's bucket.")
@click.option("--dry-run", is_flag=True, help="Only read and check every file.")
@click.option(
    "--quiet-for",
    "quiet_ms",
    type=Quantity("DURATION", 0, limits.IMPORT_QUIET_MS_MAX),
    metavar="DURATION",
    default="1m",
    help="For so long nobody must have written to the old bucket. [1m]",
)
@click.option("--times-may-go-back", is_flag=True, help="The old machine's clock was set back.")
@click.option("--append", is_flag=True, help="Of lines: also to a topic that has records.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
@with_settings(*_SETTINGS)
def import_(
    file: str | None,
    kind: str,
    topics: tuple[str, ...],
    as_json: bool,
    append: bool,
    config: Path | None,
    **given: Any,
) -> None:
    """Import topics of a Go broker's bucket, offsets kept; or lines into one topic.

    The bucket's files become part of the appliance's log where they lie, when it is the appliance's
    own bucket, and are copied from any other. No appliance may run meanwhile. What broke off goes
    on with the same command. With --format ndjson the lines of FILE (or stdin) are sent to a
    running appliance.
    """
    old = {name: given.pop(name) for name in _OF_OLD_BUCKETS}
    if kind == "ndjson":
        asked = {name: value for name, value in old.items() if name != "quiet_ms"}  # always there
        if any(asked.values()) or len(topics) != 1:
            raise click.UsageError("--format ndjson takes one --topic and a FILE, and no bucket")
        client = make_client(config, {name: given[name] for name in ("url", "key_file", "profile")})
        try:
            _import_lines(client, topics[0], file, append=append, as_json=as_json)
        finally:
            client.close()
        return
    if file is not None or append or old["source"] is None:
        raise click.UsageError("say with --from where the old bucket is (FILE is for ndjson)")
    settings = settings_from(config, given)
    imported = _import_bucket(settings, topics or ("**",), **old)
    members = _members(imported, dry_run=old["dry_run"])
    say(json.dumps(asdict(imported), indent=2) if as_json else outline(members))


_OF_OLD_BUCKETS: Final = (
    "source", "from_config", "copy", "dry_run", "quiet_ms", "times_may_go_back",
)  # fmt: skip


def _import_bucket(
    settings: Settings,
    topics: tuple[str, ...],
    *,
    source: str,
    from_config: Path | None,
    **chosen: Any,
) -> Imported:
    with need_server():
        import uvloop

        from seb_appliance.app import importing
        from seb_appliance.machine.allocator import keep_freed_memory

    keep_freed_memory()  # one heap: else each thread keeps what it has freed
    options = importing.ImportOptions(
        source=other_bucket(settings, source, from_config), topics=topics, **chosen
    )
    with (
        showing("looking at the old bucket") as progress,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(importing.import_old_log(settings, options, progress))


def other_bucket(settings: Settings, address: str, config: Path | None) -> Settings:
    """The settings of the bucket or directory at `address`: these, or of a file of its own.
    Raises ConfigurationError."""
    if ":" not in address:
        address = f"file:{address}"
    if config is None:
        return replace(settings, bucket=address)
    return load(flags={"bucket": address}, environment={}, config=config)


def _members(imported: Imported, *, dry_run: bool) -> dict[str, Any]:
    what = "checked" if dry_run else "imported in place" if imported.in_place else "copied"
    return {
        "topics": imported.topics,
        what: f"{imported.files:,} files, {imported.records:,} records, "
        f"{size(imported.size_bytes)}",
        "were there": imported.found,
        "seconds": round(imported.seconds, 2),
    }


def _import_lines(
    client: HttpClient, topic: str, file: str | None, *, append: bool, as_json: bool
) -> None:
    """Raises CommandError."""
    if not append and _has_records(client, topic):
        raise CommandError(f"topic {topic!r} has records already: --append adds to them")
    from seb_appliance.cli.line_bodies import of_objects
    from seb_appliance.cli.lines import Lines

    producer = LineProducer(client, topic, as_json)
    path = None if file in (None, "-") else Path(str(file))
    try:
        with opened_input(path) as source:
            lines = Lines(source.descriptor, limits.RECORDS_PER_REQUEST_MAX, NDJSON_BYTES)
            for some in lines.batches():
                body = of_objects([_to_produce(line) for line in some if line.strip()])
                if body is not None:
                    producer.send(body)
    finally:
        tell(producer.so_far())


def _has_records(client: HttpClient, topic: str) -> bool:
    try:
        answer = client.request("GET", path_of("topics", topic))
    except AnswerError as error:
        if error.status == 404:
            return False
        raise
    return bool(answer.json()["log_end_offset"])


def _to_produce(line: bytes) -> bytes:
    """A line as consumers get it, as producers send it. Raises CommandError."""
    try:
        record = json.loads(line)
        record.pop("offset", None)
        for name in ("key", "value"):
            if f"{name}_base64" in record:
                record.pop(name, None)
    except (ValueError, AttributeError, RecursionError) as error:
        raise CommandError(f"not a line of records: {line[:80]!r}") from error
    return json.dumps(record).encode()
