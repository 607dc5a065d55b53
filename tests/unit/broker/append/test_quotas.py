"""Token buckets: a second's worth at once, and on the mean never more than the quota."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.quotas import Meters
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import QuotaExceededError
from seb_appliance.formats.api_key_members import Grant, Quotas
from tests.support.fakes import FakeClock


def key(api_key_id: str = "k", **quotas: int) -> ApiKeyView:
    grants = (Grant(operation="produce"),)
    return ApiKeyView(api_key_id, "name", grants, 0, quotas=Quotas(**quotas))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def meters(clock: FakeClock) -> Meters:
    return Meters(clock)


def test_a_key_without_quotas_has_no_meter(meters: Meters) -> None:
    assert meters.enter(key()) is None


async def test_a_second_of_requests_may_come_at_once_then_as_they_refill(
    meters: Meters, clock: FakeClock
) -> None:
    limited = key(requests_per_second=5)
    for _ in range(5):
        meters.enter(limited)
    with pytest.raises(QuotaExceededError) as refused:
        meters.enter(limited)
    assert refused.value.retry_after_s == 1
    assert refused.value.data == {"quota": "requests_per_second", "allowed": 5}
    await clock.advance(0.2)
    meters.enter(limited)
    with pytest.raises(QuotaExceededError):
        meters.enter(limited)


async def test_what_was_not_used_for_long_is_a_seconds_worth(
    meters: Meters, clock: FakeClock
) -> None:
    limited = key(requests_per_second=3)
    meters.enter(limited)
    await clock.advance(3600)
    for _ in range(3):
        meters.enter(limited)
    with pytest.raises(QuotaExceededError):
        meters.enter(limited)


async def test_the_mean_is_never_more_than_the_quota(meters: Meters, clock: FakeClock) -> None:
    limited = key(requests_per_second=7)
    passed = 0
    for _ in range(1000):
        try:
            meters.enter(limited)
            passed += 1
        except QuotaExceededError:
            pass
        await clock.advance(0.01)
    assert 75 <= passed <= 77  # ten seconds, and the one that may be used at once


@pytest.mark.parametrize("way", ["in", "out"])
async def test_bytes_may_be_overdrawn_once_and_are_paid_back(
    meters: Meters, clock: FakeClock, way: str
) -> None:
    limited = key(**{f"bytes_{way}_per_second": 1000})
    meter = meters.enter(limited)
    assert meter is not None
    getattr(meter, f"charge_{way}")(4000)
    with pytest.raises(QuotaExceededError) as refused:
        meters.enter(limited)
    assert refused.value.retry_after_s == 3
    assert refused.value.data["quota"] == f"bytes_{way}_per_second"
    await clock.advance(2.9)
    with pytest.raises(QuotaExceededError):
        meters.enter(limited)
    await clock.advance(0.1)
    meters.enter(limited)


def test_a_refused_request_takes_nothing(meters: Meters) -> None:
    limited = key(requests_per_second=2, bytes_in_per_second=10)
    meter = meters.enter(limited)
    assert meter is not None
    meter.charge_in(20)
    for _ in range(3):
        with pytest.raises(QuotaExceededError) as refused:
            meters.enter(limited)
        assert refused.value.data["quota"] == "bytes_in_per_second"


def test_keys_do_not_share_a_bucket(meters: Meters) -> None:
    meters.enter(key("a", requests_per_second=1))
    meters.enter(key("b", requests_per_second=1))


def test_other_quotas_are_in_force_at_once(meters: Meters) -> None:
    meters.enter(key(requests_per_second=1))
    meters.enter(key(requests_per_second=100))


def test_meters_of_keys_long_gone_make_room(
    meters: Meters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_KEYS_MAX", 3)
    for number in range(9):
        meters.enter(key(f"k{number}", requests_per_second=1))
    assert len(meters._by_id) == 3
    with pytest.raises(QuotaExceededError):  # the newest are the ones that are kept
        meters.enter(key("k8", requests_per_second=1))


async def test_whoever_is_paused_instead_of_refused_is_told_for_how_long(
    meters: Meters, clock: FakeClock
) -> None:
    limited = key(requests_per_second=2, bytes_in_per_second=100, bytes_out_per_second=100)
    meter = meters.enter(limited)
    assert meter is not None
    assert (meter.wait_s, meter.overdrawn_s) == (0.0, 0.0)
    meter.enter()
    assert (meter.wait_s, meter.overdrawn_s) == (0.5, 0.0)
    meter.charge_in(400)
    assert (meter.wait_s, meter.overdrawn_s) == (3.0, 0.0)
    meter.charge_out(600)
    assert (meter.wait_s, meter.overdrawn_s) == (5.0, 5.0)
    await clock.advance(5)
    assert (meter.wait_s, meter.overdrawn_s) == (0.0, 0.0)
    meter.enter()


async def test_what_is_charged_after_a_rest_is_not_paid_by_the_rest(
    meters: Meters, clock: FakeClock
) -> None:
    meter = meters.enter(key(bytes_out_per_second=100))
    assert meter is not None
    await clock.advance(3600)
    meter.charge_out(400)
    assert meter.overdrawn_s == 3.0
