"""What grants allow: as each grant alone would, whatever was asked before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.access.grants import Authorizer
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import ForbiddenError
from seb_appliance.formats.api_key_members import Grant
from tests.support.patterns import pattern_matches

operations = st.sampled_from(["produce", "consume", "manage"])
words = st.sampled_from(["a", "b"])
names = st.lists(words, min_size=1, max_size=3).map(".".join)
patterns = st.lists(words | st.sampled_from(["*", "**"]), min_size=1, max_size=3).map(".".join)
grants = st.lists(
    st.builds(Grant, operation=operations, topics=patterns, groups=patterns), max_size=6
).map(tuple)


def view(api_key_id: str, granted: tuple[Grant, ...]) -> ApiKeyView:
    return ApiKeyView(api_key_id, "name", granted, 0)


def alone(grant: Grant, operation: str, topic: str | None, group: str | None) -> bool:
    return (
        grant.operation == operation
        and (topic is None or pattern_matches(grant.topics, topic))
        and (group is None or pattern_matches(grant.groups, group))
    )


@given(
    keys=st.lists(grants, min_size=1, max_size=3),
    asked=st.lists(
        st.tuples(st.integers(0, 2), operations, st.none() | names, st.none() | names), max_size=20
    ),
    kept=st.integers(1, 20),
    compiled=st.integers(1, 3),
)
def test_grants_allow_what_one_of_them_alone_allows(keys, asked, kept, compiled) -> None:
    authorizer = Authorizer()
    views = [view(f"k{i}", granted) for i, granted in enumerate(keys)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "GRANT_DECISIONS_KEPT", kept)
        patch.setattr(limits, "GRANTS_COMPILED_MAX", compiled)
        for which, operation, topic, group in asked:
            key = views[which % len(views)]
            wanted = any(alone(grant, operation, topic, group) for grant in key.grants)
            assert authorizer.may(key, operation, topic, group) == wanted
        assert len(authorizer._decided) <= kept
        assert len(authorizer._compiled) <= compiled


def test_topic_and_group_must_be_covered_by_one_and_the_same_grant() -> None:
    key = view(
        "k",
        (
            Grant(operation="consume", topics="a", groups="x"),
            Grant(operation="consume", topics="b", groups="y"),
        ),
    )
    authorizer = Authorizer()
    assert authorizer.may(key, "consume", "a", "x")
    assert not authorizer.may(key, "consume", "a", "y")


def test_a_name_that_no_topic_can_have_is_decided_and_not_kept() -> None:
    authorizer, key = Authorizer(), view("k", (Grant(operation="consume", topics="a.**"),))
    for words in (100, 10_000):
        assert authorizer.may(key, "consume", ".".join(["a"] * words))
        assert not authorizer.may(key, "consume", ".".join(["b"] * words))
    assert len(authorizer._decided) == 0


def test_what_was_decided_does_not_outlive_the_grants() -> None:
    authorizer = Authorizer()
    assert authorizer.may(view("k", (Grant(operation="produce", topics="a"),)), "produce", "a")
    changed = view("k", (Grant(operation="produce", topics="b"),))
    assert not authorizer.may(changed, "produce", "a")
    assert authorizer.may(changed, "produce", "b")


def test_admin_covers_everything() -> None:
    key = view("k", (Grant(operation="admin"),))
    assert all(
        Authorizer().may(key, operation, "t", "g")
        for operation in ("produce", "consume", "manage", "admin")
    )
    assert not Authorizer().may(view("k", (Grant(operation="manage"),)), "admin")


def test_a_refusal_names_the_missing_grant() -> None:
    with pytest.raises(ForbiddenError) as refused:
        Authorizer().authorize(view("k", ()), "consume", "t", "g")
    missing = {"operation": "consume", "topics": "t", "groups": "g"}
    assert refused.value.data["missing_grant"] == missing
