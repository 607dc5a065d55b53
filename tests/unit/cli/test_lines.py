"""Lines in batches: none is lost, none waits for others, and no batch is too large."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.cli.commands import records as lines
from seb_appliance.cli.commands.records import Lines
from seb_appliance.cli.errors import CommandError

MOST = limits.RECORDS_PER_REQUEST_MAX
BYTES = limits.MIB


def batches_of(path: Path, most_bytes: int = BYTES) -> list[list[bytes]]:
    with path.open("rb") as file:
        return list(Lines(file.fileno(), MOST, most_bytes).batches())


@given(st.binary(max_size=300), st.integers(1, 50))
def test_the_lines_are_those_of_the_file(tmp_path_factory, data: bytes, read_bytes: int) -> None:
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(data)
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "READ_BYTES", read_bytes)
        batches = batches_of(path, 64)
    assert [line for batch in batches for line in batch] == expected
    assert all(batches)


def test_a_batch_fits_into_a_request(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\n" * 25_000 + (b"x" * 300_000 + b"\n") * 9)
    batches = batches_of(path)
    assert max(map(len, batches)) == MOST
    assert max(sum(map(len, batch)) for batch in batches) <= BYTES


def test_a_line_does_not_wait_for_the_next_one() -> None:
    out, into = os.pipe()
    batches = Lines(out, MOST, BYTES).batches()
    for line in (b"one", b"two"):
        os.write(into, line + b"\n")
        assert next(batches) == [line]
    os.write(into, b"three")
    os.close(into)
    assert list(batches) == [[b"three"]]
    os.close(out)


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(CommandError, match="Is a directory"):
        list(Lines(folder, MOST, BYTES).batches())
    os.close(folder)
