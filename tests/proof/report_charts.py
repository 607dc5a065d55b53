"""The charts of the report, as SVG: bars by kind, and memory over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _ROW, _LEFT, _RIGHT = 860, 22, 260, 90
_HEIGHT, _TOP, _BOTTOM = 220, 12, 30


def bars(amounts: Mapping[str, float], unit: str = "") -> str:
    """One horizontal bar for each, the number at its end."""
    largest = max(amounts.values(), default=0) or 1
    height = _ROW * len(amounts) + 8
    rows = []
    for n, (name, amount) in enumerate(amounts.items()):
        y = _ROW * n + 4
        length = max(1.0, (_WIDTH - _LEFT - _RIGHT) * amount / largest)
        rows.append(
            f'<text x="{_LEFT - 10}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_LEFT}" y="{y + 3}" width="{length:.1f}" height="{_ROW - 8}" rx="2"/>'
            f'<text x="{_LEFT + length + 8:.1f}" y="{y + 14}">{amount:,.6g}{unit}</text>'
        )
    told = ", ".join(f"{name} {amount:g}{unit}" for name, amount in amounts.items())
    return _svg(height, told, "".join(rows))


def over_time(points: Sequence[Sequence[float]], what: str) -> str:
    """A line from the first to the last second; the scale begins at zero."""
    last = max(x for x, _ in points) or 1.0
    high = 1.1 * max(y for _, y in points)
    left, wide, tall = 60, _WIDTH - 60 - 20, _HEIGHT - _TOP - _BOTTOM
    grid = []
    for n in range(5):
        y = _TOP + tall * (1 - n / 4)
        grid.append(
            f'<line class="grid" x1="{left}" x2="{_WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{high * n / 4:.0f}</text>'
            f'<text x="{left + wide * n / 4:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">'
            f"{last * n / 4:.0f} s</text>"
        )
    line = " ".join(
        f"{left + wide * x / last:.1f},{_TOP + tall * (1 - y / high):.1f}" for x, y in points
    )
    told = f"{what}: from {points[0][1]:.0f} to {points[-1][1]:.0f} in {last:.0f} s"
    return _svg(_HEIGHT, told, "".join(grid) + f'<polyline points="{line}"/>')


def _svg(height: float, told: str, inside: str) -> str:
    return (
        '<div class="scroll" role="region" aria-label="Chart" tabindex="0">'
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(told)}">'
        f"{inside}</svg></div>"
    )
