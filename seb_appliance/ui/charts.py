"""Small charts as SVG, drawn on the server: lines of numbers over time.

Only shapes and classes: colours come from the stylesheet, so that they follow the theme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from seb_appliance import limits
from seb_appliance.ui.history import Sample
from seb_appliance.ui.units import count

WIDTH, HEIGHT = 300, 60
_COLUMNS: Final = 150
# Two samples further apart than this are not joined: in between the appliance was away.
_GAP_US: Final = 3 * limits.SAMPLE_EVERY_S * 1_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """`paths`: what SVG's `polyline` takes, one for each stretch without a gap."""

    name: str
    paths: list[str]
    latest: str


@dataclass(frozen=True, slots=True)
class Chart:
    """`most`: what the upper edge means, in words. `label` says the chart for those who hear it."""

    title: str
    lines: list[Line]
    most: str
    label: str


Series = tuple[str, Callable[[Sample], float | None]]


def chart(
    title: str,
    samples: Sequence[Sample],
    series: Sequence[Series],
    words: Callable[[float | None], str],
    *,
    from_us: int,
    until_us: int,
) -> Chart:
    """`series`: names and what each takes of a sample; `words` writes one of those numbers."""
    drawn = [(name, _points(samples, of, from_us, until_us)) for name, of in series]
    most = max((value for _, points in drawn for _, value in points), default=0.0)
    lines = [
        Line(
            name, _paths(points, most, from_us, until_us), words(points[-1][1] if points else None)
        )
        for name, points in drawn
    ]
    heard = ", ".join(f"{line.name} {line.latest}".strip() for line in lines)
    return Chart(title, lines, words(most), f"{title}: now {heard}; at most {words(most)}")


def trend(words: str, points: Sequence[tuple[int, float]], *, from_us: int, until_us: int) -> Chart:
    """One line of times and values that are at hand. `words`: what it shows."""
    shown = [point for point in points if point[0] >= from_us]
    most = max((value for _, value in shown), default=0.0)
    now = count(shown[-1][1] if shown else None)
    line = Line("", _paths(shown, most, from_us, until_us), now)
    return Chart(words, [line], count(most), f"{words}: now {now}, at most {count(most)}")


def _points(
    samples: Sequence[Sample],
    of: Callable[[Sample], float | None],
    from_us: int,
    until_us: int,
) -> list[tuple[int, float]]:
    """Time and value; as many samples as fall into one column become one, the largest."""
    width_us = max(1, (until_us - from_us) // _COLUMNS)
    columns: dict[int, tuple[int, float]] = {}
    for sample in samples:
        value = of(sample)
        if value is not None:
            column = (sample.at_us - from_us) // width_us
            if column not in columns or value >= columns[column][1]:
                columns[column] = (sample.at_us, value)
    return list(columns.values())


def _paths(
    points: Sequence[tuple[int, float]], most: float, from_us: int, until_us: int
) -> list[str]:
    stretches: list[list[tuple[int, float]]] = [[]] if points else []
    gap_us = max(_GAP_US, 2 * (until_us - from_us) // _COLUMNS)
    for before, point in pairwise([(0, 0.0), *points]):
        if stretches[-1] and point[0] - before[0] > gap_us:
            stretches.append([])
        stretches[-1].append(point)
    return [
        " ".join(
            f"{(at_us - from_us) * WIDTH / (until_us - from_us):.1f},"
            f"{HEIGHT - 2 - (value / most if most else 0) * (HEIGHT - 4):.1f}"
            for at_us, value in stretch
        )
        for stretch in stretches
    ]
