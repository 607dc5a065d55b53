"""Commands whose requests or answers get lost on the way: what is done, once, and what is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seb_appliance.client.blocking import LoopThread
from tests.support.unreliable import Fate, unreliable


@contextmanager
def on_the_way(seb, method: bytes, *fates: Fate) -> Iterator[str]:
    """A url at which the first requests of that method have these fates."""
    left = list(fates)
    thread = LoopThread()
    way = unreliable(seb.appliance.port, lambda: left.pop(0) if left else "pass", method)
    try:
        yield thread.wait_for(way.__aenter__()).url
        assert not left
    finally:
        thread.wait_for(way.__aexit__(None, None, None))
        thread.stop()


@pytest.mark.parametrize("fate", ["lose_request", "lose_answer"])
def test_lines_are_stored_once_whatever_gets_lost(seb, fate):
    lines = b'{"value":"1"}\n' * 25_000
    with on_the_way(seb, b"POST", "pass", fate, fate, "pass", fate) as url:
        told = seb.good("produce", fate, "--ndjson", "--url", url, stdin=lines)
    assert told.err == "25,000 records acknowledged, the last at offset 24,999\n"
    assert seb.good("topics", "show", fate, "--json").json["log_end_offset"] == 25_000


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_what_is_read_comes_once_whatever_gets_lost(seb, flags):
    seb("topics", "create", "read")
    seb.good("topics", "trim", "read", "--before", "0", "--yes")
    end = seb.good("topics", "show", "read", "--json").json["log_end_offset"]
    seb.good("produce", "read", stdin=b"0\n1\n2\n")
    with on_the_way(seb, b"GET", "pass", "lose_answer", "lose_request") as url:
        told = seb.good("consume", "read", "--offset", str(end), "--url", url, *flags)
        # A place that has to be found out is asked for before.
        again = seb.good("consume", "read", "--offset", "-3", "--url", url, *flags)
    assert told.raw == again.raw
    values = [json.loads(line)["value"] if flags else line for line in told.out.splitlines()]
    assert values == ["0", "1", "2"]


@pytest.mark.parametrize("fate", ["lose_request", "lose_answer"])
def test_a_commit_that_got_lost_is_there_in_the_end(seb, fate):
    seb.good("produce", f"commit-{fate}", stdin=b"0\n1\n")
    with on_the_way(seb, b"PUT", fate) as url:
        flags = ["--group", fate, "--commit", "--url", url]
        assert seb.good("consume", f"commit-{fate}", *flags).raw == b"0\n1\n"
    shown = seb.good("groups", "show", fate, "--json").json
    assert shown["topics"][0]["committed_offset"] == 2


def test_a_change_that_got_lost_is_not_sent_again(seb):
    with on_the_way(seb, b"POST", "lose_answer") as url:
        told = seb.refused("api-keys", "create", "k", "--grant", "admin", "--url", url, code=71)
    assert told.endswith(
        "did not answer (the connection was closed). It may have been done or not."
    )
    keys = seb.good("api-keys", "list", "--json").json["api_keys"]
    assert [key["name"] for key in keys].count("k") == 1
