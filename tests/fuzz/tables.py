"""Targets: lake tables, SQL on them, and the file of `seb apply`."""

from __future__ import annotations

import atexit
import json
from functools import cache
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from seb_appliance.broker.lake.queries import SqlJob
from seb_appliance.cli.profiles_file import Profiles, parse_profiles
from seb_appliance.definitions.state import PARTS, read_wanted, write_words
from seb_appliance.errors import ConfigurationError
from seb_appliance.formats.lake.columns import columns_of, format_columns, parse, suggest
from seb_appliance.formats.lake.tables import TableFile
from seb_appliance.lake.footer import footer_bytes, rows_fault
from seb_appliance.lake.rows import RowMaker
from seb_appliance.lake.sql import SqlDatabase
from seb_appliance.lake.values import ValueReader
from tests.fuzz.formats import NUMBERS
from tests.fuzz.target import Target

_COLUMNS: Final = (
    'id:long, total:double=$.total, at:timestamp=$.meta."created.at", ok:boolean, name:string, '
    "all:json=$.meta, deep:json=$.meta.a.b"
)


def check_table_columns(data: bytes) -> None:
    """The setting is written as it is read."""
    text = data.decode("utf-8", "replace")
    declared = parse(text)
    assert parse(format_columns(declared)) == declared
    columns = columns_of(text, [])
    assert columns_of(text, [columns]) == columns
    RowMaker(columns)


@cache
def _readers() -> tuple[tuple[ValueReader, RowMaker], ...]:
    texts = (_COLUMNS, f"{_COLUMNS.partition(', all')[0]}, _rest")
    made = [columns_of(text, []) for text in texts]
    declared = [tuple(one for one in columns if one.path or one.type == "json") for columns in made]
    return tuple(
        (ValueReader(some, rest=text.endswith("_rest")), RowMaker(columns))
        for text, some, columns in zip(texts, declared, made, strict=True)
    )


def check_table_values(data: bytes) -> None:
    """A value in each line. Each becomes one row, and what is wrong with it is told."""
    values: list[bytes | None] = [*data.split(b"\n"), None]
    names = ("topic", "offset", "timestamp", "key", "value", "headers")
    for _, maker in _readers():
        stored = _stored(values, maker)
        rows, bad = maker.rows_of(stored)
        rows.validate(full=True)
        assert rows.num_rows == len(values), names
        assert 0 <= bad <= len(values)
        kept = rows.column("_raw").to_pylist()
        for value, raw, error in zip(values, kept, rows.column("_error").to_pylist(), strict=True):
            assert raw is None or raw == value
            assert (value is None) or (raw is None) == (error is None)


def _stored(values: list[bytes | None], maker: RowMaker) -> pa.RecordBatch:
    count = len(values)
    columns: dict[str, Any] = {
        "offset": list(range(count)),
        "timestamp": [-(10**18)] * count,
        "key": values,
        "headers": [[] for _ in values],
        "value": values,
    }
    schema = maker._stored
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def check_table_suggestions(data: bytes) -> None:
    """What is suggested can be set, and reads all that could be read."""
    values = data.split(b"\n")
    found = suggest(values)
    if found.text:
        columns = parse(found.text).columns
        read = ValueReader(columns, rest=True).read(values, is_utf8=False)
        assert sum(error is not None for error in read.errors) <= found.unreadable


@cache
def _database() -> SqlDatabase:
    return SqlDatabase(lambda key, begin, count: b"")


atexit.register(_database.cache_clear)


def check_sql(data: bytes) -> None:
    """Nothing passes but one statement that reads."""
    text = data.decode("utf-8", "replace")
    try:
        statement = _database()._only_statement(text)
    except (duckdb.Error, ValueError, RuntimeError):
        return
    assert statement.type in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
    del statement
    job = SqlJob(text, (), 10, 1_000)
    assert job.statement == text


@cache
def _parquet_file() -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"offset": [5, 7, 9], "value": ["a", None, "c"]}), out)
    return bytes(out.getvalue())


def check_parquet(data: bytes) -> None:
    """A file of the bucket, as `seb fsck --full` reads it. Footers alone are read in a process of
    their own, because Arrow ends it for some."""
    file = TableFile("a", len(data), 3, 0, 5, 9, 0, 0, 1)
    footer_bytes(data[-8:])
    rows_fault(data, file)


def check_definitions(data: bytes) -> None:
    """The file says the same when it is written again."""
    wanted = read_wanted(data, "file")
    words = {
        part: {name: PARTS[part](one) for name, one in members.items()}
        for part, members in wanted.items()
    }
    again = read_wanted(write_words(words).encode(), "again")
    assert {
        part: {name: PARTS[part](one) for name, one in members.items()}
        for part, members in again.items()
    } == words
    json.dumps(wanted)


def check_profiles(data: bytes) -> None:
    found = parse_profiles(data, "file")
    assert isinstance(found, Profiles)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Profiles) == found


_VALUE: Final = (
    b'{"id":7,"total":1.5,"meta":{"created.at":"2026-01-01T00:00:00Z","a":{"b":[1]}},"ok":true,'
    b'"name":"h\\u00e9","more":[null]}'
)
_DEFINITIONS: Final = (
    b"""
topics:
  orders.eu:
    linger: 20ms
    retention: 7d
    table: iceberg
    table_columns: 'id:long'
    early_flush: on
  logs: {}
groups:
  g: {orders.eu: latest}
queues:
  q:
    topics: [orders.*]
    lease: 30s
    ordering: key
    retry_factor: 2
""",
    b"""
inlets:
  github:
    topic: hooks
    scheme: github
    keep_headers: [X-A]
    requests_per_second: 5
subscriptions:
  s:
    url: https://a.example/x
    topics: [t]
    batch: 5
api_keys:
  k:
    grants: ['produce:orders.**']
    expires: 2027-01-01T00:00:00Z
""",
    b'{"topics": {"a": {"linger_ms": 20, "max_record_bytes": "64KiB"}}}',
)

TARGETS: Final = (
    Target(
        "table_columns",
        check_table_columns,
        (_COLUMNS.encode(), b"id:long, _rest", b'a:string=$."x y"."z",', b""),
        (b":long", b":json=$", b"=$.", b'"', b",", b"_rest", b"_raw", b"timestamp"),
        (ValueError,),
    ),
    Target(
        "table_values",
        check_table_values,
        (_VALUE, _VALUE + b'\n[]\n{"id":1.0}\n\n{"id":"x","meta":5}', b"null"),
        (
            b'"id":',
            b"1e400",
            b"9" * 400,
            b"0001-01-01T00:00:00+23:59",
            b"\\ud800",
            b"[" * 999,
            b"-0",
            b"9007199254740993.0",
            b'"meta":{',
            b"null",
        ),
        is_slow=True,
    ),
    Target(
        "table_suggestions",
        check_table_suggestions,
        (_VALUE, b'{"a":1}\n{"a":1.5}\n{"a":"2026-01-01T00:00:00Z"}', b'{"a-b":1,"A_b":{"c":2}}'),
        (b'"id":', b"9" * 30, b"1e400", b"null", b'"a.b":', b'"_rest":', b"true", b"{", b"}"),
    ),
    Target(
        "sql",
        check_sql,
        (
            b"SELECT customer, sum(total) FROM orders_eu GROUP BY 1",
            b'WITH a AS (FROM "orders.eu") SELECT * FROM a; ',
            b"EXPLAIN SELECT 1; COPY a TO 'x'",
            b"PRAGMA x; SET a = 1; ATTACH 'b'",
        ),
        (b"SELECT", b";", b"COPY", b"INSTALL", b"'", b'"', b"(" * 200, b"--", b"/*", b"$$", b"\0"),
        is_slow=True,
    ),
    Target("parquet", check_parquet, (_parquet_file(),), (*NUMBERS, b"PAR1"), is_slow=True),
    Target(
        "definitions",
        check_definitions,
        _DEFINITIONS,
        (
            b"topics:\n",
            b"  a: ",
            b"&a ",
            b"*a",
            b"!!str ",
            b"? ",
            b"- ",
            b"|\n",
            b">-\n",
            b"---\n",
            b"{",
            b"[",
            b"'",
            b'"\\u2028"',
            b"#",
            b"default",
            b"never",
            b"unlimited",
            b"0001-01-01",
        ),
        (ConfigurationError,),
        is_slow=True,
    ),
    Target(
        "profiles",
        check_profiles,
        (
            b'default = "a"\n[profiles.a]\nurl = "http://127.0.0.1:5"\nkey_file = "~/k"\n',
            b'[profiles."b"]\nurl = "https://[::1]"\nkey_command = "pass seb"\n',
        ),
        (b'url = "', b"[profiles.", b"://", b"]", b"key = ", b"1979-05-27", b"inf"),
        (ConfigurationError,),
    ),
)
