"""The result as a page that needs nothing else: tables, and charts drawn as SVG."""

from __future__ import annotations

from html import escape
from typing import Final

from seb_appliance.bench.charts import latency_chart, throughput_chart
from seb_appliance.bench.report_text import (
    duration,
    generator,
    throughput,
    trouble_words,
    verified_words,
)
from seb_appliance.bench.result import Result, Row

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --faint: #8a8a8a; --rule: #d9d9d9;
  --line0: #0b63b6; --line1: #b6480b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #161616; --faint: #949494;
  --rule: #3a3a3a; --line0: #6fb3f2; --line1: #f2a36f; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0; } h2 { font-size: 1.05rem; margin-top: 2rem; }
p { margin: .3rem 0; } .faint { color: var(--faint); } .wrong { font-weight: bold; color: #c22; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem 1.2rem .15rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; font-weight: normal; }
th { color: var(--faint); } td.number, th.number { text-align: right; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--faint); font-size: 12px; }
svg .grid { stroke: var(--rule); } svg .line0 { stroke: var(--line0); }
svg .line1 { stroke: var(--line1); } svg polyline { fill: none; stroke-width: 2; }
svg text.line0 { fill: var(--line0); stroke: none; }
svg text.line1 { fill: var(--line1); stroke: none; }
"""


def page(result: Result) -> str:
    """A whole HTML document."""
    curves = [(row.what, row.latency) for row in result.rows if row.latency is not None]
    rates = [(row.what, row.over_time) for row in result.rows]
    parts = [
        f"<h1>seb bench {escape(result.workload)}</h1>",
        f"<p>{escape(result.title)}</p>",
        f'<p class="faint">{escape(result.target)} · {escape(result.started)}</p>',
        _verdict(result),
        "<h2>Throughput</h2>",
        _pairs([(row.what, throughput(row)) for row in result.rows]),
    ]
    if curves:
        parts += ["<h2>Latency by percentile</h2>", latency_chart(curves), _latencies(result.rows)]
    if any(points for _, points in rates):
        parts += ["<h2>Records a second over time</h2>", throughput_chart(rates)]
    parts += [
        "<h2>What it took</h2>",
        _pairs(_cost(result)),
        "<h2>Configuration</h2>",
        _pairs([(name, _plain(value)) for name, value in result.configuration.items()]),
        "<h2>Machine</h2>",
        _pairs(_machine(result)),
    ]
    body = "\n".join(parts)
    title = f"seb bench {escape(result.workload)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _verdict(result: Result) -> str:
    kind = "" if result.is_right else ' class="wrong"'
    lines = [f"<p{kind}>verified: {escape(verified_words(result))}</p>"]
    if result.verified is not None:
        lines += [f"<p{kind}>{escape(mistake)}</p>" for mistake in result.verified.mistakes]
    if not result.is_whole:
        lines.append(f"<p>{escape(result.failure or 'Ended early.')}</p>")
    return "\n".join(lines)


def _latencies(rows: list[Row]) -> str:
    shown = [(row.what, row.latency) for row in rows if row.latency is not None]
    percentiles = [p for p, _ in shown[0][1].at]
    head = "".join(
        f'<th class="number">{"max" if p == 100 else f"p{p:g}"}</th>' for p in percentiles
    )
    lines = [
        f"<tr><td>{escape(what)}</td>"
        + "".join(f'<td class="number">{duration(value)}</td>' for _, value in curve.at)
        + f'<td class="number">{curve.samples:,}</td></tr>'
        for what, curve in shown
    ]
    return f'<table><tr><th></th>{head}<th class="number">samples</th></tr>{"".join(lines)}</table>'


def _cost(result: Result) -> list[tuple[str, str]]:
    pairs = [("load generator", generator(result))]
    if result.appliance is not None:
        used = result.appliance
        bucket = " with its bucket" if used.holds_bucket else ""
        pairs.append(("appliance, peak memory", f"{used.peak_bytes / 2**20:,.0f} MiB{bucket}"))
        pairs.append(("appliance, processor", f"{used.cpu_s:.2f} s"))
        if used.cpu_us_per_request is not None:
            pairs.append(("appliance, a request", f"{used.cpu_us_per_request:,.1f} µs"))
    if result.fsync is not None:
        pairs.append(("fsync p99", duration(result.fsync.p99_us)))
        pairs.append(("10 ms + 2 of these", duration(result.fsync.allowed_us)))
    if result.against is not None:
        ratios = ", ".join(f"{ratio:.2f}" for ratio in result.against.ratios)
        pairs.append((f"of a {result.against.server} server", f"{result.against.median:.2f}"))
        pairs.append(("its slices", ratios))
    if troubles := trouble_words(result):
        pairs.append(("troubles", troubles))
    return pairs


def _machine(result: Result) -> list[tuple[str, str]]:
    machine = result.machine
    memory = "" if machine.memory_bytes is None else f"{machine.memory_bytes / 2**30:.1f} GiB"
    return [
        ("processor", f"{machine.processor}, {machine.cores} cores"),
        ("memory", memory),
        ("system", machine.system),
        ("load generator", f"{machine.python}{', uvloop' if machine.uvloop else ''}"),
    ]


def _pairs(pairs: list[tuple[str, str]]) -> str:
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in pairs)
    return f"<table>{''.join(rows)}</table>"


def _plain(value: str | float | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,}"
