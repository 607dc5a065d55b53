"""`seb status`, `seb cost` and `seb audit`: what an operator wants to know."""

from __future__ import annotations

import json
from typing import Final

import click

from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.errors import UNAVAILABLE
from seb_appliance.cli.options import Json, Result, talks
from seb_appliance.cli.output import (
    Cell,
    Quantity,
    moment,
    outline,
    size,
    span,
    table,
)
from seb_appliance.errors import printable
from seb_appliance.quantities import counted, format_duration

PAGE: Final = 1_000


@click.command
@talks
def status(client: HttpClient) -> Result:
    """Show the state of the appliance. Needs an admin key. Exit code 69 when it is not ready, or is
    a standby with problems."""
    found = client.ask("GET", "status")
    well = found["ready"] or (found["standby"] is not None and not found["problems"])
    return Result(found, _outline, 0 if well else UNAVAILABLE)


def _outline(found: Json) -> str:
    journal, bucket, state = found["journal"], found["bucket"], found["state"]
    snapshots, waiting, counts = found["snapshots"], found["waiting"], found["counts"]
    tidier = found["tidier"]
    newest = "none yet" if not snapshots["seq"] else f"of entry {snapshots['seq']:,}"
    pending, pending_max = waiting["pending_bytes"], waiting["pending_bytes_max"]
    reading, reading_max = waiting["reading_bytes"], waiting["reading_bytes_max"]
    members = {
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
        "log's clock": f"{journal['clock_ahead_s']:+z,.1f} s from the wall clock",
        "snapshot": f"{newest}, {counted(snapshots['entries_since'], 'entry')} since",
        "snapshot fails": snapshots["failure"] or "no",
        "remembered": _remembered(found["remembered"]),
        "last used": found["last_used"]["failure"] or "is written down",
        "tidier": f"{tidier['doing'] or 'nothing to do'}; "
        f"{counted(tidier['waiting_entries'], 'entry')}, {size(tidier['waiting_bytes'])} wait; "
        f"{counted(tidier['objects'], 'object')}, {tidier['garbage']:,} to go",
        "tidier fails": tidier["failure"] or "no",
        "tidier is late": span(tidier["overdue_s"]) if tidier["overdue_s"] else "no",
        "background": _background(found["background"]),
        "compaction": f"{counted(tidier['compacted_topics'], 'topic')}, "
        f"{size(tidier['dirty_bytes'])} of {size(tidier['compacted_bytes'])} not compacted; "
        f"{counted(tidier['records_removed'], 'record')} removed since the start",
        "SQLite": f"{counted(state['lag_entries'], 'entry')} behind",
        "key index": _key_index(found["key_index"]),
        "waiting": f"{size(pending)} of {size(pending_max)} for the bucket, "
        f"{size(reading)} of {size(reading_max)} for readers",
        "readers": f"{waiting['waiting_readers']:,} wait at a log end",
        "connections": _ports(found["ports"], counts["members"]),
        "cost": _cost(found["cost"]),
        "holds": f"{counted(counts['records'], 'record')}, {counted(counts['topics'], 'topic')}, "
        f"{counted(counts['groups'], 'group')}, {counted(counts['api_keys'], 'API key')}",
    }
    return outline(members)


def _role(standby: Json | None) -> str:
    if standby is None:
        return "writer"
    age_s = standby["seen_end_age_s"]
    seen = "not at the end yet" if age_s is None else f"had read everything {span(age_s)} ago"
    lag = f"{counted(standby['lag_entries'], 'entry')}, {span(standby['lag_s'])} behind; {seen}"
    return f"standby, {lag}" + (f"; waits for {standby['waits_for']}" * bool(standby["waits_for"]))


def _remembered(kept: Json) -> str:
    is_full = kept["places"] >= kept["places_max"]
    reach = f"since {moment(kept['oldest_request'])}" if is_full else "of 24 h"
    return (
        f"{counted(kept['requests'], 'request')} with an Idempotency-Key {reach}; "
        f"{counted(kept['producers'], 'producer')}"
    )


def _ports(ports: list[Json], members: int) -> str:
    shown = [
        f"{port['connections']:,} {port['protocol']}"
        + f" ({port['stalled']:,} stalled, see seb connections)" * bool(port["stalled"])
        for port in ports
    ]
    if not shown:
        return "no port of a protocol is open"
    return f"{', '.join(shown)}; {counted(members, 'member')} of groups"


def _background(tasks: list[Json]) -> str:
    raised = [
        f"{task['name']} {counted(task['failures'], 'time')} ({task['failure']})"
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
    records, topics = counted(index["lag_records"], "record"), counted(index["topics"], "topic")
    behind = f"{records} behind on {topics}"
    return f"{behind}; {index['failure']}" if index["failure"] else behind


@click.command
@talks
def cost(client: HttpClient) -> Result:
    """Show what the bucket costs this month, and the forecast. Needs an admin key.

    Computed from counted requests and stored bytes. The appliance does not update its price lists:
    compare them with a bill.
    """
    parts = (_head, _bill, _purposes, _topics)
    return Result(client.ask("GET", "cost"), lambda found: "\n\n".join(p(found) for p in parts))


def _head(found: Json) -> str:
    prices, budget, currency = found["prices"], found["budget"], found["currency"]
    as_of = f", as of {prices['as_of']}: compare them with your bill" if prices["as_of"] else ""
    month = f"{found['month']}: {found['this_month']:,.2f} {currency} so far"
    lines = [
        f"{month}, {found['forecast']:,.2f} {currency} forecast for all of it",
        f"prices: {prices['name']}{as_of}",
        f"counted since {moment(found['counted_since'])}; {size(found['stored_bytes'])} stored",
    ]
    if budget["monthly"] is not None:
        lines.append(f"budget: {budget['monthly']:,.2f} {currency} a month")
    if budget["linger_why"]:
        lines.append(f"linger: {format_duration(budget['linger_ms'])}. {budget['linger_why']}")
    lines.append(found["comparison"])
    if found["failure"]:
        lines.append(found["failure"])
    return "\n".join(printable(line) for line in lines)


def _bill(found: Json) -> str:
    names = ("what", "quantity", "unit", "included", found["currency"], "forecast")
    rows = [
        (
            line["what"],
            _number(line["quantity"]),
            line["unit"],
            _number(line["included"]),
            _money(line["amount"]),
            _money(line["forecast_amount"]),
        )
        for line in found["lines"]
    ]
    return table(names, rows, "nothing is billed")


def _purposes(found: Json) -> str:
    names = ("requests for", "PUT", "LIST", "GET", "HEAD", "DELETE", found["currency"])
    rows = [
        (
            row["purpose"],
            *(row["requests"].get(kind, 0) for kind in names[1:-1]),
            _money(row["amount"]),
        )
        for row in found["purposes"]
    ]
    return table(names, rows, "no requests this month")


def _topics(found: Json) -> str:
    names = ("topic", "entries", "requests", "storage", found["currency"])
    rows = [
        (
            row["topic"] or "(all others)",
            _number(row["entries"]),
            _money(row["requests_amount"]),
            _money(row["storage_amount"]),
            _money(row["amount"]),
        )
        for row in found["topics"]
    ]
    return table(names, rows, "no topic was written to or kept this month")


def _number(value: float) -> Quantity:
    return Quantity(f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.2f}")


def _money(value: float) -> Quantity:
    return Quantity(f"{value:,.2f}")


@click.command
@click.option("--actor", metavar="ID", help="Only what this API key did.")
@click.option("--subject", metavar="NAME", help="Only what was done to this topic, group or key.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="At most N. [100]")
@click.option("--before", type=click.IntRange(1), metavar="NUMBER", help="Only older ones.")
@talks
def audit(
    client: HttpClient,
    actor: str | None,
    subject: str | None,
    most: int | None,
    before: int | None,
) -> Result:
    """Show who did what to topics, groups and API keys, newest first. Needs an admin key.

    An actor of - is the appliance itself, or seb admin on its machine. before and after show what
    changed.
    """
    found: list[Json] = []
    left = most or 100
    while left > 0:
        query = {"actor": actor, "subject": subject, "limit": min(left, PAGE), "before": before}
        page = client.ask("GET", "audit", query=query)
        found += page["audit"]
        left -= len(page["audit"])
        before = page["next_before"]
        if before is None:
            break
    names = ("number", "at", "actor", "from", "action", "subject", "change")
    return Result(
        {"audit": found, "next_before": before},
        lambda _: table(names, map(_action, found), "nothing was done"),
    )


def _action(action: Json) -> tuple[Cell, ...]:
    return (
        action["number"],
        moment(action["at"]),
        action["actor"] or None,
        action["address"] or None,
        action["action"],
        action["subject"],
        _change(action["before"], action["after"]),
    )


def _change(before: Json | None, after: Json | None) -> str | None:
    """The members that differ, as JSON; all of them when there was nothing before or after."""
    if before is None or after is None:
        return json.dumps(before or after, ensure_ascii=False) if before or after else None
    was, will = (
        {name: json.dumps(side.get(name), ensure_ascii=False) for name in {**before, **after}}
        for side in (before, after)
    )
    differing = (name for name in was if was[name] != will[name])
    return ", ".join(f"{name}: {was[name]} → {will[name]}" for name in differing) or None
