"""Sending an answer: in pieces, and killed half-way where a test asks for it."""

from __future__ import annotations

import pytest

from seb_appliance.api.encoding.answers import Answer
from seb_appliance.broker.shares import OPERATOR, Shares


class Killed(BaseException):
    pass


class FailsAtK11:
    def armed(self, point: str) -> bool:
        return point == "K11"

    def reach(self, point: str) -> None:
        if point == "K11":
            raise Killed


async def sent(answer: Answer, *, fails: bool = False) -> list[dict]:
    messages: list[dict] = []

    async def send(message):
        messages.append(message)
        if fails:
            raise ConnectionError

    try:
        await answer({}, None, send)  # type: ignore[arg-type]
    except (Killed, ConnectionError):
        messages.append({"type": "end"})
    return messages


async def test_k11_kills_when_half_of_the_body_was_sent():
    start, half, end = await sent(Answer(201, [], b"12345678", failpoints=FailsAtK11()))  # type: ignore[arg-type]
    assert (b"content-length", b"8") in start["headers"]
    assert (half["body"], half["more_body"]) == (b"1234", True)
    assert end == {"type": "end"}


@pytest.mark.parametrize("parts", [[], [b"abc"], [b"a", b"bc"], [memoryview(b"x" * 1_000_000)] * 2])
async def test_the_body_arrives_whole_whatever_its_parts(parts):
    start, *bodies = await sent(Answer(200, [], parts))
    whole = b"".join(parts)
    assert (b"content-length", str(len(whole)).encode()) in start["headers"]
    assert b"".join(message["body"] for message in bodies) == whole
    assert [message["more_body"] for message in bodies] == [True] * (len(bodies) - 1) + [False]
    assert max(len(message["body"]) for message in bodies) <= 256 * 1024


@pytest.mark.parametrize("fails", [False, True])
async def test_the_reservation_ends_with_the_sending(fails):
    budget = Shares("tests", 10, "bytes")
    await sent(Answer(200, [], b"abc", reservation=budget.reserve(OPERATOR, 3)), fails=fails)
    assert budget.used == 0
