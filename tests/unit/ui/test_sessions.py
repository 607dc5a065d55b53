"""Sessions of the admin page, and how often somebody may try to begin one."""

from __future__ import annotations

import os

import pytest

from seb_appliance import limits
from seb_appliance.broker.ports import UserRow
from seb_appliance.ui.sessions import Sessions, Throttle, cookie_header, token_in
from tests.support.fakes import FakeClock

OLGA = UserRow("olga", "viewer", "hash", 1)


class House:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.users = {"olga": OLGA, "admin": UserRow("admin", "admin", "hash", 1)}
        self.sessions = Sessions(self.users.get, self.clock, os.urandom)


@pytest.fixture
def house() -> House:
    return House()


async def test_a_session_ends_when_nobody_uses_it(house: House) -> None:
    token = house.sessions.begin(OLGA)
    await house.clock.advance(limits.SESSION_IDLE_S - 1)
    assert house.sessions.find(token)
    await house.clock.advance(limits.SESSION_IDLE_S - 1)
    assert house.sessions.find(token)
    await house.clock.advance(limits.SESSION_IDLE_S)
    assert house.sessions.find(token) is None


async def test_a_page_that_looks_for_news_does_not_keep_its_user_logged_in(house: House) -> None:
    token = house.sessions.begin(OLGA)
    await house.clock.advance(limits.SESSION_IDLE_S - 1)
    assert house.sessions.find(token, used=False)
    await house.clock.advance(1)
    assert house.sessions.find(token, used=False) is None


async def test_a_session_ends_after_its_time_however_busy(house: House) -> None:
    token = house.sessions.begin(OLGA)
    step_s = limits.SESSION_IDLE_S // 2
    for _ in range(limits.SESSION_S_MAX // step_s - 1):
        await house.clock.advance(step_s)
        assert house.sessions.find(token)
    await house.clock.advance(step_s)
    assert house.sessions.find(token) is None


async def test_a_changed_or_removed_user_has_no_sessions(house: House) -> None:
    token = house.sessions.begin(OLGA)
    house.users["olga"] = UserRow("olga", "viewer", "hash", 2)
    assert house.sessions.find(token) is None
    token = house.sessions.begin(house.users["olga"])
    del house.users["olga"]
    assert house.sessions.find(token) is None
    house.users["olga"] = UserRow("olga", "viewer", "hash", 2)
    assert house.sessions.find(token) is None


async def test_sessions_are_bounded_and_the_longest_idle_makes_room(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SESSIONS_MAX", 2)
    first = house.sessions.begin(OLGA)
    await house.clock.advance(1)
    second = house.sessions.begin(OLGA)
    await house.clock.advance(1)
    assert house.sessions.find(first)
    third = house.sessions.begin(OLGA)
    assert [bool(house.sessions.find(token)) for token in (first, second, third)] == [
        True,
        False,
        True,
    ]


def test_ending_all_sessions_of_a_user_leaves_those_of_others(house: House) -> None:
    tokens = [house.sessions.begin(OLGA), house.sessions.begin(OLGA)]
    other = house.sessions.begin(house.users["admin"])
    house.sessions.end_all("olga")
    assert not any(house.sessions.find(token) for token in tokens)
    assert house.sessions.find(other)


@pytest.mark.parametrize("token", ["", "x", "x" * 43, "x" * 1_000_000, "\u00e9" * 43])
def test_a_token_that_was_never_given_is_nobody(house: House, token: str) -> None:
    house.sessions.begin(OLGA)
    assert house.sessions.find(token) is None


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites() -> None:
    name, value = cookie_header("abc", secure=True)
    assert (name, value) == (
        b"set-cookie",
        b"seb_session=abc; Path=/ui; HttpOnly; SameSite=Strict; Secure",
    )
    assert cookie_header("", secure=False)[1].endswith(b"SameSite=Strict; Max-Age=0")


def test_our_cookie_is_found_among_others() -> None:
    assert token_in(b"a=b; seb_session=abc; c=d") == "abc"
    assert token_in(b"not_seb_session=abc") == ""
    assert token_in(None) == ""


async def test_tries_run_out_and_come_back_one_by_one() -> None:
    clock = FakeClock()
    throttle = Throttle(clock)
    assert tries(throttle, "192.0.2.1", "olga") == limits.LOGINS_AT_ONCE
    assert not throttle.take("192.0.2.1", "admin")
    assert throttle.take("192.0.2.2", "admin")
    await clock.advance(limits.LOGIN_EVERY_S)
    assert throttle.take("192.0.2.1", "olga")
    assert not throttle.take("192.0.2.1", "olga")


def tries(throttle: Throttle, address: str, account: str) -> int:
    """Until none is left."""
    taken = 0
    while throttle.take(address, account):
        taken += 1
    return taken


def test_one_stranger_locks_nobody_out_of_an_account_and_a_crowd_locks_out_strangers_alone() -> (
    None
):
    throttle = Throttle(FakeClock())
    assert throttle.take("198.51.100.1", "olga")
    throttle.succeeded("198.51.100.1", "olga")
    tries(throttle, "192.0.2.1", "olga")
    assert throttle.take("203.0.113.1", "olga")  # olga, from where she never was
    crowd = sum(tries(throttle, f"192.0.2.{n}", "olga") for n in range(2, 50))
    # One try was that stranger's, and those of the first address are taken.
    assert crowd == (limits.LOGIN_STRANGERS - 1) * limits.LOGINS_AT_ONCE - 1
    assert not throttle.take("203.0.113.2", "olga")
    assert throttle.take("203.0.113.2", "admin")
    assert tries(throttle, "198.51.100.1", "olga") == limits.LOGINS_AT_ONCE  # where she was


def test_who_logged_in_before_is_not_locked_out_by_a_stranger_at_the_same_address() -> None:
    throttle = Throttle(FakeClock())
    assert throttle.take("192.0.2.1", "olga")
    throttle.succeeded("192.0.2.1", "olga")
    tries(throttle, "192.0.2.1", "admin")
    assert not throttle.take("192.0.2.1", "nobody")
    assert throttle.take("192.0.2.1", "olga")


def test_all_addresses_of_one_ipv6_network_are_one() -> None:
    throttle = Throttle(FakeClock())
    assert tries(throttle, "2001:db8::1", "olga") == limits.LOGINS_AT_ONCE
    assert not throttle.take("2001:db8::ffff:1", "olga")
    assert throttle.take("2001:db8:0:1::1", "olga")


def test_a_try_that_is_given_back_can_be_used_again() -> None:
    throttle = Throttle(FakeClock())
    for _ in range(3 * limits.LOGINS_AT_ONCE):
        assert throttle.take("192.0.2.1", "olga")
        throttle.succeeded("192.0.2.1", "olga")


def test_watching_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOGINS_WATCHED_MAX", 10)
    throttle = Throttle(FakeClock())
    for number in range(100):
        assert throttle.take(f"192.0.2.{number}", f"user {number}")
        throttle.succeeded(f"192.0.2.{number}", f"user {number}")
    assert len(throttle._full_s) == len(throttle._known) == 10
