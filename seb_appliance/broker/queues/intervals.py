"""A set of whole numbers as ranges: acknowledged offsets, of which most are neighbours."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Intervals:
    """Ranges begin ≤ n < end that neither overlap nor touch, ascending. A range takes 16 bytes."""

    __slots__ = ("_begins", "_ends", "count")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._begins = array("q")
        self._ends = array("q")
        self.count = 0  # of numbers
        for begin, end in ranges:
            self.add(begin, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._begins, self._ends, strict=True)

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._begins)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __contains__(self, number: int) -> bool:
        after = bisect_right(self._begins, number)
        return after > 0 and number < self._ends[after - 1]

    def copy(self) -> Intervals:
        copied = Intervals()
        copied._begins, copied._ends = self._begins[:], self._ends[:]
        copied.count = self.count
        return copied

    def add(self, begin: int, end: int) -> int:
        """Add begin ≤ n < end; how many of them are new."""
        if begin >= end:
            return 0
        first = bisect_left(self._ends, begin)  # the first range that touches it, if any
        behind = bisect_right(self._begins, end)
        known = 0
        if first < behind:
            starts, stops = self._begins[first:behind], self._ends[first:behind]
            known = sum(stops) - sum(starts)
            begin, end = min(begin, starts[0]), max(end, stops[-1])
        if behind == first + 1:  # the usual case: a range grows
            self._begins[first], self._ends[first] = begin, end
        else:
            self._begins[first:behind] = array("q", [begin])
            self._ends[first:behind] = array("q", [end])
        grown = end - begin - known
        self.count += grown
        return grown

    def count_from(self, at: int) -> int:
        """How many of the numbers are `at` or more; few ranges are below in an offset log."""
        after = bisect_left(self._begins, at)
        below = zip(self._begins[:after], self._ends[:after], strict=True)
        return self.count - sum(min(end, at) - begin for begin, end in below)

    def gap(self, at: int, end: int) -> tuple[int, int] | None:
        """The first range of numbers from `at` up to `end` that are not in the set."""
        after = bisect_right(self._begins, at)
        if after and at < self._ends[after - 1]:
            at = self._ends[after - 1]
        if at >= end:
            return None
        return at, min(end, self._begins[after]) if after < len(self._begins) else end

    def gaps(self, at: int, end: int) -> Iterator[tuple[int, int]]:
        """All of them."""
        while (found := self.gap(at, end)) is not None:
            yield found
            at = found[1]
