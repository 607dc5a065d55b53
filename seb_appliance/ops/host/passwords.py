"""Passwords: argon2id, one at a time, in a thread of their own.

The costs are OWASP's for a server that does other work too: 19 MiB, two passes, one lane; about
30 ms. A check of a user who is not there does the same work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from seb_appliance import limits
from seb_appliance.errors import BadRequestError, OverloadedError

T = TypeVar("T")

_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# Of a password that nobody knows, with the same costs.
_NOBODY: Final = (
    "$argon2id$v=19$m=19456,t=2,p=1$NvW/rs9EHCrYCqIUQgAezw$"
    "1P961Jp6/xHqv+oryK5UD/yxOFYNg88DcOVJn4CbI9w"
)


class Passwords:
    """`limits.PASSWORDS_WAITING_MAX` wait at once; more are refused with OverloadedError."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Raises BadRequestError for a password that is too short or too long."""
        if len(password) < limits.PASSWORD_CHARACTERS_MIN:
            raise BadRequestError(
                f"The password must have at least {limits.PASSWORD_CHARACTERS_MIN} characters."
            )
        if len(password) > limits.PASSWORD_CHARACTERS_MAX:
            raise BadRequestError(
                f"The password can have at most {limits.PASSWORD_CHARACTERS_MAX} characters."
            )
        return await self._work(partial(_HASHER.hash, password))

    async def matches(self, password: str, password_hash: str | None) -> bool:
        """Whether the password has this hash. None (no such user) never matches, and takes the same
        time."""
        found = await self._work(partial(_matches, password, password_hash or _NOBODY))
        return found and password_hash is not None

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)

    async def _work(self, work: Callable[[], T]) -> T:
        if self._waiting >= limits.PASSWORDS_WAITING_MAX:
            raise OverloadedError("Too many people log in at once; try again in some seconds.")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._waiting -= 1


def _matches(password: str, password_hash: str) -> bool:
    try:
        return _HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False
