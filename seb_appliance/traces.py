"""Spans of what was done, for whoever collects traces. Made when it is over: what is not traced
costs nothing, and nothing waits for a collector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Span:
    """Times in µs since 1970. `failure`: the code of the error that it ended with."""

    name: str
    began_us: int
    ended_us: int
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    parts: tuple[Span, ...] = ()
    failure: str = ""


class Traces(Protocol):
    def now_us(self) -> int:
        """The clock of the spans."""

    def add(self, span: Span, parent: str = "") -> None:
        """Take a span and its parts. `parent`: a traceparent, whose sender decides whether the
        trace is recorded; "" begins a trace. Never waits: what cannot be sent soon is dropped."""
