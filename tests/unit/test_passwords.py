"""Passwords: argon2id, and nobody's takes as long as somebody's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from argon2 import extract_parameters

from seb_appliance import limits
from seb_appliance.errors import BadRequestError, OverloadedError
from seb_appliance.ops.host import passwords
from seb_appliance.ops.host.passwords import Passwords

PASSWORD = "correct horse battery"


@pytest.fixture
def checker() -> Iterator[Passwords]:
    made = Passwords()
    yield made
    made.close()


async def test_a_password_is_known_by_its_hash_alone(checker: Passwords) -> None:
    made = await checker.hash(PASSWORD)
    assert made.startswith("$argon2id$")
    assert PASSWORD not in made
    assert await checker.matches(PASSWORD, made)
    assert not await checker.matches(PASSWORD + " ", made)
    assert made != await checker.hash(PASSWORD)


async def test_nobody_has_a_password_and_that_is_as_much_work(checker: Passwords) -> None:
    assert not await checker.matches(PASSWORD, None)
    assert not await checker.matches("", None)
    costs = extract_parameters(await checker.hash(PASSWORD))
    assert extract_parameters(passwords._NOBODY) == costs


async def test_a_damaged_hash_is_nobodys(checker: Passwords) -> None:
    assert not await checker.matches(PASSWORD, "not a hash")


@pytest.mark.parametrize("password", ["", "x" * 9, "x" * 1_001])
async def test_a_password_has_a_length(checker: Passwords, password: str) -> None:
    with pytest.raises(BadRequestError):
        await checker.hash(password)


async def test_a_crowd_is_refused_instead_of_waiting_for_ever(
    checker: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PASSWORDS_WAITING_MAX", 2)
    tries = [asyncio.ensure_future(checker.matches(PASSWORD, None)) for _ in range(3)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [bool, bool, OverloadedError]
    assert not await checker.matches(PASSWORD, None)


async def test_of_fifty_log_ins_at_once_one_is_checked_at_a_time(
    checker: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check takes 19 MiB, whether there is such a user or not."""
    threads: list[int] = []

    class Watched:
        def verify(self, _hash: str, _password: str) -> bool:
            threads.append(threading.get_ident())
            time.sleep(0.001)  # another thread would take the next one meanwhile
            return False

    monkeypatch.setattr(passwords, "_HASHER", Watched())
    tries = [checker.matches(PASSWORD, one) for one in (None, "$argon2id$of somebody") * 25]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert len(threads) == limits.PASSWORDS_WAITING_MAX
    assert len(set(threads)) == 1
    refused = [outcome for outcome in outcomes if isinstance(outcome, OverloadedError)]
    assert len(refused) == 50 - limits.PASSWORDS_WAITING_MAX
