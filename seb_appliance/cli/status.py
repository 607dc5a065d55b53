"""`seb status`: how the appliance is, for its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.failures import UNAVAILABLE
from seb_appliance.cli.outline import outline
from seb_appliance.cli.output import moment, say, say_json, size, span
from seb_appliance.cli.reaching import talks
from seb_appliance.quantities import format_duration

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient

Json = dict[str, Any]


@click.command
@talks
def status(client: HttpClient, as_json: bool) -> int:
    """Show how the appliance is. Needs an admin key. Exit code 69 when it is not ready, or is a
    standby with problems."""
    found = client.request("GET", path_of("status")).json()
    if as_json:
        say_json(found)
    else:
        say(outline(_members(found)))
    well = found["ready"] or (found["standby"] is not None and not found["problems"])
    return 0 if well else UNAVAILABLE


def _members(found: Json) -> Json:
    journal, bucket, state = found["journal"], found["bucket"], found["state"]
    snapshots, waiting, counts = found["snapshots"], found["waiting"], found["counts"]
    tidier = found["tidier"]
    newest = "none yet" if not snapshots["seq"] else f"of entry {snapshots['seq']:,}"
    pending, pending_max = waiting["pending_bytes"], waiting["pending_bytes_max"]
    reading, reading_max = waiting["reading_bytes"], waiting["reading_bytes_max"]
    return {
        "ready": found["ready"],
        "problems": found["problems"],
        "role": _role(found["standby"]),
        "version": found["version"],
        "started": f"{moment(found['started'])}, {span(found['uptime_s'])} ago",
        "bucket": bucket["description"],
        "last answer": f"{span(bucket['last_answer_age_s'])} ago",
        "failing": bucket["failure"] or "no",
        "journal": f"entry {journal['seq']:,}, epoch {journal['epoch']}, "
        f"fencing mode {journal['fencing_mode']}, durability {journal['durability']}",
        "log's clock": f"{journal['clock_ahead_s']:+,.1f} s from the wall clock",
        "snapshot": f"{newest}, {snapshots['entries_since']:,} entries since",
        "snapshot fails": snapshots["failure"] or "no",
        "remembered": _remembered(found["remembered"]),
        "last used": found["last_used"]["failure"] or "is written down",
        "tidier": f"{tidier['doing'] or 'nothing to do'}; {tidier['waiting_entries']:,} entries, "
        f"{size(tidier['waiting_bytes'])} wait; {tidier['objects']:,} objects, "
        f"{tidier['garbage']:,} to go",
        "tidier fails": tidier["failure"] or "no",
        "tidier is late": span(tidier["overdue_s"]) if tidier["overdue_s"] else "no",
        "background": _background(found["background"]),
        "compaction": f"{tidier['compacted_topics']:,} topics, {size(tidier['dirty_bytes'])} of "
        f"{size(tidier['compacted_bytes'])} not compacted; "
        f"{tidier['records_removed']:,} records removed since the start",
        "SQLite": f"{state['lag_entries']:,} entries behind",
        "key index": _key_index(found["key_index"]),
        "waiting": f"{size(pending)} of {size(pending_max)} for the bucket, "
        f"{size(reading)} of {size(reading_max)} for readers",
        "readers": f"{waiting['waiting_readers']:,} wait at a log end",
        "cost": _cost(found["cost"]),
        "holds": f"{counts['records']:,} records, {counts['topics']:,} topics, "
        f"{counts['groups']:,} groups, {counts['api_keys']:,} API keys",
    }


def _role(standby: Json | None) -> str:
    if standby is None:
        return "writer"
    age_s = standby["seen_end_age_s"]
    seen = "not at the end yet" if age_s is None else f"had read everything {span(age_s)} ago"
    lag = f"{standby['lag_entries']:,} entries, {span(standby['lag_s'])} behind; {seen}"
    return f"standby, {lag}" + (f"; waits for {standby['waits_for']}" * bool(standby["waits_for"]))


def _remembered(kept: Json) -> str:
    is_full = kept["places"] >= kept["places_max"]
    reach = f"since {moment(kept['oldest_request'])}" if is_full else "of 24 h"
    return (
        f"{kept['requests']:,} requests with an Idempotency-Key {reach}; "
        f"{kept['producers']:,} producers"
    )


def _background(tasks: list[Json]) -> str:
    raised = [
        f"{task['name']} {task['failures']:,} times ({task['failure']})"
        for task in tasks
        if task["failures"]
    ]
    return "; ".join(raised) or "nothing has failed"


def _cost(found: Json) -> str:
    amounts = f"{found['this_month']:,.2f} {found['currency']} this month, "
    amounts += f"{found['forecast']:,.2f} forecast"
    if found["budget"] is not None:
        amounts += f", of {found['budget']:,.2f}; linger {format_duration(found['linger_ms'])}"
    return f"{amounts}; {found['failure']}" if found["failure"] else amounts


def _key_index(index: Json) -> str:
    behind = f"{index['lag_records']:,} records behind on {index['topics']:,} topics"
    return f"{behind}; {index['failure']}" if index["failure"] else behind
