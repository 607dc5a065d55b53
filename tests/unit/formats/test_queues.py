"""Settings of work queues."""

from __future__ import annotations

import msgspec
import pytest

from seb_appliance import limits
from seb_appliance.formats.queues.queues import QueueSettings, RetryRule


def settings(**members: object) -> QueueSettings:
    body = msgspec.json.encode({"topics": ["orders"], **members})
    return msgspec.json.decode(body, type=QueueSettings)


@pytest.mark.parametrize(
    ("member", "most"),
    [
        ("lease_ms", limits.QUEUE_LEASE_MS_MAX),
        ("max_deliveries", limits.QUEUE_DELIVERIES_MAX),
        ("max_in_flight", limits.QUEUE_IN_FLIGHT_MAX),
    ],
)
def test_settings_outside_their_limits_are_refused(member: str, most: int):
    assert settings(**{member: most}) != settings()
    for wrong in (most + 1, 0):
        with pytest.raises(msgspec.ValidationError):
            settings(**{member: wrong})


def test_lists_and_times_outside_their_limits_are_refused():
    for wrong in (
        {"lease_ms": limits.QUEUE_LEASE_MS_MIN - 1},
        {"topics": []},
        {"topics": ["t"] * (limits.QUEUE_PATTERNS_MAX + 1)},
        {"retry": {"max_ms": limits.QUEUE_DELAY_MS_MAX + 1}},
        {"retry": {"factor": 0.5}},
        {"colour": "red"},
    ):
        with pytest.raises(msgspec.ValidationError):
            settings(**wrong)


def test_each_failure_waits_longer_up_to_the_longest():
    rule = RetryRule(min_ms=100, max_ms=1_000, factor=3.0, jitter=0.5)
    assert [rule.delay_ms(attempts, 0.0) for attempts in (1, 2, 3, 4)] == [100, 300, 900, 1_000]
    assert rule.delay_ms(1, 0.5) == 75
    assert rule.delay_ms(1_000, 0.0) == 1_000
