"""A statement of SQL in the process that runs it, and what the appliance gives to that."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest

from seb_appliance import limits
from seb_appliance.broker.lake.queries import SqlJob, SqlRows
from seb_appliance.lake.sql import SqlDatabase
from seb_appliance.ops.jobs.job_process import LENGTH
from seb_appliance.ops.jobs.sql.process import _give


def answer(statement: str, bytes_max: int = limits.SQL_ANSWER_BYTES) -> SqlRows | str:
    return SqlDatabase(lambda *_: b"").answer(SqlJob(statement, (), 10, bytes_max))


def test_rows_come_as_json() -> None:
    found = answer("SELECT i, NULL, 'é' FROM range(11) r(i)")
    assert isinstance(found, SqlRows)
    assert found.rows == b"[" + b",".join(b'[%d,null,"\xc3\xa9"]' % i for i in range(10)) + b"]"
    assert found.is_cut


def test_numbers_and_times_come_as_they_are() -> None:
    found = answer(
        "SELECT 1.50::DECIMAL(9, 2), 18446744073709551615::UBIGINT, [-(1::HUGEINT << 100)], "
        "'NaN'::DOUBLE, TIMESTAMPTZ '2020-01-01 10:00:00+05:30', MAP {1.5: NULL}, "
        "TIMESTAMP_NS '2020-01-01 10:00:00.123456789', [1, 2]::INTEGER[2]"
    )
    assert isinstance(found, SqlRows), found
    (row,) = msgspec.json.decode(found.rows)
    assert row[:4] == ["1.50", 2**64 - 1, [str(-(2**100))], "nan"]
    assert row[4:6] == ["2020-01-01T04:30:00Z", {"1.5": None}]
    assert row[6:] == ["2020-01-01T10:00:00.123456789", [1, 2]]


@pytest.mark.parametrize(
    "value",
    [
        "340282366920938463463374607431768211455::UHUGEINT",  # was -1
        "'10:11:12+05:30'::TIMETZ",  # was 10:11:12
        "TIME_NS '10:11:12.123456789'",
        "'101'::BIT",
        "123456789012345678901234567890123456789012::BIGNUM",
        "5::VARIANT",
        "[{'a': union_value(n := 1::UHUGEINT)}]",
        "MAP {[1]: 2}",
        "[MAP {{'a': 1}: 2}]",
    ],
)
def test_a_value_that_would_come_as_another_one_is_refused(value: str) -> None:
    found = answer(f"SELECT {value} AS found")
    assert isinstance(found, str)
    assert found.startswith("Column found has the type "), found
    assert isinstance(answer(f"SELECT ({value})::VARCHAR AS found"), SqlRows)


def test_names_and_types_of_columns_count_as_bytes_of_the_answer() -> None:
    many = ", ".join(["x"] * 100)
    statement = f"SELECT {many} FROM (SELECT NULL::ENUM('{'a' * 1_000}') x) LIMIT 0"
    assert isinstance(answer(statement, 200_000), SqlRows)
    found = answer(statement, 50_000)
    assert isinstance(found, str)
    assert found.startswith("The names and types of the columns take ")


async def test_no_piece_of_a_range_holds_the_event_loop_for_long() -> None:
    pieces = list[bytes]()

    async def drain() -> None: ...

    pipe = SimpleNamespace(write=pieces.append, drain=drain)
    data = bytes(range(256)) * 5_000
    await _give(SimpleNamespace(stdin=pipe), data)  # type: ignore[arg-type]
    assert b"".join(pieces) == LENGTH.pack(len(data)) + data
    assert max(map(len, pieces)) <= 256 * limits.KIB


def test_the_process_of_a_statement_sends_no_signal() -> None:
    """Not even to the appliance, which has the same user."""
    code = """
import ctypes, os
from seb_appliance.ops.jobs.sql.confine import _DENIED, confine
libc, parent, place = ctypes.CDLL(None), os.getppid(), os.uname().machine != "x86_64"
calls = [_DENIED[name][place] for name in ("kill", "tkill", "tgkill")]
confine(1 << 28, 60)
print([libc.syscall(calls[0], parent, 0), libc.syscall(calls[1], parent, 0)])
print(libc.syscall(calls[2], parent, parent, 0))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert found.stdout.split() == [b"[-1,", b"-1]", b"-1"], found.stderr
