"""The order of tests that several processes share: long tests first.

pytest-xdist cuts the collection into as many runs as there are processes. A process that has
finished its own run takes tests from the ends of the others. In the order of the folders, a test
of a minute and a half could then be the last one, beside an idle process; and a folder whose tests
run in two processes sets up what its tests share (a Spark session) in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Final

FOLDERS_S: Final = {
    "tests/spark/": 350,
    "tests/crash/": 300,
    "tests/model/": 150,
    "tests/simulation/": 120,
}
"""Folders of long tests, and about how many seconds their slow tests take on two cores."""


def deal(tests: Sequence[str], hands: int) -> list[int]:
    """The indices of `tests` (node ids) in the order in which `hands` processes run them. Each of
    FOLDERS_S goes whole to the process that has least; all other tests follow in their order."""
    dealt: list[list[int]] = [[] for _ in range(hands)]
    loads_s = [0] * hands
    for folder, seconds in sorted(FOLDERS_S.items(), key=lambda item: -item[1]):
        hand = loads_s.index(min(loads_s))
        loads_s[hand] += seconds
        dealt[hand] += [i for i, test in enumerate(tests) if test.startswith(folder)]
    rest = iter(i for i, test in enumerate(tests) if not test.startswith(tuple(FOLDERS_S)))
    begin = 0
    for number, hand in enumerate(dealt):
        end = begin + (len(tests) - begin) // (hands - number)  # as pytest-xdist cuts
        hand += islice(rest, max(0, end - begin - len(hand)))
        begin = end
    return [*chain.from_iterable(dealt), *rest]
