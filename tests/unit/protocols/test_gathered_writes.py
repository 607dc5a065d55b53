"""Small pieces that go out together."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess

import pytest
import uvloop

from seb_appliance.protocols.sockets.writing import GatheredWrites

TOTAL_BYTES = 2_000_000


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


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_who_waits_for_room_is_told_once_nothing_is_gathered_any_more():
    transport, seen = Transport(), []
    writes = GatheredWrites(transport, lambda: seen.append(writes.unsent_bytes))
    writes.write(b"one")
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [5]


@pytest.mark.asyncio
async def test_much_is_written_at_once():
    transport = Transport()
    GatheredWrites(transport).write(b"x" * 65_536)
    assert len(transport.written) == 1


@pytest.mark.asyncio
async def test_what_a_client_does_not_wait_for_is_dropped():
    transport = Transport()
    writes = GatheredWrites(transport)
    writes.write(b"late")
    transport.is_closed = True
    writes.flush()
    assert (transport.written, writes.unsent_bytes) == ([], 5)


@pytest.mark.asyncio
async def test_what_goes_out_by_tls_is_written_in_pieces():
    transport, data = Transport(sslcontext=object()), bytes(range(250)) * 400
    GatheredWrites(transport).write(data)
    assert b"".join(transport.written) == data
    assert max(map(len, transport.written)) <= 16_384


@pytest.mark.asyncio
async def test_pieces_of_a_slow_client_go_out_before_a_connection_with_tls_is_closed():
    transport = Transport(sslcontext=object())
    writes = GatheredWrites(transport)
    writes.pause()
    writes.write(b"held ")
    writes.write(b"back")
    await asyncio.sleep(0)
    assert (transport.written, writes.unsent_bytes) == ([], 14)
    writes.finish()
    assert (transport.written, writes.unsent_bytes) == ([b"held back"], 5)


class Sender(asyncio.Protocol):
    """Writes all at once, as a connection does."""

    def connection_made(self, transport):
        transport.set_write_buffer_limits(high=8_192, low=0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)
        self.transport = transport
        self.writes = GatheredWrites(transport)
        self.pause_writing, self.resume_writing = self.writes.pause, self.writes.resume
        self.writes.write(bytes(TOTAL_BYTES))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    file = tmp_path_factory.mktemp("tls") / "both"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
               "-subj", "/CN=localhost", "-keyout", file, "-out", "-"]  # fmt: skip
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    file.write_text(file.read_text() + shown)
    return file


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_a_client_of_tls_does_not_take_is_counted_however_little_it_reads(
    certificate, new_loop
):
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(certificate)
    ours = ssl.create_default_context(cafile=certificate)
    senders = []

    def made():
        senders.append(Sender())
        return senders[-1]

    async def counted_nowhere():
        """The most bytes, while a client reads a piece at a time."""
        server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0, ssl=theirs)
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        async with server:
            await asyncio.to_thread(plain.connect, server.sockets[0].getsockname())
            wrap = ours.wrap_socket
            client = await asyncio.to_thread(wrap, plain, server_hostname="localhost")
            with client:
                taken = most = 0
                while taken < TOTAL_BYTES:
                    taken += len(await asyncio.to_thread(client.recv, 16_384))
                    most = max(most, TOTAL_BYTES - taken - senders[0].writes.unsent_bytes)
                return most

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(counted_nowhere()) < 192 * 1_024
