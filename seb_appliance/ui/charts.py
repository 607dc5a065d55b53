"""Charts of samples: what `charts.js` draws, and the same as a table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from seb_appliance import limits
from seb_appliance.errors import BadRequestError
from seb_appliance.ui.history import Sample, merged
from seb_appliance.ui.page_context import Visit
from seb_appliance.ui.units import count, rate, size, size_rate, span

Unit = Literal["count", "rate", "size", "size_rate", "span"]
_WORDS: Final[dict[Unit, Callable[[float | None], str]]] = {
    "count": count,
    "rate": rate,
    "size": size,
    "size_rate": size_rate,
    "span": span,
}
_SECOND_US: Final = 1_000_000
_ROWS: Final = 12  # of the table


@dataclass(frozen=True, slots=True)
class Chart:
    """`lines`: a value of a sample, by name; the name is "" if there is only one."""

    title: str
    unit: Unit
    lines: Mapping[str, Callable[[Sample], float | None]]


@dataclass(frozen=True, slots=True)
class Span:
    """What a chart shows, and the step of its points, in seconds."""

    length_s: int
    step_s: int


SPANS: Final = {
    "1h": Span(3_600, limits.SAMPLE_EVERY_S),
    "24h": Span(86_400, 180),
    "7d": Span(7 * 86_400, 1_800),
    "30d": Span(30 * 86_400, 7_200),
}
_RECORDS_IN: Final = Chart("Records in", "rate", {"": lambda s: s.records_in / s.seconds})
_REQUESTS: Final = Chart(
    "Requests to the bucket", "rate", {"": lambda s: s.bucket_requests / s.seconds}
)
_STORED: Final = Chart("Stored", "size", {"": lambda s: s.size_bytes})
CHARTS: Final = {
    "overview": (
        _RECORDS_IN,
        Chart("Records out", "rate", {"": lambda s: s.records_out / s.seconds}),
        Chart("Bytes in", "size_rate", {"": lambda s: s.bytes_in / s.seconds}),
        Chart("PUT latency", "span", {"p50": lambda s: s.put_p50_s, "p99": lambda s: s.put_p99_s}),
        _REQUESTS,
        _STORED,
    ),
    "storage": (
        _STORED,
        _REQUESTS,
        Chart(
            "Sections read",
            "rate",
            {
                "from memory or cache": lambda s: s.sections_at_hand / s.seconds,
                "from the bucket": lambda s: s.sections_fetched / s.seconds,
            },
        ),
    ),
}


class LineDrawn(msgspec.Struct):
    """None: there is no value, and the line has a gap."""

    name: str
    values: Sequence[float | None]


class ChartDrawn(msgspec.Struct):
    unit: Unit
    lines: list[LineDrawn]


class Drawing(msgspec.Struct):
    """Charts with the same points in time: the first one, and the step to the next, in seconds
    since the epoch."""

    first_s: int
    step_s: int
    charts: list[ChartDrawn]


async def drawing(visit: Visit, charts: Sequence[Chart], span: Span) -> Drawing:
    columns = await _columns(visit, span.length_s, span.step_s)
    first_s = visit.now_us // _SECOND_US - span.length_s
    return Drawing(
        first_s - first_s % span.step_s,
        span.step_s,
        [
            ChartDrawn(
                chart.unit,
                [LineDrawn(name, _values(columns, of)) for name, of in chart.lines.items()],
            )
            for chart in charts
        ],
    )


def drawing_of_lags(
    lags: Mapping[str, Sequence[tuple[int, float]]], now_us: int, span: Span
) -> Drawing:
    """One chart. `lags`: times in µs and lags in records, by the name of the line."""
    first = now_us // _SECOND_US // span.step_s - span.length_s // span.step_s
    lines = []
    for name, points in lags.items():
        found = {at_us // _SECOND_US // span.step_s - first: lag for at_us, lag in points}
        columns = range(span.length_s // span.step_s + 1)
        lines.append(LineDrawn(name, [found.get(column) for column in columns]))
    return Drawing(first * span.step_s, span.step_s, [ChartDrawn("count", lines)])


def _values(
    columns: Sequence[Sample | None], of: Callable[[Sample], float | None]
) -> list[float | None]:
    found = [None if sample is None else of(sample) for sample in columns]
    return [None if value is None else round(value, 4) for value in found]


async def _columns(visit: Visit, length_s: int, step_s: int) -> list[Sample | None]:
    """One sample for each step, the oldest first; None where there are none."""
    now_us, step_us = visit.now_us, step_s * _SECOND_US
    from_us = now_us - length_s * _SECOND_US

    def columns() -> list[Sample | None]:
        first = from_us // step_us
        groups: list[list[Sample]] = [[] for _ in range(now_us // step_us - first + 1)]
        for sample in visit.options.history.between(from_us, now_us):
            groups[sample.at_us // step_us - first].append(sample)
        return [merged(group) if group else None for group in groups]

    return await asyncio.to_thread(columns)  # a day takes longer than the loop may be held


def chosen_span(visit: Visit) -> tuple[str, Span]:
    """By the query. Raises BadRequestError."""
    chosen = visit.form.text("span", "1h")
    if chosen not in SPANS:
        raise BadRequestError(f"The span is one of {', '.join(SPANS)}.")
    return chosen, SPANS[chosen]


async def shown(visit: Visit, kind: str) -> dict[str, Any]:
    """What `partials/charts.html` shows. Raises BadRequestError."""
    chosen, span = chosen_span(visit)
    charts, step_s = CHARTS[kind], span.length_s // _ROWS
    lines = [
        (f"{chart.title} {name}".strip(), _WORDS[chart.unit], of)
        for chart in charts
        for name, of in chart.lines.items()
    ]
    rows = [
        (sample.at_us, [words(of(sample)) for _, words, of in lines])
        for sample in await _columns(visit, span.length_s, step_s)
        if sample is not None
    ]
    return {
        "drawn": f"/ui/charts/{kind}?span={chosen}",
        "titles": [chart.title for chart in charts],
        "names": [name for name, _, _ in lines],
        "rows": rows[::-1],
        "spans": list(SPANS),
        "chosen": chosen,
        "step_s": step_s,
    }
