"""Small pieces that go out together."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance.protocols.sockets.writing import GatheredWrites

pytestmark = pytest.mark.asyncio


class Transport:
    """uvloop's raises where it is closed."""

    def __init__(self, **info):
        self.written, self.is_closed = [], False
        self.get_extra_info = info.get

    def write(self, data):
        if self.is_closed:
            raise RuntimeError("the handler is closed")
        self.written.append(data)

    def is_closing(self):
        return self.is_closed

    def get_write_buffer_size(self):
        return 5


async def test_pieces_of_one_turn_are_written_together_in_their_order():
    transport = Transport()
    writes = GatheredWrites(transport)
    writes.write(b"one ")
    writes.write(b"two")
    assert (transport.written, writes.unsent_bytes) == ([], 12)
    await asyncio.sleep(0)
    assert (transport.written, writes.unsent_bytes) == ([b"one two"], 5)
    writes.write(b"three")
    await asyncio.sleep(0)
    assert transport.written == [b"one two", b"three"]


async def test_who_waits_for_room_is_told_once_nothing_is_gathered_any_more():
    transport, seen = Transport(), []
    writes = GatheredWrites(transport, lambda: seen.append(writes.unsent_bytes))
    writes.write(b"one")
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [5]


async def test_much_is_written_at_once():
    transport = Transport()
    GatheredWrites(transport).write(b"x" * 65_536)
    assert len(transport.written) == 1


async def test_what_a_client_does_not_wait_for_is_dropped():
    transport = Transport()
    writes = GatheredWrites(transport)
    writes.write(b"late")
    transport.is_closed = True
    writes.flush()
    assert (transport.written, writes.unsent_bytes) == ([], 5)


async def test_what_goes_out_by_tls_is_written_in_pieces_so_that_little_is_counted_nowhere():
    transport, data = Transport(sslcontext=object()), bytes(range(250)) * 400
    GatheredWrites(transport).write(data)
    assert b"".join(transport.written) == data
    assert max(map(len, transport.written)) <= 16_384
