"""The trie agrees with matching each pattern alone, and forgets what is taken away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.broker.patterns import CACHED_NAMES_MAX, Patterns, PatternTrie
from tests.support.patterns import pattern_matches

words = st.sampled_from(["a", "b", "c"])
names = st.lists(words, min_size=1, max_size=6).map(".".join)
patterns = st.lists(words | st.sampled_from(["*", "**"]), min_size=1, max_size=6).map(".".join)


@given(filed=st.lists(patterns, max_size=30), asked=st.lists(names, max_size=10))
def test_the_trie_finds_what_each_pattern_alone_matches(filed: list[str], asked: list[str]) -> None:
    trie: PatternTrie[int] = PatternTrie()
    for i, pattern in enumerate(filed):
        trie.add(pattern, i)
    for name in asked:
        alone = {i for i, pattern in enumerate(filed) if pattern_matches(pattern, name)}
        assert trie.match(name) == alone


@given(some=st.lists(patterns, max_size=5), name=names)
def test_some_patterns_cover_what_one_of_them_matches(some: list[str], name: str) -> None:
    matches = any(pattern_matches(pattern, name) for pattern in some)
    assert Patterns(some).cover(name) == matches


@given(filed=st.lists(patterns, min_size=1, max_size=20), name=names, data=st.data())
def test_a_pattern_taken_away_matches_no_more(filed: list[str], name: str, data) -> None:
    trie: PatternTrie[int] = PatternTrie()
    for i, pattern in enumerate(filed):
        trie.add(pattern, i)
    trie.match(name)
    gone = data.draw(st.sets(st.sampled_from(range(len(filed)))))
    for i in gone:
        trie.remove(filed[i], i)
    alone = {i for i, p in enumerate(filed) if i not in gone and pattern_matches(p, name)}
    assert trie.match(name) == alone


def test_an_emptied_trie_holds_nothing() -> None:
    trie: PatternTrie[int] = PatternTrie()
    for pattern in ("a.*.b", "a.**", "**", "a.b"):
        trie.add(pattern, 1)
    for pattern in ("a.*.b", "a.**", "**", "a.b"):
        trie.remove(pattern, 1)
    assert trie._root.is_bare()


def test_names_that_were_asked_for_are_remembered_within_a_limit() -> None:
    trie: PatternTrie[int] = PatternTrie()
    for i in range(CACHED_NAMES_MAX + 10):
        trie.match(f"n{i}")
    assert len(trie._known) == CACHED_NAMES_MAX
