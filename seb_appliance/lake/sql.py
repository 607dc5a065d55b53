"""One SQL statement in DuckDB, which can reach nothing but the tables of its job.

DuckDB may open no file, load no extension and change no setting; its tables are read through
`_Objects`, which asks for ranges of their data files.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import io
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
from fsspec import AbstractFileSystem

from seb_appliance import limits
from seb_appliance.broker.lake.queries import SqlFiles, SqlJob, SqlRows, SqlTable

# Bytes of the object with this key: from, how many.
ReadRange = Callable[[str, int, int], bytes]

_AHEAD: Final = 256 * limits.KIB  # read at least
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
_NESTED: Final = frozenset({"array", "list", "map", "struct", "union"})
# What comes out of Arrow as another value than it was, or in DuckDB's own bytes.
_NOT_SHOWN: Final = frozenset(
    {"bignum", "bit", "time with time zone", "time_ns", "uhugeint", "variant"}
)
_ALLOWED: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


class _File(io.RawIOBase):
    """An object of the store, read by ranges. DuckDB reads one file in several threads, each of
    which sets its position before."""

    def __init__(self, read: ReadRange, key: str, size: int) -> None:
        self.size = size
        self._read_range = read
        self._key = key
        self._thread = threading.local()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return getattr(self._thread, "position", 0)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self.size}[whence]
        self._thread.position = base + offset
        return base + offset

    def read(self, size: int | None = -1) -> bytes:
        begin = self.tell()
        end = self.size if size is None or size < 0 else min(self.size, begin + size)
        if begin >= end:
            return b""
        at, data = getattr(self._thread, "piece", (0, b""))
        if not (at <= begin and end <= at + len(data)):
            at = begin
            data = self._read_range(self._key, at, min(self.size - at, max(end - at, _AHEAD)))
            self._thread.piece = at, data
        self._thread.position = end
        return data[begin - at : end - at]


class _Objects(AbstractFileSystem):  # type: ignore[misc]
    """The data files of a job; there are no others. `sizes`: by key."""

    protocol = "seb"
    cachable = False

    def __init__(self, read: ReadRange) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}
        self._read = read

    def _open(self, path: str, *_: Any, **__: Any) -> _File:
        key = path.removeprefix(_ROOT)
        return _File(self._read, key, self.sizes[key])

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": self.sizes[path.removeprefix(_ROOT)], "type": "file"}

    def exists(self, path: str, **_: Any) -> bool:
        return path.removeprefix(_ROOT) in self.sizes

    isfile = exists

    def glob(self, path: str, **_: Any) -> list[str]:
        return [path] if self.exists(path) else []

    def modified(self, *_: Any) -> dt.datetime:
        return dt.datetime(2000, 1, 1, tzinfo=dt.UTC)  # objects are immutable


class SqlDatabase:
    """A database that can reach nothing but its job. All that is loaded at first use is loaded: the
    process can open no file once it is confined."""

    def __init__(self, read: ReadRange) -> None:
        self._objects = _Objects(read)
        self._connection = duckdb.connect(":memory:", config={"threads": 1})
        self._connection.register_filesystem(self._objects)
        for setting in (
            f"memory_limit = '{limits.SQL_MEMORY_BYTES // limits.MIB}MiB'",
            "temp_directory = ''",
            "TimeZone = 'UTC'",
            "preserve_insertion_order = false",
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            f"allowed_directories = ['{_ROOT}']",
            "enable_external_access = false",
        ):
            self._connection.execute(f"SET {setting}")
        warm = "SELECT now(), 1.5::DECIMAL(9, 2), MAP {'k': 'v'::BLOB}, DATE '2000-01-01', [1]"
        assert list(_rows(self._connection.execute(warm)))

    def answer(self, job: SqlJob) -> SqlRows | str:
        """The rows, or why the statement cannot be run. Nothing can be set afterwards."""
        try:
            for table in job.tables:
                self._add(table)
            self._connection.execute("SET lock_configuration = true")
            return self._answer(job)
        except (duckdb.Error, pa.ArrowException, ValueError, RuntimeError, OverflowError) as error:
            return str(error)[: limits.SQL_ERROR_CHARACTERS]
        except MemoryError:
            return "The statement needs more memory than it may use."

    def _add(self, table: SqlTable) -> None:
        self._objects.sizes |= {key: size for one in table.files for key, size in one.objects}
        for name in table.names:
            self._connection.execute(f"CREATE VIEW {_quoted(name)} AS {_view(table)}")

    def _answer(self, job: SqlJob) -> SqlRows:
        found = self._connection.execute(self._only_statement(job.statement))
        described = found.description or ()
        for name, kind, *_ in described:
            if not _is_shown(kind):
                raise ValueError(
                    f"Column {name} has the type {kind}, which has no form in the answer: cast it, "
                    "to VARCHAR for example."
                )
        columns = [(str(one[0]), str(one[1])) for one in described]
        left = job.bytes_max - len(msgspec.json.encode(columns))
        if left < 0:
            raise ValueError(f"The names and types of the columns take {-left:,} bytes too many.")
        rows: list[bytes] = []
        is_cut = False
        for row in _rows(found):
            text = msgspec.json.encode([_plain(value) for value in row])
            left -= len(text)
            is_cut = len(rows) == job.rows_max or left < 0
            if is_cut:
                break
            rows.append(text)
        return SqlRows(columns, b"[" + b",".join(rows) + b"]", is_cut)

    def _only_statement(self, text: str) -> duckdb.Statement:
        """Raises ValueError unless the text is one statement that only reads."""
        statements = self._connection.extract_statements(text)
        if len(statements) != 1:
            raise ValueError("Send exactly one statement.")
        if statements[0].type not in _ALLOWED:
            raise ValueError(
                "Only statements that read are allowed: SELECT, WITH, FROM, DESCRIBE, SUMMARIZE, "
                "SHOW, EXPLAIN."
            )
        return statements[0]


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


def _is_shown(kind: Any) -> bool:
    """`kind`: a type of DuckDB. A map is an object in the answer, whose names are its keys."""
    if kind.id not in _NESTED:
        return kind.id not in _NOT_SHOWN
    parts = [part for _, part in kind.children if not isinstance(part, int)]  # an array's length
    return all(map(_is_shown, parts)) and not (kind.id == "map" and parts[0].id in _NESTED)


def _rows(found: duckdb.DuckDBPyConnection) -> Iterator[Sequence[Any]]:
    # As Arrow, because DuckDB's own conversion of times needs another package.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells that the rows are copied once more
        reader: pa.RecordBatchReader = found.to_arrow_reader(_BATCH)
    for batch in reader:
        yield from zip(
            *(column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns), strict=True
        )


def _plain(value: Any) -> Any:
    """As JSON has it: times in RFC 3339, bytes as text or else as base64, a fraction and an
    integer of more than 64 bits as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case decimal.Decimal() if value == value.to_integral_value() and abs(value) < 1 << 63:
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
