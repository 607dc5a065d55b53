"""Patterns agree with matching each of them alone, and nobody can write some that take long."""

from __future__ import annotations

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.topics.names import Patterns, samples_of
from tests.support.patterns import pattern_matches

words = st.sampled_from(["a", "b", "c"])
names = st.lists(words, min_size=1, max_size=6).map(".".join)
patterns = st.lists(words | st.sampled_from(["*", "**"]), min_size=1, max_size=6).map(".".join)


@given(some=st.lists(patterns, max_size=30), asked=st.lists(names, max_size=10))
def test_patterns_match_what_each_of_them_alone_matches(some: list[str], asked: list[str]) -> None:
    together = Patterns(some)
    for name in asked:
        alone = {i for i, pattern in enumerate(some) if pattern_matches(pattern, name)}
        assert together.match(name) == alone
        assert together.cover(name) == bool(alone)


def test_a_hundred_hostile_patterns_cost_microseconds_a_name() -> None:
    hostile = ".".join(["**", "*"] * 25 + ["a"])
    together = Patterns([hostile[:-1] + f"a{i}" for i in range(limits.PATTERNS_PER_FOLLOWER_MAX)])
    long_names = [".".join(["a"] * 60) + f".b{i}" for i in range(1_000)]
    began = time.process_time()
    assert not any(map(together.cover, long_names))
    assert (time.process_time() - began) / len(long_names) < 0.001  # 0.05 ms; 6 ms with a trie


def test_a_grant_covers_the_samples_of_a_pattern_if_it_covers_all_that_the_pattern_matches() -> (
    None
):
    """Of all patterns of up to three words. `-` is a word as any other."""

    def of(words: str, most: int) -> list[str]:
        counts = range(1, most + 1)
        return [".".join(one) for n in counts for one in itertools.product(words.split(), repeat=n)]

    asked, all_names = of("a - * **", 3), of("a - b", 5)
    grants = Patterns(asked)
    matched_by = [grants.match(name) for name in all_names]
    wrong = []
    for number, pattern in enumerate(asked):
        covering = frozenset.intersection(*(matched for matched in matched_by if number in matched))
        if frozenset.intersection(*map(grants.match, samples_of(pattern))) != covering:
            wrong.append(pattern)
    assert wrong == []


def test_grants_cover_the_samples_of_a_pattern_together_unless_names_between_theirs_are_left() -> (
    None
):
    samples = samples_of("a.**")
    assert all(map(Patterns(["a", "a.*.**"]).cover, samples))
    assert not all(map(Patterns(["a", "a.*.*.**"]).cover, samples))
    longest = ".".join(["*"] * (limits.NAME_LENGTH_MAX // 2))
    assert not all(map(Patterns(["*", longest]).cover, samples_of("**")))
