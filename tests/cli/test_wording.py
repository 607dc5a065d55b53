"""Errors of commands speak of flags and commands, and show names as they were typed."""

from __future__ import annotations

import re

import pytest

OF_HTTP = re.compile(
    r"\b(GET|PUT|POST|PATCH|DELETE|URL|HTTP|header|query|Content-Type)\b|/v1/|\$\.|%[0-9A-F]{2}"
)


@pytest.fixture
def topic(seb):
    seb.good("topics", "create", "t")
    seb.good("produce", "t", stdin=b"1\n")
    return seb


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["consume", "t", "--offset", "x"], "--offset 'x' must be an offset"),
        (["consume", "t", "--offset", "@x"], "--offset: 'x' is not a time such as"),
        (["consume", "t", "--until", "x"], "--until 'x' must be an offset or"),
        (["tail", "t", "--offset", "x"], "--offset 'x' must be an offset"),
        (["consume", "none"], "Create it with seb topics create none"),
        (["groups", "reset", "g", "--to", "x"], "--to 'x' must be an offset"),
        (["topics", "create", "t", "--linger", "9ms"], "with seb topics change t"),
        (["topics", "fork", "f", "--from", "t", "--at", "-1"], "--at: Expected `int` >= 0"),
        (["topics", "trim", "t", "--before", "-1", "--yes"], "--before: Expected `int` >= 0"),
        (["record-keys", "list", "t"], "with seb topics change t"),
        (["record-keys", "latest", "t", "!", "--base64"], "KEY is not base64"),
        (["record-keys", "history", "t", "a", "--before", "9" * 17], "--before must be an offset"),
        (["api-keys", "create", "", "--grant", "consume"], "NAME: Expected `str` of length >= 1"),
        (
            ["api-keys", "create", "x", "--grant", "consume", "--requests-per-second", "0"],
            "--requests-per-second: Expected `int` >= 1",
        ),
        (["api-keys", "rotate", "x", "--overlap", "99d"], "--overlap must be at most 30d"),
        (["audit", "--before", "9" * 17], "--before '99999999999999999' must be a number"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_a_refusal_speaks_of_our_flags(topic, command, told):
    refused = topic.refused(*command)
    assert told in refused
    assert not OF_HTTP.search(refused)


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "create", "täst"],
        ["topics", "show", "täst"],
        ["consume", "täst"],
        ["consume", "t", "--group", "täst"],
        ["groups", "show", "täst"],
        ["groups", "commit", "g", "täst=1"],
        ["record-keys", "list", "täst"],
        ["api-keys", "show", "täst"],
        ["export", "--topic", "täst"],
        ["export", "--format", "seb-v1", "--topic", "täst", "--to", "out"],
    ],
    ids=" ".join,
)
def test_a_name_is_shown_as_it_was_typed(topic, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = topic.refused(*command)
    assert "'täst'" in refused
    assert not OF_HTTP.search(refused)
