"""The order of tests that several processes share: what takes long first.

pytest-xdist cuts the collection into as many runs as there are processes, and who has done with
its own takes from the ends of the others'. In the order of the folders a test of a minute and a
half may so be the last one, beside a process that has nothing to do; and a folder that is taken
from sets up what its tests share (a Spark session) in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Final

FOLDERS_S: Final = {
    "tests/crash/": 700,
    "tests/model/": 400,
    "tests/spark/": 350,
    "tests/streams/": 120,
    "tests/simulation/": 80,
}
"""Folders of long tests, and the seconds that their slow ones took on two cores, about."""


def deal(tests: Sequence[str], hands: int) -> list[int]:
    """`tests` are node ids; their indices in the order to run them in by `hands` processes. Each
    of FOLDERS_S is dealt whole, to who has least; everything else follows, as it came."""
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
