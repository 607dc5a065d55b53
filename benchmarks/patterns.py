"""How many names a second `Patterns` matches against many patterns, beside matching each pattern
alone, with the memory of both; and what authorize() takes. In processor time, so that other work
on the machine does not count.

    python benchmarks/patterns.py
"""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from seb_appliance.broker.access.grants import Authorizer
from seb_appliance.broker.topics.names import Patterns
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.formats.api_key_members import Grant
from tests.support.patterns import pattern_matches

PATTERNS = 1_000
WORDS_IN_PATTERN = 5
GRANTS = 100
TOPICS = 10_000
_WORDS = [f"word{i}" for i in range(20)]


def random_name(chance: random.Random) -> str:
    return ".".join(chance.choice(_WORDS) for _ in range(WORDS_IN_PATTERN))


def random_pattern(chance: random.Random) -> str:
    """Five words, each with one chance in five of being * and one in ten of being **."""
    return ".".join(
        chance.choices(("*", "**", chance.choice(_WORDS)), (20, 10, 70))[0]
        for _ in range(WORDS_IN_PATTERN)
    )


def per_second(act: Callable[[str], object], names: Iterable[str]) -> float:
    listed = list(names)
    began = time.process_time()
    for name in listed:
        act(name)
    return len(listed) / (time.process_time() - began)


def match_patterns(chance: random.Random) -> None:
    tracemalloc.start()
    patterns = list({random_pattern(chance) for _ in range(2 * PATTERNS)})[:PATTERNS]
    naive_bytes = tracemalloc.get_traced_memory()[0]
    together = Patterns(patterns)
    together_bytes = tracemalloc.get_traced_memory()[0] - naive_bytes
    names = list({random_name(chance) for _ in range(TOPICS)})
    tracemalloc.stop()

    def alone(name: str) -> set[int]:
        return {i for i, pattern in enumerate(patterns) if pattern_matches(pattern, name)}

    assert all(together.match(name) == alone(name) for name in names[:200])
    print(f"{len(patterns):,} patterns of {WORDS_IN_PATTERN} words, {len(names):,} names")
    _row("each pattern alone", per_second(alone, names[:500]), naive_bytes)
    _row("all together", per_second(together.match, names), together_bytes)


def authorize(chance: random.Random) -> None:
    grants = tuple(
        Grant(operation=chance.choice(("produce", "consume", "manage")), topics=pattern)
        for pattern in (random_pattern(chance) for _ in range(GRANTS - 1))
    )
    key = ApiKeyView("benchmark", "", (*grants, Grant(operation="produce", topics="**")), 0)
    topics = list({random_name(chance) for _ in range(TOPICS)})
    authorizer = Authorizer()

    def produce(topic: str) -> None:
        authorizer.authorize(key, "produce", topic)

    tracemalloc.start()
    authorizer.may(key, "produce", topics[0])
    compiled_bytes = tracemalloc.get_traced_memory()[0]
    for topic in topics:
        produce(topic)
    decided_bytes = tracemalloc.get_traced_memory()[0] - compiled_bytes
    tracemalloc.stop()
    print(f"authorize(): an API key with {GRANTS} grants, {len(topics):,} topics")
    _row("topics not seen before", _first_time(key, topics), compiled_bytes)
    _row("topics seen before", per_second(produce, topics * 20), compiled_bytes + decided_bytes)


def _first_time(key: ApiKeyView, topics: list[str]) -> float:
    authorizer = Authorizer()
    return per_second(lambda topic: authorizer.may(key, "produce", topic), topics)


def _row(what: str, rate: float, size_bytes: int) -> None:
    print(f"  {what:30} {rate:12,.0f} /s {size_bytes / 1024:10,.0f} KiB")


if __name__ == "__main__":
    chance = random.Random(7)
    match_patterns(chance)
    authorize(chance)
