"""When a connection to a receiver is used again."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from seb_appliance.protocols.subscriptions import limits as push_limits
from seb_appliance.protocols.subscriptions.addresses import Target
from seb_appliance.protocols.subscriptions.sending import DeliveryError, Sender
from tests.support.receiver import OK, Receiver, answer, receiving

LOCAL = (ipaddress.ip_network("127.0.0.0/8"),)
Post = Callable[..., Awaitable[int]]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as one:
        one.stays = True
        yield one


@pytest.fixture
async def post(receiver: Receiver) -> AsyncIterator[Post]:
    sender = Sender(LOCAL)

    async def send(user: str = "mails") -> int:
        return (await sender.post(Target.of(receiver.url), b"", b"x", 10.0, user)).status

    yield send
    sender.close()


async def closed(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(10):
        await writer.wait_closed()


async def test_a_subscription_uses_its_connection_again(receiver: Receiver, post: Post) -> None:
    for _ in range(5):
        assert await post() == 204
    assert len(receiver.connections) == 1
    assert len(receiver.got) == 5


async def test_requests_at_one_time_have_a_connection_each(receiver: Receiver, post: Post) -> None:
    for _ in range(3):
        assert await asyncio.gather(*(post() for _ in range(4))) == [204] * 4
    assert len(receiver.connections) == 4


async def test_nobody_gets_the_connection_of_another_subscription(
    receiver: Receiver, post: Post
) -> None:
    for user in ("mails", "orders", "", "", "mails"):
        await post(user)
    assert len(receiver.connections) == 4


async def test_a_receiver_that_closes_its_connections_misses_nothing(
    receiver: Receiver, post: Post
) -> None:
    receiver.stays = False
    assert [await post() for _ in range(20)] == [204] * 20
    assert len(receiver.got) == 20


async def test_a_request_on_a_closed_connection_is_sent_on_a_new_one(
    receiver: Receiver, post: Post
) -> None:
    await post()
    receiver.answers.append(b"")  # and it closes
    receiver.stays = False
    assert await post() == 204
    assert len(receiver.connections) == 2
    receiver.answers.append(b"")
    receiver.answers.append(b"")
    with pytest.raises(DeliveryError, match="closed the connection without an answer"):
        await post("another")


@pytest.mark.parametrize(
    "said",
    [
        answer(200, "Connection: close"),
        OK + answer(200, body=b"an answer to nothing"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        answer(200, body=b"x" * 2 * push_limits.ANSWER_BODY_BYTES_MAX),
    ],
    ids=["said to close", "two answers", "HTTP/1.0", "long"],
)
async def test_after_such_an_answer_the_connection_is_closed(
    receiver: Receiver, post: Post, said: bytes
) -> None:
    receiver.answers.append(said)
    assert await post() in (200, 204)
    await closed(receiver.connections[0])
    assert await post() == 204
    assert len(receiver.connections) == 2


async def test_what_nobody_asked_for_closes_the_connection(receiver: Receiver, post: Post) -> None:
    await post()
    receiver.connections[0].write(answer(410))
    await closed(receiver.connections[0])
    assert await post() == 204


async def test_an_idle_connection_is_closed_after_a_while(
    receiver: Receiver, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_limits, "IDLE_S", 0.01)
    await post()
    await closed(receiver.connections[0])


async def test_an_old_connection_is_not_kept(
    receiver: Receiver, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_limits, "CONNECTION_AGE_S_MAX", -1.0)
    await post()
    await closed(receiver.connections[0])


async def test_the_oldest_idle_connection_makes_room(
    receiver: Receiver, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_limits, "IDLE_CONNECTIONS_MAX", 2)
    for user in ("first", "second", "third"):
        await post(user)
    await closed(receiver.connections[0])
    await post("third")
    await post("second")
    assert len(receiver.connections) == 3
