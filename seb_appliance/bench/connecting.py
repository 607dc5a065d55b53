"""Connections to the target: plain calls that are awaited, and as many raw ones as are wanted."""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from seb_appliance.bench.exchange import Exchange, LargeExchange
from seb_appliance.bench.targets import Address

# Why a measurement came to nothing.


class BenchError(Exception):
    """The sentence is for the terminal. `reachable`: whether somebody answered at all."""

    def __init__(self, sentence: str, *, reachable: bool = True) -> None:
        super().__init__(sentence)
        self.reachable = reachable


ANSWER_S: Final = 60.0  # longer than an appliance lets a producer wait for the bucket
CONNECT_S: Final = 10.0
_AT_ONCE: Final = 100  # connections opened together: a server's backlog is short

SomeExchange = TypeVar("SomeExchange", bound=Exchange | LargeExchange)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    head: bytes
    body: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def words(self) -> str:
        """What a refusal says."""
        try:
            problem = json.loads(self.body)
            return f"{problem['detail'].rstrip('.')} ({problem['code']})"
        except (ValueError, KeyError, TypeError):
            text = self.body[:200].decode(errors="replace").strip()
            return f"status {self.status}" + (f": {text}" if text else "")


class Caller(Exchange):
    """Requests one after another, each awaited."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: asyncio.Future[Answer] | None = None

    async def ask(self, request: bytes, timeout_s: float = ANSWER_S) -> Answer:
        """Raises BenchError when no answer comes."""
        loop = asyncio.get_running_loop()
        if self.transport is None:
            raise BenchError("the connection is closed", reachable=False)
        self._answer = loop.create_future()
        self.send(request, loop.time())
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer
        except TimeoutError:
            self.abort()
            raise BenchError(f"no answer within {timeout_s:.0f} s", reachable=False) from None

    async def good(self, request: bytes, timeout_s: float = ANSWER_S) -> Answer:
        """Raises BenchError with the words of a refusal, too."""
        answer = await self.ask(request, timeout_s)
        if not answer.is_good:
            raise BenchError(answer.words())
        return answer

    def answered(self, status: int, head: bytes, body: bytes) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(status, head, body))

    def lost(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BenchError("the connection was closed", reachable=False))


async def connect(
    address: Address, make: Callable[[int], SomeExchange], count: int
) -> list[SomeExchange]:
    """`count` open connections; `make` gets their numbers. Raises BenchError."""
    opened: list[SomeExchange] = []
    while len(opened) < count:
        numbers = range(len(opened), min(count, len(opened) + _AT_ONCE))
        opened += await asyncio.gather(
            *(open_one(address, functools.partial(make, number)) for number in numbers)
        )
    return opened


async def call(address: Address) -> Caller:
    return (await connect(address, lambda _: Caller(), 1))[0]


async def open_one(address: Address, make: Callable[[], SomeExchange]) -> SomeExchange:
    """One open connection. Raises BenchError."""
    loop = asyncio.get_running_loop()
    secured = ssl.create_default_context() if address.tls else None
    try:
        async with asyncio.timeout(CONNECT_S):
            _, exchange = await loop.create_connection(
                make, address.host, address.port, ssl=secured
            )
    except (OSError, TimeoutError) as error:
        words = getattr(error, "strerror", None) or str(error) or "no answer in time"
        raise BenchError(
            f"cannot reach {address.host}:{address.port} ({words}). Is it running?",
            reachable=False,
        ) from error
    return exchange


def close_all(exchanges: Sequence[Exchange]) -> None:
    for exchange in exchanges:
        exchange.abort()
