"""Bodies: the budget comes first, and inflating is bounded."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from seb_appliance import limits, zstd
from seb_appliance.api.server.bodies import read_body
from seb_appliance.broker.shares import OPERATOR, Shares
from seb_appliance.errors import (
    BadRequestError,
    OverloadedError,
    RequestTimeoutError,
    RequestTooLargeError,
)

MAX = 4 * limits.MIB


def sends(*parts: bytes, then_leaves: bool = False):
    """A `receive` that counts how often it was asked."""
    messages = [
        {"type": "http.request", "body": part, "more_body": i < len(parts) - 1 or then_leaves}
        for i, part in enumerate(parts)
    ]
    if then_leaves:
        messages.append({"type": "http.disconnect"})

    async def receive():
        receive.calls += 1
        return messages.pop(0)

    receive.calls = 0
    return receive


async def test_a_full_budget_refuses_before_a_byte_is_read():
    receive = sends(b"hello")
    with pytest.raises(OverloadedError):
        await read_body(
            receive, {b"content-length": b"5"}, OPERATOR, Shares("tests", 4, "bytes"), MAX
        )
    assert receive.calls == 0


async def test_a_length_over_the_limit_is_refused_before_a_byte_is_read():
    receive = sends(b"hello")
    with pytest.raises(RequestTooLargeError):
        await read_body(
            receive, {b"content-length": b"5"}, OPERATOR, Shares("tests", 100, "bytes"), 4
        )
    assert receive.calls == 0


async def test_a_chunked_body_grows_its_reservation_and_is_refused_over_the_budget():
    budget = Shares("tests", 10, "bytes")
    body, reservation = await read_body(sends(b"abc", b"def"), {}, OPERATOR, budget, MAX)
    assert (body, budget.used) == (b"abcdef", 6)
    reservation.release()
    with pytest.raises(OverloadedError):
        await read_body(sends(b"abc", b"x" * 10), {}, OPERATOR, budget, MAX)
    assert budget.used == 0


async def test_a_client_that_leaves_frees_the_reservation():
    budget = Shares("tests", 100, "bytes")
    with pytest.raises(RequestTimeoutError):
        await read_body(
            sends(b"abc", then_leaves=True), {b"content-length": b"50"}, OPERATOR, budget, MAX
        )
    assert budget.used == 0


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("size", [0, 1, limits.MIB, limits.MIB + 1, MAX])
async def test_the_reservation_holds_the_inflated_bytes(encoding, size):
    budget = Shares("tests", 2 * MAX, "bytes")
    packed = (gzip.compress if encoding == "gzip" else zstd.compress)(b"x" * size)
    headers = {b"content-encoding": encoding.encode()}
    body, reservation = await read_body(sends(packed), headers, OPERATOR, budget, MAX)
    assert (body, reservation.held, budget.used) == (b"x" * size, size, size)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_bomb_is_stopped_at_the_limit(encoding):
    pack = gzip.compress if encoding == "gzip" else zstd.compress
    bomb = pack(b"\0" * (64 * limits.MIB))
    budget = Shares("tests", 100 * limits.MIB, "bytes")
    tracemalloc.start()
    try:
        with pytest.raises(RequestTooLargeError):
            await read_body(
                sends(bomb), {b"content-encoding": encoding.encode()}, OPERATOR, budget, MAX
            )
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX
    finally:
        tracemalloc.stop()
    assert budget.used == 0


async def test_a_frame_with_a_huge_window_is_refused():
    compressor = zstd.ZstdCompressor(
        options={
            zstd.CompressionParameter.window_log: 27,
            zstd.CompressionParameter.content_size_flag: 0,
        }
    )
    frame = compressor.compress(b"x") + compressor.flush()
    with pytest.raises(BadRequestError):
        await read_body(
            sends(frame),
            {b"content-encoding": b"zstd"},
            OPERATOR,
            Shares("tests", MAX, "bytes"),
            MAX,
        )
