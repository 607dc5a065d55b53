"""JSON values as declared columns: what each type takes, and what a row is that cannot be read."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.formats.lake.columns import columns_of, parse
from seb_appliance.formats.lake.tables import FIRST_DECLARED_ID
from seb_appliance.lake.values import ValueReader
from tests.unit.lake.samples import Record, values, written

LATEST = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
EARLIEST = datetime(1, 1, 1, tzinfo=UTC)


def read(text: str, *items: bytes | None) -> list[dict[str, Any]]:
    """What the reader gives for each value: columns by name, and `_rest`, `_raw`, `_error`."""
    declared = parse(text)
    reader = ValueReader(columns_of(text, [])[5:][: len(declared.columns)], rest=declared.rest)
    found = reader.read(items, is_utf8=False)
    names = [column.name for column in declared.columns]
    rows = []
    for i in range(len(items)):
        row = {name: column[i] for name, column in zip(names, found.columns, strict=True)}
        row |= {} if found.rest is None else {"_rest": found.rest[i]}
        rows.append(row | {"_raw": found.raw[i], "_error": found.errors[i]})
    return rows


def column(text: str, *items: bytes) -> list[Any]:
    """The first column of values of its own."""
    name = parse(text).columns[0].name
    return [read(text, item)[0][name] for item in items]


def errors(text: str, *items: bytes) -> list[str | None]:
    return [read(text, item)[0]["_error"] for item in items]


# --- what a type takes ---


def test_a_long_is_any_whole_number_of_64_bits() -> None:
    taken = [b"1", b"-0", b"9223372036854775807", b"-9223372036854775808", b"1.0", b"2e3"]
    assert column("a:long=$.a", *(b'{"a":%b}' % one for one in taken)) == [
        1, 0, 2**63 - 1, -(2**63), 1, 2000,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "number",
    [
        b"9223372036854775808",
        b"-9223372036854775809",
        b"1" + b"0" * 400,
        b"1e400",
        b"1e16",
        b"1.5",
        b'"1"',
        b"true",
        b"[1]",
    ],
)
def test_a_long_is_no_other_number(number: bytes) -> None:
    told = "column a: $.a is not a whole number of 64 bits"
    assert errors("a:long", b'{"a":%b}' % number) == [told]


def test_a_double_is_any_finite_number() -> None:
    taken = [b"1", b"-0.0", b"1e-400", b"18446744073709551616", b"1.7976931348623157e308"]
    assert column("a:double", *(b'{"a":%b}' % one for one in taken)) == [
        1.0, 0.0, 0.0, 2.0**64, 1.7976931348623157e308,
    ]  # fmt: skip
    refused = [b"1e400", b"1" + b"0" * 400, b'"1"', b"true"]
    told = "column a: $.a is not a finite number"
    assert errors("a:double", *(b'{"a":%b}' % one for one in refused)) == [told] * 4


def test_a_string_is_a_text_and_nothing_else() -> None:
    assert column("a:string", b'{"a":""}', b'{"a":"\\u0000\\ud83d\\ude00"}') == ["", "\0😀"]
    refused = [b"1", b"true", b"{}", b"[]"]
    told = "column a: $.a is not a text"
    assert errors("a:string", *(b'{"a":%b}' % one for one in refused)) == [told] * 4


def test_a_boolean_is_true_or_false() -> None:
    assert column("a:boolean", b'{"a":true}', b'{"a":false}') == [True, False]
    told = "column a: $.a is neither true nor false"
    assert errors("a:boolean", b'{"a":0}', b'{"a":"true"}') == [told] * 2


def test_a_timestamp_has_a_zone(tmp_path: Path) -> None:
    taken = [
        b'{"a":"2026-11-21T10:00:00.5Z"}',
        b'{"a":"2026-11-21t12:00:00+02:00"}',
        b'{"a":"2026-11-21 10:00:00.000000900z"}',
    ]
    rows = written(tmp_path, "a:timestamp", values(*taken)).rows
    ten = datetime(2026, 11, 21, 10, tzinfo=UTC)
    microsecond = timedelta(microseconds=1)
    assert [row["a"] - ten for row in rows] == [500_000 * microsecond, 0 * microsecond, microsecond]
    refused = [b"2026-11-21T10:00:00", b"2026-11-21", b"2026-11-21T23:59:60Z", b"now", b""]
    told = "column a: $.a is not a time with a zone (RFC 3339)"
    assert errors("a:timestamp", *(b'{"a":"%b"}' % one for one in refused)) == [told] * 5
    assert errors("a:timestamp", b'{"a":1700000000}') == [told]


def test_a_time_whose_zone_takes_it_out_of_the_calendar_stays_in_it(tmp_path: Path) -> None:
    taken = [b'{"a":"0001-01-01T00:00:00+05:00"}', b'{"a":"9999-12-31T23:59:59-05:00"}', b"{}"]
    rows = written(tmp_path, "a:timestamp", values(*taken)).rows
    assert [row["a"] for row in rows] == [EARLIEST, LATEST, None]


def test_json_is_the_text_of_any_value() -> None:
    taken = [b'{ "x" : 1 }', b"[1, 2]", b'"a"', b"1e400", b"true"]
    assert column("a:json", *(b'{"a": %b }' % one for one in taken)) == taken
    assert column("a:json", b'{"a":null}', b"{}") == [None, None]


def test_the_whole_value_may_be_of_any_kind() -> None:
    assert column("a:json=$", b" [1]\n", b"5", b'{"a":1}', b"null") == [
        b"[1]", b"5", b'{"a":1}', None,
    ]  # fmt: skip


def test_a_member_that_is_missing_or_null_is_null() -> None:
    text = "a:long, b:string=$.x.y, c:json=$.x"
    for value in (b"{}", b'{"a":null,"x":null}', b"null"):
        assert read(text, value) == [
            {"a": None, "b": None, "c": None, "_raw": None, "_error": None}
        ]


def test_columns_may_take_parts_of_what_another_one_takes() -> None:
    text = "all:json=$, user:json, id:long=$.user.id, id_text:json=$.user.id"
    [row] = read(text, b'{"user":{"id":7}}')
    assert list(row.values()) == [b'{"user":{"id":7}}', b'{"id":7}', 7, b"7", None, None]


def test_the_last_of_two_members_with_one_name_counts() -> None:
    text = "a:long, b:long=$.o.b, _rest"
    [row] = read(text, b'{"a":"x","c":1,"o":{"b":1},"a":2,"c":2,"o":{"d":3}}')
    assert row == {
        "a": 2, "b": None, "_rest": b'{"c":2,"o":{"d":3}}', "_raw": None, "_error": None,
    }  # fmt: skip


def test_the_rest_is_what_no_column_takes() -> None:
    text = "a:long, b:long=$.o.p.b, _rest"
    [some, none] = read(
        text, b'{"a":1,"o":{"x":[1, 2],"p":{"b":1}},"\\u00e4":"\\ud83d\\ude00"}', b'{"a":1}'
    )
    assert some["_rest"] == '{"ä":"\\ud83d\\ude00","o":{"x":[1, 2]}}'.encode()
    assert none["_rest"] is None


def test_only_the_rest_may_be_declared(tmp_path: Path) -> None:
    [row, other] = written(tmp_path, "_rest", values(b'{"a": 1}', b"[1]")).rows
    assert (row["_rest"], row["_error"]) == ('{"a":1}', None)
    assert (other["_raw"], other["_error"]) == (b"[1]", "the value is not an object")


# --- rows that cannot be read ---


def test_a_tombstone_is_told_from_a_value_without_the_members(tmp_path: Path) -> None:
    [tombstone, empty] = written(tmp_path, "a:long", [Record(0, None), Record(1, b"{}")]).rows
    assert (tombstone["a"], tombstone["_raw"], tombstone["_error"]) == (None, None, "no value")
    assert (empty["a"], empty["_raw"], empty["_error"]) == (None, None, None)


def test_what_can_be_read_of_a_row_is_there(tmp_path: Path) -> None:
    value = b'{"a":"x","b":2,"c":3,"o":[]}'
    found = written(tmp_path, "a:long, b:long, d:long=$.o.d, _rest", values(value, b'{"a":1}'))
    [row, other] = found.rows
    assert (row["a"], row["b"], row["d"], row["_rest"]) == (None, 2, None, '{"c":3}')
    assert row["_raw"] == value
    assert row["_error"] == (
        "column a: $.a is not a whole number of 64 bits; column d: $.o is not an object"
    )
    assert (other["_raw"], other["_error"]) == (None, None)
    assert (found.file.records, found.file.bad) == (2, 1)


def test_an_error_names_five_columns_at_most() -> None:
    text = ",".join(f"a{i}:long" for i in range(8))
    value = json.dumps({f"a{i}": "x" for i in range(8)}).encode()
    [told] = errors(text, value)
    assert told is not None
    assert told.endswith("; and 3 more")
    assert told.count("column ") == 5


DEEP = b"[" * 100_000
CORPORA: dict[str, list[tuple[bytes, str | None]]] = {
    "invalid UTF-8": [
        (b'{"a":"\xff"}', "the value is not UTF-8"),
        (b'{"unread":"\xff"}', "the value is not UTF-8"),
        (b'{"\xff":1}', "the value is not UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "the value is not UTF-8"),
        (b"\xff\xfe{\x00}\x00", "the value is not UTF-8"),
    ],
    "numbers without end": [
        (b'{"n":1' + b"0" * 400 + b"}", "column n: $.n is not a finite number"),
        (b'{"n":1e400}', "column n: $.n is not a finite number"),
        (b'{"i":1' + b"0" * 400 + b"}", "column i: $.i is not a whole number of 64 bits"),
        (b'{"i":' + b"9" * 100_000 + b"}", "column i: $.i is not a whole number of 64 bits"),
        (b'{"unread":1e400}', None),
    ],
    "no numbers": [
        (b'{"n":NaN}', "the value is not JSON"),
        (b'{"unread":-Infinity}', "the value is not JSON"),
        (b'{"n":01}', "the value is not JSON"),
        (b'{"n":.5}', "the value is not JSON"),
    ],
    "nested": [
        (b'{"j":' + b"[" * 500 + b"]" * 500 + b"}", None),
        (b'{"unread":' + b'{"a":' * 500 + b"1" + b"}" * 501, None),
        (b'{"j":' + DEEP + b"]" * len(DEEP) + b"}", "the value is nested too deep"),
        (DEEP, "the value is nested too deep"),
    ],
    "two members of one name": [
        (b'{"i":1,"i":2}', None),
        (b'{"i":"x","i":2}', None),
        (b'{"i":2,"i":"x"}', "column i: $.i is not a whole number of 64 bits"),
    ],
    "times without a zone": [
        (b'{"t":"2026-11-21T10:00:00"}', "column t: $.t is not a time with a zone (RFC 3339)"),
        (b'{"t":"2026-02-30T10:00:00Z"}', "column t: $.t is not a time with a zone (RFC 3339)"),
        (b'{"t":1700000000}', "column t: $.t is not a time with a zone (RFC 3339)"),
    ],
    "wrong types": [
        (b'{"a":1}', "column a: $.a is not a text"),
        (b'{"n":"1"}', "column n: $.n is not a finite number"),
        (b'{"b":1}', "column b: $.b is neither true nor false"),
        (b'{"o":1}', "column x: $.o is not an object"),
        (b'{"o":{"x":1.5}}', "column x: $.o.x is not a whole number of 64 bits"),
    ],
    "nothing": [
        (b"", "the value is empty"),
        (b" ", "the value is not JSON"),
        (b"{}", None),
        (b"null", None),
    ],
    "halves of surrogate pairs": [
        (b'{"a":"\\ud800"}', "the value is not JSON"),
        (b'{"unread":"\\udc00"}', "the value is not JSON"),
        (b'{"\\ud800":1}', "the value is not JSON"),
        (b'{"a":"\\ud83d\\ude00"}', None),
    ],
    "no objects": [
        (b"[1]", "column a, i, n, b, t: the value is not an object"),
        (b"1", "column a, i, n, b, t: the value is not an object"),
        (b'"x"', "column a, i, n, b, t: the value is not an object"),
        (b"{} {}", "the value is not JSON"),
        (b'{"a":1,}', "the value is not JSON"),
        (b"\xef\xbb\xbf{}", "the value is not JSON"),
        (b'{"a":"x"', "the value is not JSON"),
        (b"\x00" * 100, "the value is not JSON"),
    ],
}
ALL = "a:string, i:long, n:double, b:boolean, t:timestamp, j:json, x:long=$.o.x"


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("rest", ["", ", _rest"])
def test_no_value_blocks_a_file_and_each_says_what_is_wrong(
    corpus: str, rest: str, tmp_path: Path
) -> None:
    """Between rows that can be read, and each of those is as if it were alone."""
    good = b'{"a":"x","i":1,"n":1,"b":true,"t":"2026-11-21T10:00:00Z","j":[],"o":{"x":1}}'
    items: list[bytes | None] = [good, None]
    for value, _ in CORPORA[corpus]:
        items += [value, good]
    found = written(tmp_path, ALL + rest, values(*items))
    assert [row["offset"] for row in found.rows] == list(range(len(items)))
    first = {**found.rows[0], "offset": 0}
    assert first["_error"] is None
    for row, item in zip(found.rows, items, strict=True):
        if item == good:
            assert {**row, "offset": 0} == first
    told = [row["_error"] for row in found.rows[2::2]]
    assert told == [error for _, error in CORPORA[corpus]]
    raws = [row["_raw"] for row in found.rows[2::2]]
    assert raws == [value if error else None for value, error in CORPORA[corpus]]
    assert found.file.bad == sum(error is not None for error in told)


# --- the same as a plain model ---

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
TIMES = st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.integers(2**63 - 3, 2**63 + 3) | st.floats()
    | st.text(max_size=5) | TIMES
)  # fmt: skip
KEYS = st.sampled_from(["a", "i", "n", "b", "t", "j", "o", "x", "é", ""])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)
TEXTS = st.booleans().flatmap(
    lambda ascii_only: VALUES.map(
        lambda value: json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")).encode()
    )
)
BYTES = st.none() | TEXTS | st.dictionaries(KEYS, SCALARS).map(lambda x: json.dumps(x).encode())


def refuse(text: str) -> float:
    raise ValueError(text)


def modelled(kind: str, value: Any) -> Any:
    """The item of a column, or ValueError."""
    if kind == "json":
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "long" and is_number:
        if isinstance(value, float) and not (value.is_integer() and abs(value) <= 2**53):
            raise ValueError
        if -(2**63) <= value < 2**63:
            return int(value)
    if kind == "double" and is_number and abs(value) <= 1.7976931348623157e308:
        return float(value)
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "timestamp" and isinstance(value, str) and TIME.fullmatch(value):
        return datetime.fromisoformat(value)
    raise ValueError


def at_path(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if tree is None:
            return None
        try:
            tree = tree.get(name)
        except AttributeError as error:
            raise ValueError(name) from error
    return tree


def model(text: str, value: bytes | None) -> tuple[dict[str, Any], Any, bool]:
    """Columns, the rest as an object, and whether the row is bad; `json` as objects."""
    declared = parse(text).columns
    row = dict.fromkeys((one.name for one in declared), None)
    if value is None:
        return row, {}, False
    try:
        tree = json.loads(value, parse_constant=refuse)
    except ValueError:
        return row, {}, True
    bad = False
    for one in declared:
        try:
            member = at_path(tree, one.path)
            row[one.name] = None if member is None else modelled(one.type, member)
        except ValueError:
            bad = True
    rest = dict(tree) if isinstance(tree, dict) else {}
    for one in declared:
        rest.pop(one.path[0], None)
    inner = tree.get("o") if isinstance(tree, dict) else None
    if isinstance(inner, dict) and (left := {k: v for k, v in inner.items() if k != "x"}):
        rest["o"] = left
    return row, rest, bad


def plain(kind: str, item: Any) -> Any:
    return json.loads(item) if kind == "json" and item is not None else item


@given(st.lists(BYTES, min_size=1, max_size=8))
def test_rows_are_what_a_plain_model_says(
    tmp_path_factory: pytest.TempPathFactory, items: list[bytes | None]
) -> None:
    text = f"{ALL}, _rest"
    rows = written(tmp_path_factory.mktemp("rows"), text, values(*items)).rows
    assert [row["offset"] for row in rows] == list(range(len(items)))
    for row, value in zip(rows, items, strict=True):
        wanted, rest, bad = model(text, value)
        found = {one.name: plain(one.type, row[one.name]) for one in parse(text).columns}
        assert found == wanted
        assert json.loads(row["_rest"] or "{}") == rest
        assert row["_raw"] == (value if bad else None)
        assert (row["_error"] is None) == (not bad and value is not None)


@given(st.dictionaries(KEYS, VALUES, max_size=8))
def test_a_row_with_one_bad_member_is_otherwise_read_as_if_it_were_good(
    members: dict[str, Any],
) -> None:
    """The generated decoders and the way member by member agree."""
    [fast] = read(f"{ALL}, never:long, _rest", json.dumps(members).encode())
    [slow] = read(f"{ALL}, never:long, _rest", json.dumps({**members, "never": "x"}).encode())
    assert slow.pop("_error")
    assert slow.pop("_raw")
    assert slow == {name: item for name, item in fast.items() if name not in ("_raw", "_error")}


def test_declared_columns_come_after_those_of_every_record() -> None:
    assert [one.field_id for one in columns_of(ALL, [])[5:-2]] == list(
        range(FIRST_DECLARED_ID, FIRST_DECLARED_ID + 7)
    )
