"""Line charts as SVG: latency over percentiles, records a second over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from seb_appliance.bench.latencies import Curve
from seb_appliance.bench.report_text import duration

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
    """How far so many samples reach."""
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
