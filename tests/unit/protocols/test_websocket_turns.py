"""Frames of WebSocket are taken some at a time, whatever a client sends at once."""

from __future__ import annotations

import asyncio

from seb_appliance.protocols.sockets.websocket import WebSocket

ASKED = (
    b"GET /mqtt HTTP/1.1\r\nHost: seb\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
FRAME = bytes((0x82, 0x81, 0, 0, 0, 0, ord("x")))
PING = bytes((0x89, 0x81, 0, 0, 0, 0))
MANY = 1_050


class Wire:
    """A transport. `reads`: whether the client is read."""

    def __init__(self) -> None:
        self.reads = True
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


class Taker(asyncio.Protocol):
    taken = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.taken += data


def test_while_frames_wait_for_their_turn_the_client_is_not_read() -> None:
    wire, taker, later = Wire(), Taker(), []
    carried = WebSocket(taker, wire, "mqtt", None, None, later.append)
    carried.data_received(ASKED)
    carried.data_received(FRAME * MANY)
    turns = 0
    while later:
        assert 0 < len(taker.taken) < MANY
        assert not wire.reads
        turns += 1
        later.pop()()
    assert (taker.taken, wire.reads) == (b"x" * MANY, True)
    assert turns >= 5


def test_the_client_is_read_again_once_both_have_room() -> None:
    wire, taker, later = Wire(), Taker(), []
    carried = WebSocket(taker, wire, "mqtt", None, None, later.append)
    carried.data_received(ASKED)
    carried.data_received(FRAME * 150)
    taker.transport.pause_reading()
    later.pop()()
    assert not later
    assert not wire.reads
    taker.transport.resume_reading()
    assert wire.reads


def test_of_the_pings_of_a_client_that_takes_nothing_the_last_one_is_answered() -> None:
    wire = Wire()
    carried = WebSocket(Taker(), wire, "mqtt", None, None)
    carried.data_received(ASKED)
    wire.written = b""
    carried.data_received(PING + b"a")
    assert wire.written == b"\x8a\x01a"
    carried.pause_writing()
    carried.data_received(PING + b"b" + PING + b"c")
    assert wire.written == b"\x8a\x01a"
    carried.resume_writing()
    carried.resume_writing()
    assert wire.written == b"\x8a\x01a\x8a\x01c"
