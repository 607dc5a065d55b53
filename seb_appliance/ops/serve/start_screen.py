"""What the terminal shows while the appliance starts, and when it is there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.status import Status

from seb_appliance import __version__
from seb_appliance.ops.host.data_directory import FILE_NAME
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.storage.journal.replay import Progress

_TRY_PATH = "/v1/topics/greetings/records"
_WORTH = {
    "s3": "durable as that bucket",
    "disk": "durable as this disk; use s3://… for more",
    "memory": "gone when the process ends; for trying out only",
}

_OPEN = (
    "--durable-streams-open: every program on this machine may read, write and DELETE every topic "
    "by /v1/stream, without an API key"
)


@contextlib.contextmanager
def progress(console: Console) -> Iterator[Progress]:
    """A callback for the start; on a terminal it shows a line that moves, elsewhere nothing."""
    status = Status("starting", console=console) if console.is_terminal else None

    def show_progress(done: int, total: int, phase: str) -> None:
        if status is not None:
            status.update(f"{phase}  {done:,} of {total:,}" if total else phase)

    with status or contextlib.nullcontext():
        yield show_progress


def show(console: Console, appliance: Appliance, port: int) -> None:
    """The lines that a newcomer needs next."""
    settings, report = appliance.settings, appliance.report
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{port}"
    key_file = settings.data / FILE_NAME
    rows = [
        ("bucket", f"{appliance.store.description}  {_WORTH[appliance.journal.durability]}"),
        _role(appliance),
        ("recovery", _recovery(appliance)),
        ("admin page", _admin_page(appliance, url)),
        ("API", f"{url}/schema"),
        ("admin key", f"in {key_file}"),
        (
            "try it",
            f'curl -H "Authorization: Bearer $(cat {key_file})" -d hello {url}{_TRY_PATH}',
        ),
    ]
    if appliance.standby is not None:
        rows[5:] = [("admin key", "as at the writer; all API keys work here, too")]
    elif not key_file.exists():
        rows[5:] = [("admin key", f"not in {key_file}; seb admin reset-key makes a new one")]
    console.print(f"Seb Appliance {__version__}", highlight=False)
    for name, text in rows:
        console.print(f"  {name:<11} {text}", highlight=False, markup=False, soft_wrap=True)
    if settings.durable_streams_open:
        console.print(f"  {'WARNING':<11} {_OPEN}", style="bold red", soft_wrap=True)
    for warning in (*report.warnings, appliance.database.set_aside):
        if warning:
            console.print(f"  {'warning':<11} {warning}", style="yellow", soft_wrap=True)


def _role(appliance: Appliance) -> tuple[str, str]:
    report = appliance.report
    words = f"epoch {report.epoch}, fencing mode {report.mode}"
    if appliance.standby is None:
        return "writer", words
    return "standby", f"follows the writer ({words}); seb promote makes it the writer"


def _admin_page(appliance: Appliance, url: str) -> str:
    page = f"{url}/ui"
    if appliance.broker.accounts.all():
        return page
    data = appliance.settings.data
    return f"{page}  nobody can log in yet: seb admin set-password --data {data}"


def _recovery(appliance: Appliance) -> str:
    report, broker = appliance.report, appliance.broker
    totals = broker.topic_lists.totals()
    began = {"local": "local state", "empty": "an empty state"}.get(
        report.began_from, f"snapshot {report.began_seq}"
    )
    return (
        f"{began} + {report.entries_replayed:,} entries → {totals.records:,} records, "
        f"{totals.topics:,} topics, {len(broker.access.all()):,} API keys, "
        f"ready in {report.seconds:.1f} s"
    )
