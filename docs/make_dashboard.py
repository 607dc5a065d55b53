"""Writes docs/dashboard.json: a Grafana dashboard of the metrics in docs/METRICS.md."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).with_name("dashboard.json")
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3


@dataclass(frozen=True)
class Panel:
    """A chart. `lines`: the query and the name of each line."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


def _rate(metric: str, name: str) -> tuple[str, str]:
    return f"rate({metric}[$__rate_interval])", name


def _quantile(share: float, metric: str, name: str, match: str = "") -> tuple[str, str]:
    rate = f"rate({metric}_bucket{match}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by (le) ({rate}))", name


FAILING: Final = 'rate(seb_store_requests_total{outcome!="ok"}[$__rate_interval])'
PUT: Final = '{kind="PUT"}'
ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Records": (
        Panel(
            "Records per second",
            "ops",
            (_rate("seb_records_total", "in"), _rate("seb_read_records_total", "out")),
        ),
        Panel(
            "Bytes per second into the journal",
            "Bps",
            (_rate("seb_entry_bytes_total", "entries"),),
        ),
        Panel(
            "Requests per second",
            "reqps",
            (
                _rate("seb_fast_lane_requests_total", "fast lane"),
                _rate("seb_application_requests_total", "application"),
            ),
        ),
        Panel(
            "Waiting bytes",
            "bytes",
            (
                ("seb_pending_bytes", "for the bucket"),
                ("seb_reading_bytes", "for readers"),
                ("seb_following_bytes", "for live streams"),
                ("seb_window_bytes", "open window"),
            ),
        ),
        Panel(
            "Lag of groups",
            "short",
            (("topk(10, seb_group_lag_records)", "{{group}} on {{topic}}"),),
        ),
        Panel(
            "Readers",
            "short",
            (("seb_waiting_readers", "waiting"), ("seb_followers", "live streams")),
        ),
    ),
    "Bucket": (
        Panel(
            "Requests per second",
            "reqps",
            (
                (
                    "sum by (kind, purpose) (rate(seb_store_requests_total[$__rate_interval]))",
                    "{{kind}} for {{purpose}}",
                ),
                _rate("seb_tidier_requests_total", "{{kind}} by the tidier's process"),
            ),
        ),
        Panel(
            "Latency of PUTs",
            "s",
            (
                _quantile(0.5, "seb_store_request_seconds", "median", PUT),
                _quantile(0.99, "seb_store_request_seconds", "p99", PUT),
            ),
        ),
        Panel(
            "Failing requests per second",
            "reqps",
            ((f"sum by (kind, outcome) ({FAILING})", "{{kind}} {{outcome}}"),),
        ),
        Panel(
            "Sections read",
            "ops",
            (_rate("seb_section_reads_total", "from {{source}}"),),
        ),
        Panel(
            "Stored",
            "bytes",
            (("seb_stored_bytes", "in the bucket"), ("seb_cache_bytes", "cache on disk")),
        ),
        Panel(
            "Waiting for the tidier",
            "short",
            (("seb_tidier_waiting_entries", "entries"), ("seb_garbage_objects", "garbage")),
        ),
    ),
    "Cost": (
        Panel(
            "This month",
            "short",
            (
                ("seb_cost_month", "so far, {{currency}}"),
                ("seb_cost_forecast", "forecast"),
                ("seb_cost_budget > 0", "budget"),
            ),
        ),
        Panel("By operation", "short", (("seb_cost_month_by_operation", "{{what}}"),)),
        Panel("Window", "s", (("seb_linger_seconds", "linger"),)),
    ),
    "Machine": (
        Panel(
            "Delay of the event loop",
            "s",
            (
                ("seb_loop_delay_worst_seconds", "worst of the last minute"),
                _quantile(0.99, "seb_loop_delay_seconds", "p99"),
            ),
        ),
        Panel(
            "Behind the journal",
            "short",
            (
                ("seb_state_lag_entries", "SQLite, entries"),
                ("seb_key_index_lag_records", "key index, records"),
            ),
        ),
        Panel(
            "Refused, disconnected, unknown per second",
            "ops",
            (
                _rate("seb_pending_refusals_total", "writes refused"),
                _rate("seb_reading_refusals_total", "reads refused"),
                _rate("seb_followers_cut_total", "live streams ended"),
                _rate("seb_deadlines_total", "outcome unknown"),
            ),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """The dashboard for import into Grafana: a row of charts for each part of `ROWS`."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, charts in ROWS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
                "panels": [],
            }
        )
        top += 1
        for number, chart in enumerate(charts):
            at = {
                "x": number % _COLUMNS * _WIDTH,
                "y": top + number // _COLUMNS * _HEIGHT,
                "w": _WIDTH,
                "h": _HEIGHT,
            }
            panels.append(_chart(chart, len(panels) + 1, at))
        top += -(-len(charts) // _COLUMNS) * _HEIGHT
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "title": "Seb Appliance",
        "uid": "seb-appliance",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def _chart(chart: Panel, number: int, at: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": chart.title,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": chart.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "expr": asked, "legendFormat": name}
            for i, (asked, name) in enumerate(chart.lines)
        ],
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
