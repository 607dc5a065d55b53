"""Runs one SQL statement in DuckDB, which can reach nothing but the tables it was given.

DuckDB may open no file, load no extension and change no setting; its tables are read through
`_Objects`, which asks the parent for bytes. The process has limits of memory and of processor time,
cannot write to a file, and ends when its parent closes the pipe.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import io
import math
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
from fsspec import AbstractFileSystem

from seb_appliance import limits
from seb_appliance.broker.lake.queries import SqlFiles, SqlJob, SqlRows, SqlTable
from seb_appliance.ops.jobs.job_process import LENGTH, frame
from seb_appliance.ops.jobs.sql.process import Range, SqlFailed

_AHEAD: Final = 256 * limits.KIB  # read at least
_BASE_BYTES: Final = 1024 * limits.MIB  # address space of Python and DuckDB without data
_ROOT: Final = "seb://"
_BATCH: Final = 500  # rows
_TYPES: Final = {
    "long": "BIGINT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "json": "VARCHAR",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMPTZ",
    "binary": "BLOB",
    "headers": "MAP(VARCHAR, BLOB)",
}
_ALLOWED: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


class _File(io.RawIOBase):
    """An object of the store, read by ranges from the parent."""

    def __init__(self, key: str, size: int) -> None:
        self.size = size
        self._key = key
        self._position = 0
        self._at, self._data = 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self.size if size < 0 else min(self.size, self._position + size)
        begin = self._position
        if begin >= end:
            return b""
        if not (self._at <= begin and end <= self._at + len(self._data)):
            length = min(self.size - begin, max(end - begin, _AHEAD))
            self._at, self._data = begin, _asked(Range(self._key, begin, length))
        self._position = end
        return self._data[begin - self._at : end - self._at]


class _Objects(AbstractFileSystem):  # type: ignore[misc]
    """The data files of the job, by their keys; there are no others."""

    protocol = "seb"
    cachable = False

    def __init__(self, job: SqlJob) -> None:
        super().__init__()
        files = (one for table in job.tables for one in table.files)
        self._sizes = {key: size for one in files for key, size in one.objects}

    def _open(self, path: str, *_: Any, **__: Any) -> _File:
        key = path.removeprefix(_ROOT)
        return _File(key, self._sizes[key])

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": self._sizes[path.removeprefix(_ROOT)], "type": "file"}

    def exists(self, path: str, **_: Any) -> bool:
        return path.removeprefix(_ROOT) in self._sizes

    isfile = exists

    def glob(self, path: str, **_: Any) -> list[str]:
        return [path] if self.exists(path) else []

    def modified(self, *_: Any) -> dt.datetime:
        return dt.datetime(2000, 1, 1, tzinfo=dt.UTC)  # objects are immutable


def _read_exactly(length: int) -> bytes:
    data = sys.stdin.buffer.read(length)
    if len(data) < length:
        os._exit(0)  # nobody waits for the answer any more
    return data


def _received(kind: type[Any]) -> Any:
    (length,) = LENGTH.unpack(_read_exactly(LENGTH.size))
    return msgspec.msgpack.decode(_read_exactly(length), type=kind)


def _send(value: object) -> None:
    try:
        sys.stdout.buffer.write(frame(value))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(0)


def _asked(what: Range) -> bytes:
    _send(what)
    data: bytes = _received(bytes)
    return data


def _confine(job: SqlJob) -> None:
    space = _BASE_BYTES + 2 * job.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds = int(limits.SQL_S_MAX) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    os.nice(10)


def _connection(job: SqlJob) -> duckdb.DuckDBPyConnection:
    """With the tables as views, and closed to everything else."""
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.register_filesystem(_Objects(job))
    for setting in (
        f"memory_limit = '{job.memory_bytes // limits.MIB}MiB'",
        "temp_directory = ''",
        "TimeZone = 'UTC'",
        "preserve_insertion_order = false",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        f"allowed_directories = ['{_ROOT}']",
        "enable_external_access = false",
    ):
        connection.execute(f"SET {setting}")
    for table in job.tables:
        query = _view(table)
        for name in table.names:
            connection.execute(f"CREATE VIEW {_quoted(name)} AS {query}")
    connection.execute("SET lock_configuration = true")
    return connection


def _view(table: SqlTable) -> str:
    if not table.files:
        columns = [f"NULL::{_TYPES[one.type]} AS {_quoted(one.name)}" for one in table.columns]
        return f"SELECT {', '.join(columns)} WHERE false"
    return " UNION ALL ".join(_of_files(table, files) for files in table.files)


def _of_files(table: SqlTable, files: SqlFiles) -> str:
    columns = [
        f"{'NULL' if name is None else _quoted(name)}::{_TYPES[one.type]} AS {_quoted(one.name)}"
        for one, name in zip(table.columns, files.columns, strict=True)
    ]
    keys = ", ".join("'" + (_ROOT + key).replace("'", "''") + "'" for key, _ in files.objects)
    return f"SELECT {', '.join(columns)} FROM read_parquet([{keys}])"  # noqa: S608, all are quoted


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _only_statement(connection: duckdb.DuckDBPyConnection, text: str) -> duckdb.Statement:
    """Raises ValueError unless the text is one statement that only reads."""
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise ValueError("Send exactly one statement.")
    if statements[0].type not in _ALLOWED:
        raise ValueError("Only statements that read are allowed: SELECT, WITH, FROM, DESCRIBE, "
                         "SUMMARIZE, SHOW, EXPLAIN.")  # fmt: skip
    return statements[0]


def _answer(job: SqlJob) -> SqlRows:
    connection = _connection(job)
    found = connection.execute(_only_statement(connection, job.statement))
    columns = [(str(one[0]), str(one[1])) for one in found.description]
    rows: list[list[Any]] = []
    left = job.bytes_max
    for row in _rows(found):
        values = [_plain(value) for value in row]
        left -= len(msgspec.json.encode(values))
        if len(rows) == job.rows_max or left < 0:
            return SqlRows(columns, rows, is_cut=True)
        rows.append(values)
    return SqlRows(columns, rows)


def _rows(found: duckdb.DuckDBPyConnection) -> Iterator[Sequence[Any]]:
    # As Arrow, because DuckDB's own conversion of times needs another package.
    for batch in found.to_arrow_reader(_BATCH):
        yield from zip(
            *(column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns), strict=True
        )


def _plain(value: Any) -> Any:
    """As JSON has it: times in RFC 3339, bytes as text or else as base64."""
    match value:
        case None | bool() | int() | str():
            return value
        case decimal.Decimal() if value == value.to_integral_value():
            return int(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            try:
                return bytes(value).decode()
            except UnicodeDecodeError:
                return base64.b64encode(value).decode()
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat().replace("+00:00", "Z")
        case dict():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case _:
            return str(value)


def main() -> None:
    job = _received(SqlJob)
    _confine(job)
    try:
        answer: SqlRows | SqlFailed = _answer(job)
    except (duckdb.Error, pa.ArrowException, ValueError, RuntimeError, OverflowError) as error:
        answer = SqlFailed(str(error)[: limits.SQL_MESSAGE_CHARACTERS])
    except MemoryError:
        answer = SqlFailed("The statement needs more memory than it may use.")
    _send(answer)
    os._exit(0)  # nothing is left to do, and nothing is to be told of on stderr


if __name__ == "__main__":
    main()
