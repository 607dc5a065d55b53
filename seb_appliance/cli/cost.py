"""`seb cost`: what the bucket costs this month."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.output import Quantity, moment, printable, say, say_json, size, table
from seb_appliance.cli.reaching import talks
from seb_appliance.quantities import format_duration

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient

Json = dict[str, Any]


@click.command
@talks
def cost(client: HttpClient, as_json: bool) -> None:
    """Show what the bucket costs this month, and the forecast. Needs an admin key.

    Counted from real requests and stored bytes, at prices that nobody fetches: compare them with a
    bill.
    """
    found = client.request("GET", path_of("cost")).json()
    if as_json:
        say_json(found)
        return
    say("\n\n".join([_head(found), _bill(found), _purposes(found), _topics(found)]))


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
