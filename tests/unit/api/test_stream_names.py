"""Paths of streams and names of topics: one for each, both ways."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.errors import BadNameError
from seb_appliance.protocols.durable_streams.wire import path_of, topic_of

PARTS = st.text("abAB019_-.~:@!$&'()*+,;=", min_size=1, max_size=8)
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


def topic(path: str) -> str:
    return topic_of(b"/v1/stream/" + path.encode())


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("chat", "chat"),
        ("chat/room-1", "chat.room-1"),
        ("room:1", "room_3A1"),
        ("room%3A1", "room_3A1"),
        ("%61bc", "abc"),
        ("v1.2", "v1_2E2"),
        ("package_log", "package_log"),
        ("a_2E", "a_5F2E"),
        ("a_2e", "a_2e"),
    ],
)
def test_a_path_is_a_topic(path: str, name: str):
    assert topic(path) == name
    assert topic_of((path_of(name) or "").encode()) == name


@given(PATHS, PATHS)
def test_two_paths_are_never_one_topic(one: str, other: str):
    assume(not any(part in {".", ".."} for path in (one, other) for part in path.split("/")))
    try:
        names = (topic(one), topic(other))
    except BadNameError:
        assume(False)
    assert (names[0] == names[1]) == (one == other)
    assert path_of(check_topic_name(names[0])) == f"/v1/stream/{one}"


@pytest.mark.parametrize(
    "path",
    [
        *("", "/a", "a/", "a//b", ".", "..", "a/../b", "%2e%2e", "a%2Fb", "a%5Cb", "a%00b"),
        *("caf%C3%A9", "p%D0%B0ypal", "a b", "a%20b", "%", "%4", "%zz", "a" * 129, "a" * 4096),
        "._." * 50,
    ],
)
def test_what_is_no_path_is_refused(path: str):
    with pytest.raises(BadNameError):
        topic(path)


def test_a_topic_without_a_path_is_told_apart():
    assert path_of("a_41") is None  # aA is the topic aA
