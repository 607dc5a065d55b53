"""Answers are read whole, however the network cuts them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seb_appliance.bench.exchange import Exchange, LargeExchange, header

PLAIN = b"HTTP/1.1 201 Created\r\ncontent-length: 5\r\nX-Other: 1\r\n\r\nhello"
CAPITALS = b"HTTP/1.1 201 Created\r\nX-Content-Length: 9\r\nContent-Length:5\r\n\r\nhello"
_CHUNKS = b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n" + _CHUNKS
EMPTY = b"HTTP/1.1 204 No Content\r\nDate: now\r\n\r\n"

Got = list[tuple[int, bytes]]


class Small(Exchange):
    def __init__(self) -> None:
        super().__init__()
        self.got: Got = []

    def answered(self, status: int, head: bytes, body: bytes) -> None:
        self.got.append((status, body))

    def lost(self) -> None: ...


class Large(LargeExchange):
    def __init__(self) -> None:
        super().__init__()
        self.got: Got = []

    def answered(self, status: int, head: bytes, body: memoryview) -> None:
        self.got.append((status, bytes(body)))

    def lost(self) -> None: ...

    def data_received(self, data: bytes) -> None:
        """As an event loop fills its buffer."""
        room = self.get_buffer(-1)
        assert len(room) >= len(data)
        room[: len(data)] = data
        self.buffer_updated(len(data))


class FakeTransport(asyncio.Transport):
    aborted = False

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture(params=[Small, Large])
def exchange(request: pytest.FixtureRequest) -> Any:
    made = request.param()
    made.connection_made(FakeTransport())
    return made


@pytest.mark.parametrize("answer", [PLAIN, CAPITALS, CHUNKED, EMPTY])
def test_an_answer_is_whole_wherever_it_is_cut(exchange: Any, answer: bytes) -> None:
    expected = (204, b"") if answer is EMPTY else (201, b"hello")
    for cut in range(1, len(answer)):
        exchange.data_received(answer[:cut])
        exchange.data_received(answer[cut:])
        assert exchange.got == [expected], cut
        exchange.got.clear()


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED])
def test_an_answer_may_come_byte_by_byte(exchange: Any, answer: bytes) -> None:
    for i in range(len(answer)):
        exchange.data_received(answer[i : i + 1])
    assert exchange.got == [(201, b"hello")]


@pytest.mark.parametrize("excess", [PLAIN + b"x", PLAIN[:-3] + b"llo" + PLAIN])
def test_more_than_was_promised_ends_the_connection(exchange: Any, excess: bytes) -> None:
    exchange.data_received(excess)
    assert exchange.transport.aborted
    assert exchange.got == []


def test_a_body_may_be_larger_than_the_buffer() -> None:
    exchange = Large()
    exchange.connection_made(FakeTransport())
    body = bytes(range(256)) * 8_192
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    for at in range(0, len(answer), 100_000):
        exchange.data_received(answer[at : at + 100_000])
    assert exchange.got == [(200, body)]


def test_headers_without_an_end_end_the_connection() -> None:
    exchange = Small()
    exchange.connection_made(FakeTransport())
    exchange.data_received(b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000)
    assert isinstance(exchange.transport, FakeTransport)
    assert exchange.transport.aborted


def test_a_header_is_found_whatever_its_case() -> None:
    head = b"HTTP/1.1 200 OK\r\nSeb-Next-Offset:  7 \r\nA: b"
    assert header(head, b"seb-next-offset") == b"7"
    assert header(head, b"a") == b"b"
    assert header(head, b"b") is None
