"""What makes retries safe is kept within limits."""

from __future__ import annotations

import hashlib

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.retry_results import Producers, RememberedRequests, owner_hash
from seb_appliance.formats.contents import Produced, ProducerAppend, RequestResult

BODY = b"b" * 16


def of(owner: str, number: int) -> bytes:
    """A scope."""
    return owner_hash(owner) + b"%010d" % number


def test_only_the_newest_requests_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_REQUESTS_MAX", 3)
    requests = RememberedRequests([])
    results = [RequestResult(b"%d" % i * 16, BODY, [Produced(1, i, 1, 0)]) for i in range(5)]
    requests.apply(results, created_us=1)
    requests.apply([results[2]], created_us=2)  # is the newest again
    assert [requests.get(result.scope) == result for result in results] == [0, 0, 1, 1, 1]
    assert (len(requests), requests.reaches_back_to_us) == (3, 1)
    requests.apply([RequestResult(b"9" * 16, BODY, [])], created_us=3)
    assert [item.result.scope[:1] for item in requests] == [b"4", b"2", b"9"]
    requests.apply([], created_us=2 + limits.REMEMBERED_REQUESTS_US)
    assert [item.result.scope[:1] for item in requests] == [b"2", b"9"]
    assert requests.reaches_back_to_us == 2


def test_a_transaction_takes_a_place_for_each_of_its_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_REQUESTS_MAX", 4)
    requests = RememberedRequests([])
    produced = [Produced(topic_id, 7, 1, 0) for topic_id in range(3)]
    requests.apply([RequestResult(of("a", i), BODY, []) for i in range(4)], created_us=1)
    step = RequestResult(of("a", 7), BODY, produced)
    requests.apply([step], created_us=2)
    assert [item.result.scope for item in requests] == [of("a", 3), of("a", 7)]
    assert requests.shares.used == 4
    assert requests.get(step.scope) == step
    again = RememberedRequests(requests, 7)
    requests.apply([RequestResult(of("a", 8), BODY, [])], created_us=3)
    again.apply([RequestResult(of("a", 8), BODY, [])], created_us=3)
    assert list(requests) == list(again)
    assert [item.result.scope for item in requests] == [of("a", 7), of("a", 8)]


def test_an_owner_forgets_his_own_requests_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_REQUESTS_MAX", 10)
    requests = RememberedRequests([])
    for owner, count in (("small", 3), ("greedy", 20), ("medium", 3), ("greedy", 20)):
        for i in range(count):
            requests.apply([RequestResult(of(owner, i), BODY, [])], created_us=1)
    scopes = [item.result.scope for item in requests]
    assert scopes[:3] == [of("small", i) for i in range(3)]
    assert scopes[3:6] == [of("medium", i) for i in range(3)]
    assert scopes[6:] == [of("greedy", i) for i in range(16, 20)]


def test_a_full_table_makes_room_for_a_hundredth_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_REQUESTS_MAX", 1_000)
    requests = RememberedRequests([])
    requests.apply([RequestResult(of("a", i), BODY, []) for i in range(1_001)], created_us=1)
    assert (len(requests), requests.shares.used) == (990, 990)


def test_the_longest_idle_producers_go_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_MAX", 2)
    producers = Producers([])
    for i, name in enumerate("abac"):
        producers.apply(1, [ProducerAppend(name, 0, i, i, 1, 0)], created_us=i)
        producers.make_room()
    assert [producers.get(1, name) is not None for name in "abc"] == [True, False, True]


def test_requests_of_an_older_release_go_before_those_of_a_busy_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They tell no owner: each with one of its own, all would outlive what is new."""
    monkeypatch.setattr(limits, "REMEMBERED_REQUESTS_MAX", 1_000)
    requests = RememberedRequests([])
    scopes = (hashlib.sha256(b"%d" % i).digest()[:16] for i in range(1_000))
    older = [RequestResult(scope, bytes(16), []) for scope in scopes]
    requests.apply(older, 1)
    newer = [RequestResult(of("busy", i), bytes(16), []) for i in range(400)]
    for i, result in enumerate(newer):
        requests.apply([result], 2 + i)
    assert all(requests.get(result.scope) for result in newer)
