"""The result for people, in a few lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from seb_appliance.bench.meters import Curve
from seb_appliance.bench.result import Result, Row
from seb_appliance.quantities import counted

BUSY_GENERATOR: Final = 0.95  # of a core: above, the figures may be the generator's own


def report(result: Result) -> str:
    lines = [f"seb bench {result.workload} ({result.target}): {result.title}"]
    for name, text in _lines(result):
        lines.append(f"  {name:<13} {text}")
    return "\n".join(lines)


def _lines(result: Result) -> Iterator[tuple[str, str]]:
    for row in result.rows:
        yield row.what, throughput(row)
        if row.latency is not None:
            yield from zip(("latency", "", ""), latency_lines(row.latency), strict=False)
    if result.appliance is not None:
        used = result.appliance
        bucket = " with its bucket" if used.holds_bucket else ""
        peak = f"{used.peak_bytes / 2**20:,.0f} MiB{bucket}"
        text = f"peak memory {peak}, {used.cpu_s:.2f} s of processor"
        if used.cpu_us_per_request is not None:
            text += f", {used.cpu_us_per_request:,.1f} µs a request"
        yield "appliance", text
    yield "generator", generator(result)
    if result.fsync is not None:
        verdict = {True: "held", False: "not held", None: ""}[result.fsync.held]
        yield (
            "fsync",
            f"p99 {duration(result.fsync.p99_us)} of {result.fsync.samples:,}; 10 ms + 2 of these: "
            f"{duration(result.fsync.allowed_us)} {verdict}".rstrip(),
        )
    if result.against is not None:
        ratios = result.against.ratios
        spread = f"({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} pairs of slices)"
        yield "ratio", f"{result.against.median:.2f} of a {result.against.server} server {spread}"
    if troubles := trouble_words(result):
        yield "troubles", troubles
    yield "verified", verified_words(result)
    if result.verified is not None:
        for mistake in result.verified.mistakes:
            yield "", mistake
    if not result.is_whole:
        yield "note", result.failure or "ended early: what was measured until then"


def throughput(row: Row) -> str:
    return (
        f"{row.requests_per_s:,.0f} requests/s, {row.records_per_s:,.0f} records/s, "
        f"{row.bytes_per_s / 2**20:,.1f} MiB/s"
    )


def latency_lines(curve: Curve) -> list[str]:
    shown = [f"p{p:g} {duration(value)}" for p, value in curve.at if p < 100]
    shown.append(f"max {duration(curve.at[-1][1])}")
    return ["  ".join(shown[:5]), "  ".join(shown[5:])]


def duration(microseconds: int) -> str:
    """Three digits or so, in the unit that a person would take."""
    if microseconds < 1_000:
        return f"{microseconds} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1_000:.3g} ms" if microseconds < 999_500 else "1 s"
    return f"{microseconds / 1_000_000:.3g} s"


def generator(result: Result) -> str:
    text = f"{result.generator_cpu:.2f} of a core"
    if result.generator_cpu > BUSY_GENERATOR:
        text += " - it was busy: the figures may be its own"
    return text


def trouble_words(result: Result) -> str:
    told = [f"{count:,} refused ({code})" for code, count in sorted(result.refused.items())]
    if result.lost:
        told.append(f"{result.lost:,} without an answer")
    if result.late:
        told.append(f"{result.late:,} sent late (no connection was free)")
    if result.generator_late:
        told.append(f"{result.generator_late:,} sent late (the load generator had no processor)")
    if result.not_sent:
        told.append(f"{result.not_sent:,} were due and never sent")
    return ", ".join(told)


def verified_words(result: Result) -> str:
    if result.verified is None:
        return "no"
    checked = counted(result.verified.records, "record")
    if result.verified.wrong:
        return f"{checked}: {counted(result.verified.wrong, 'MISTAKE')}"
    return f"{checked}: count, order, offsets and content are right"


# Line charts as SVG: latency over percentiles, records a second over time.


WIDTH: Final = 900
HEIGHT: Final = 300
LEFT: Final = 70
RIGHT: Final = 20
TOP: Final = 24
BOTTOM: Final = 36

Points = Sequence[tuple[float, float]]


def latency_chart(curves: Sequence[tuple[str, Curve]]) -> str:
    """Latency, logarithmic, over the number of nines: each step to the right is ten times rarer.
    A curve ends where its samples do: one in a hundred thousand needs a hundred thousand."""
    last = max(_nines_of(curve.samples) for _, curve in curves)
    lines = [(what, _shown(curve)) for what, curve in curves]
    values = [y for _, points in lines for _, y in points]
    low = math.floor(min(values))
    high = max(low + 1, math.ceil(max(values)))
    ticks = [(50.0, "50"), (90.0, "90"), (99.0, "99"), (99.9, "99.9"), (99.99, "99.99")]
    ticks.append((99.999, "99.999"))
    return _chart(
        lines,
        x_range=(_nines(50.0), max(last, 1.0)),
        y_range=(low, high),
        x_ticks=[(_nines(p), text) for p, text in ticks if _nines(p) <= max(last, 1.0) + 1e-9],
        y_ticks=_decades(low, high),
    )


def throughput_chart(rates: Sequence[tuple[str, Points]]) -> str:
    """Records a second, from zero."""
    shown = [(what, points) for what, points in rates if points]
    longest = max(points[-1][0] for _, points in shown)
    highest = _round_up(max(1.0, *(rate for _, points in shown for _, rate in points)))
    return _chart(
        shown,
        x_range=(0.0, longest),
        y_range=(0.0, highest),
        x_ticks=[(longest * i / 5, f"{longest * i / 5:.3g} s") for i in range(6)],
        y_ticks=[(highest * i / 4, f"{highest * i / 4:,.0f}") for i in range(5)],
    )


def _shown(curve: Curve) -> list[tuple[float, float]]:
    """What the samples can tell of a curve; the largest one ends it."""
    end = _nines_of(curve.samples)
    points = [(_nines(p), v) for p, v in curve.at if p < 100 and _nines(p) < end]
    points.append((end, curve.at[-1][1]))
    return [(x, math.log10(max(1, v))) for x, v in points]


def _decades(low: int, high: int) -> list[tuple[float, str]]:
    """Ticks of a logarithmic axis of µs; between the decades, too, when there are few."""
    steps = (1, 2, 5) if high - low <= 2 else (1,)
    values = [m * 10**y for y in range(low, high) for m in steps] + [10**high]
    return [(math.log10(value), duration(value)) for value in values]


def _nines(percentile: float) -> float:
    return -math.log10(1 - percentile / 100)


def _nines_of(samples: int) -> float:
    """The largest percentile, in nines, that this number of samples can show."""
    return min(5.0, math.log10(max(2, samples)))


def _round_up(value: float) -> float:
    step: float = 10.0 ** math.floor(math.log10(value))
    return next(m * step for m in (1, 2, 2.5, 4, 5, 8, 10) if m * step >= value)


def _chart(
    lines: Sequence[tuple[str, Points]],
    *,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
) -> str:
    def x_of(x: float) -> float:
        share = (x - x_range[0]) / ((x_range[1] - x_range[0]) or 1)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y_of(y: float) -> float:
        share = (y - y_range[0]) / ((y_range[1] - y_range[0]) or 1)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for y, text in y_ticks:
        at = y_of(y)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" ')
        parts.append(f'y2="{at:.1f}"/><text x="{LEFT - 8}" y="{at + 4:.1f}" ')
        parts.append(f'text-anchor="end">{escape(text)}</text>')
    for x, text in x_ticks:
        at = x_of(x)
        parts.append(f'<line class="grid" y1="{TOP}" y2="{HEIGHT - BOTTOM}" x1="{at:.1f}" ')
        parts.append(f'x2="{at:.1f}"/><text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" ')
        parts.append(f'text-anchor="middle">{escape(text)}</text>')
    for number, (what, points) in enumerate(lines):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        kind = f"line{number % 2}"
        parts.append(f'<polyline class="{kind}" points="{path}"/>')
        parts.append(f'<text class="{kind}" x="{LEFT + number * 130}" y="14">{escape(what)}</text>')
    parts.append("</svg>")
    return "".join(parts)


# The result as a page that needs nothing else: tables, and charts drawn as SVG.


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
