"""A task receives the next part while it uses one; the order and the errors stay."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark_seb.reading.ranges import ahead

WAIT_S = 10.0


def test_the_next_part_is_received_while_one_is_in_use() -> None:
    received = [threading.Event() for _ in range(3)]

    def parts() -> Iterator[tuple[bytes, int]]:
        for i, event in enumerate(received):
            event.set()
            yield b"part", i

    reading = ahead(parts())
    for i in range(3):
        assert next(reading) == (b"part", i)
        assert i == 2 or received[i + 1].wait(WAIT_S)
    assert list(reading) == []


def test_no_more_than_one_part_is_ahead() -> None:
    received = []

    def parts() -> Iterator[tuple[bytes, int]]:
        for i in range(10):
            received.append(i)
            yield b"part", i

    reading = ahead(parts())
    next(reading)
    reading.close()
    assert received == [0, 1]


def test_an_error_comes_after_the_parts_before_it() -> None:
    def parts() -> Iterator[tuple[bytes, int]]:
        yield b"part", 1
        raise OSError("the connection is gone")

    reading = ahead(parts())
    assert next(reading) == (b"part", 1)
    with pytest.raises(OSError, match="is gone"):
        next(reading)
