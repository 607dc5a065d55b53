"""The setting `table_columns`: what it declares, what it refuses, and what is suggested."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.formats.lake.columns import (
    TYPES,
    Declared,
    check_copies,
    columns_of,
    format_columns,
    parse,
    suggest,
)
from seb_appliance.formats.lake.tables import FIRST_DECLARED_ID, Column

MEMBERS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=32)
)
NAMES = st.from_regex(r"c_[A-Za-z0-9_]{0,20}", fullmatch=True)
COLUMNS = st.builds(
    lambda name, kind, path: Column(0, name, kind, tuple(path)),
    NAMES,
    st.sampled_from(TYPES),
    st.lists(MEMBERS, min_size=1, max_size=4),
)


def ids(columns: tuple[Column, ...]) -> dict[str, int]:
    return {one.name: one.field_id for one in columns if one.field_id >= FIRST_DECLARED_ID}


def test_a_column_has_a_name_a_type_and_the_path_of_a_member() -> None:
    assert parse('a:long, b : json = $ , c:string=$.x."y.z, =[0]".w').columns == (
        Column(0, "a", "long", ("a",)),
        Column(0, "b", "json", ()),
        Column(0, "c", "string", ("x", "y.z, =[0]", "w")),
    )


def test_no_text_declares_nothing() -> None:
    assert parse("  ") == Declared((), rest=False)


def test_the_rest_is_asked_for_by_its_name() -> None:
    assert parse("a:long, _rest").rest
    assert parse("_rest") == Declared((), rest=True)


@given(st.lists(COLUMNS, max_size=8, unique_by=lambda one: one.name.lower()), st.booleans())
def test_what_is_declared_is_written_as_text_and_read_again(
    columns: list[Column], rest: bool
) -> None:
    declared = Declared(tuple(columns), rest)
    assert parse(format_columns(declared)) == declared


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a", "Column 1 (a): the type '' is none of long,"),
        ("a:int", "Column 1 (a): the type 'int' is none of long,"),
        ("a:binary", "Column 1 (a): the type 'binary' is none of long,"),
        ("1a:long", "Column 1 (1a): a name is a letter"),
        ("a b:long", "Column 1 (a b): a name is a letter"),
        (f"{'a' * 129}:long", "a name is a letter"),
        ("a:long, Offset:long", "Column 2 (Offset): the name is reserved"),
        ("_rest:json", "Column 1 (_rest): the name is reserved"),
        ("a:long, A:json", "Column 2 (A): another column has this name"),
        ("a:long=x", "Column 1 (a): the path 'x' does not begin with $"),
        ("a:long=$", "Column 1 (a): only the type json takes the whole value"),
        ("a:long=$.b[0]", "Column 1 (a): the path '$.b[0]' is not like"),
        ("a:long=$..b", "Column 1 (a): the path '$..b' is not like"),
        ("a:long=$.b.", "Column 1 (a): the path '$.b.' is not like"),
        ('a:long=$."b\\"', "Column 1 (a): the path"),
        ('a:long=$."b', "A quotation mark is not closed"),
        (f"a:long=${'.a' * 17}", "Column 1 (a): the path has more than 16 members"),
        ("a:long,,b:long", "Column 2 is empty"),
        ("a:long,", "Column 2 is empty"),
        ("_rest, _rest", "Column 2: _rest is named twice"),
        ("a:json=$, _rest", "_rest would be empty"),
        (",".join(f"a{i}:long" for i in range(limits.TABLE_COLUMNS_MAX + 1)), "201 columns"),
        (" " * (limits.TABLE_COLUMNS_LENGTH_MAX + 1), "The columns are 16001 characters"),
    ],
)
def test_a_wrong_text_is_refused_and_its_column_named(text: str, told: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # its text is looked at
        parse(text)
    assert told in str(refused.value)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse(text)


def test_few_columns_take_the_same_member() -> None:
    most = limits.TABLE_COLUMNS_OF_MEMBER_MAX
    whole = [f"all{number}:json=$" for number in range(most - 1)]
    check_copies(parse(", ".join([*whole, "a:long", "b:string"])))
    for text in (
        ", ".join([*whole, "x:json=$.x", "y:long=$.x.y"]),
        ", ".join([*whole, "x:json=$", "y:long"]),
    ):
        with pytest.raises(ValueError, match=rf"^Column y: {most + 1} columns take this member"):
            check_copies(parse(text))


def test_a_column_keeps_its_field_id_and_a_changed_one_gets_a_new_one() -> None:
    first = columns_of("a:long, b:long", [])
    second = columns_of("b:long, c:long", [first])
    third = columns_of("c:long, b:double, a:long", [first, second])
    assert ids(first) == {"a": 16, "b": 17}
    assert ids(second) == {"b": 17, "c": 18}
    assert ids(third) == {"c": 18, "b": 19, "a": 16}


def test_no_field_id_is_used_for_two_columns() -> None:
    schemas: list[tuple[Column, ...]] = []
    for text in ("a:long", "a:double", "", "a:string", "a:long, b:long", "b:long=$.c", "b:long"):
        schemas.append(columns_of(text, schemas))
    owners: dict[int, set[tuple[str, str, tuple[str, ...]]]] = {}
    for columns in schemas:
        for one in columns:
            owners.setdefault(one.field_id, set()).add((one.name, one.type, one.path))
    assert all(len(owner) == 1 for owner in owners.values())


# --- suggestions ---


def suggested(*values: object) -> str:
    return suggest(json.dumps(value).encode() for value in values).text


def test_types_are_those_that_all_values_fit() -> None:
    assert suggested(
        {"a": 1, "b": 1, "c": True, "d": "2026-11-21T10:00:00Z", "e": "x", "f": [1], "g": 1},
        {"a": 2, "b": 1.5, "c": None, "d": "2026-11-21T10:00:00+01:00", "e": "2026", "g": "1"},
    ) == ("a:long, b:double, c:boolean, d:timestamp, e:string, f:json, g:json, _rest")


def test_a_time_without_a_zone_and_a_number_beyond_64_bits_are_no_timestamp_and_no_long() -> None:
    assert suggested({"a": "2026-11-21T10:00:00", "b": 10**30}) == "a:string, b:double, _rest"


def test_a_number_beyond_a_double_is_json() -> None:
    assert suggest([b'{"a":1}', b'{"a":%b}' % (b"9" * 310)]).text == "a:json, _rest"


def test_members_of_an_object_become_columns_and_deeper_ones_are_json() -> None:
    assert suggested({"user": {"id": 1, "at": {"x": 1}}}) == (
        "user_id:long=$.user.id, user_at:json=$.user.at, _rest"
    )


def test_what_is_not_always_an_object_is_json() -> None:
    assert suggested({"a": {"b": 1}}, {"a": 3}) == "a:json, _rest"


def test_a_member_that_one_record_in_two_hundred_has_is_left_to_the_rest() -> None:
    rows: list[object] = [{"a": 1}] * 199
    assert suggested(*rows, {"a": 1, "rare": 1}) == "a:long, _rest"


def test_an_object_whose_members_are_rare_is_one_column() -> None:
    assert suggested(*({"a": {f"k{i}": 1}} for i in range(200))) == "a:json, _rest"


def test_names_that_a_column_cannot_have_are_changed() -> None:
    assert suggested({"offset": 1, "a-b": 1, "a b": 1, "A_b": 1, "1": 1, 'no"': 1}) == (
        'offset_2:long=$.offset, a_b:long=$.a-b, a_b_2:long=$."a b", A_b_3:long=$.A_b, '
        "_1:long=$.1, _rest"
    )


def test_what_is_no_object_is_counted_and_tombstones_are_not() -> None:
    values = [b'{"a":1}', b"", b"NaN", b"[1]", b'"\xff"', b"[" * 100_000, None]
    found = suggest(values)
    assert (found.looked_at, found.unreadable, found.text) == (6, 5, "a:long, _rest")


def test_nothing_is_suggested_where_nothing_is_an_object() -> None:
    assert suggest([b"1", None]).text == ""


def test_each_suggested_column_has_an_example() -> None:
    [one, other] = suggest([b'{"a":null,"b":[1]}', '{"a":"ä"}'.encode()]).columns
    assert (one.example, one.records, other.example) == ("[1]", 1, '"ä"')


def test_no_more_columns_are_suggested_than_a_table_may_have() -> None:
    many = suggested({f"{'m' * 100}{i}": 1 for i in range(3_000)})
    assert len(parse(many).columns) <= limits.TABLE_COLUMNS_MAX
    assert len(parse(many).columns) > 60
    assert len(parse(suggested({f"m{i}": 1 for i in range(300)})).columns) == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(st.binary(max_size=20) | JSON.map(lambda x: json.dumps(x).encode())))
def test_what_is_suggested_can_be_set(values: list[bytes]) -> None:
    text = suggest(values).text
    assert format_columns(parse(text)) == text
