"""Runs one SQL statement for its parent, and ends.

The kernel refuses files, network and other programs to the process (confine.py) and bounds its
memory and its processor time; it ends with its pipe.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.lake.queries import SqlJob
from seb_appliance.lake.sql import SqlDatabase
from seb_appliance.ops.jobs.job_process import LENGTH, frame
from seb_appliance.ops.jobs.sql.confine import confine
from seb_appliance.ops.jobs.sql.process import Range, SqlFailed

_NICE: Final = 10
_asking = threading.Lock()  # DuckDB reads in several threads


def _read_exactly(length: int) -> bytes:
    data = sys.stdin.buffer.read(length)
    if len(data) < length:
        os._exit(0)  # nobody waits for the answer any more
    return data


def _read_frame() -> bytes:
    (length,) = LENGTH.unpack(_read_exactly(LENGTH.size))
    return _read_exactly(length)


def _send(value: object) -> None:
    try:
        sys.stdout.buffer.write(frame(value))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(0)


def _read(key: str, at: int, length: int) -> bytes:
    with _asking:
        _send(Range(key, at, length))
        return _read_frame()


def main() -> None:
    database = SqlDatabase(_read)
    os.nice(_NICE)
    confine(2 * limits.SQL_MEMORY_BYTES, int(limits.SQL_S_MAX) + 1)
    found = database.answer(msgspec.msgpack.decode(_read_frame(), type=SqlJob))
    _send(SqlFailed(found) if isinstance(found, str) else found)
    os._exit(0)  # nothing is left to do, and nothing is to be told of on stderr


if __name__ == "__main__":
    main()
