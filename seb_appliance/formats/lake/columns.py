"""The topic setting `table_columns`: which members of a record's JSON value become columns.

    total:double=$.total, id:long, at:timestamp=$.meta."created.at", all:json=$, _rest

`name:type` alone takes the member of that name. docs/TABLES.md describes the types.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, count, islice
from typing import Annotated, Any, Final, get_args

import msgspec

from seb_appliance import limits
from seb_appliance.formats.lake.tables import (
    FIRST_DECLARED_ID,
    RESERVED_NAMES,
    REST,
    Column,
    ColumnType,
    all_columns,
)

# Those that can be declared; the others belong to columns that every table has.
TYPES: Final = tuple(kind for kind in get_args(ColumnType) if kind not in ("binary", "headers"))
PATH_MEMBERS_MAX: Final = 16
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

_BARE_MEMBER: Final = re.compile(r'[^\s.,"=\[\]\\\x00-\x1f]+')
# A generated decoder (lake/values.py) has no member whose name JSON would escape.
_QUOTED_MEMBER: Final = re.compile(r'"[^"\\\x00-\x1f]*"')
_UP_TO_COMMA: Final = re.compile(r'(?:"[^"]*"|[^",])*')


class Declared(msgspec.Struct, frozen=True):
    """`columns` have no field ids yet (0). `rest`: the table has the column `_rest`."""

    columns: tuple[Column, ...] = ()
    rest: bool = False


def parse(text: str) -> Declared:
    """Raises ValueError with a sentence that names the column. No text: no declared columns."""
    if len(text) > limits.TABLE_COLUMNS_LENGTH_MAX:
        raise ValueError(
            f"The columns are {len(text)} characters; "
            f"at most {limits.TABLE_COLUMNS_LENGTH_MAX} are allowed."
        )
    columns: list[Column] = []
    rest = False
    names: set[str] = set()
    for number, item in enumerate(_items(text), 1):
        if item == REST.name:
            if rest:
                raise ValueError(f"Column {number}: {REST.name} is named twice.")
            rest = True
            continue
        column = _column(item, number)
        if column.name.lower() in names:
            raise ValueError(f"Column {number} ({column.name}): another column has this name.")
        names.add(column.name.lower())
        columns.append(column)
    if len(columns) > limits.TABLE_COLUMNS_MAX:
        raise ValueError(
            f"{len(columns)} columns are declared; at most {limits.TABLE_COLUMNS_MAX} are allowed."
        )
    if rest and any(not column.path for column in columns):
        raise ValueError(f"{REST.name} would be empty: a column of $ takes every member.")
    return Declared(tuple(columns), rest)


def check_copies(declared: Declared) -> None:
    """Raises ValueError where too many columns take the same member: each of them has a copy of
    it, in memory, too."""
    takers = Counter(column.path for column in declared.columns)
    most = limits.TABLE_COLUMNS_OF_MEMBER_MAX
    for one in declared.columns:
        count = sum(takers[one.path[:length]] for length in range(len(one.path) + 1))
        if count > most:
            raise ValueError(
                f"Column {one.name}: {count} columns take this member, or one that it is in; "
                f"at most {most} may."
            )


def _items(text: str) -> Iterator[str]:
    """What lies between commas, outside of quotation marks."""
    if not text.strip():
        return
    at = 0
    while at <= len(text):
        found = _UP_TO_COMMA.match(text, at)
        assert found is not None
        end = found.end()
        if end < len(text) and text[end] == '"':
            raise ValueError(f"A quotation mark is not closed: {_short(text[end:])}")
        yield text[at:end].strip()
        at = end + 1


def _column(item: str, number: int) -> Column:
    if not item:
        raise ValueError(f"Column {number} is empty.")
    declared, equals, path_text = item.partition("=")
    name, colon, kind = (part.strip() for part in declared.partition(":"))
    told = f"Column {number} ({_short(name)})"
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{told}: a name is a letter or _, then letters, digits and _; at most 128 characters."
        )
    if name.lower() in RESERVED_NAMES:
        raise ValueError(f"{told}: the name is reserved; {', '.join(sorted(RESERVED_NAMES))} are.")
    if not colon or kind not in TYPES:
        raise ValueError(f"{told}: the type {_short(kind)!r} is none of {', '.join(TYPES)}.")
    path = _path(path_text.strip(), told) if equals else (name,)
    if not path and kind != "json":
        raise ValueError(f"{told}: only the type json takes the whole value, $.")
    return Column(0, name, kind, path)  # type: ignore[arg-type]  # it is one of TYPES


def _path(text: str, told: str) -> tuple[str, ...]:
    if not text.startswith("$"):
        raise ValueError(f"{told}: the path {_short(text)!r} does not begin with $.")
    members, at = [], 1
    while at < len(text):
        found = _QUOTED_MEMBER.match(text, at + 1) or _BARE_MEMBER.match(text, at + 1)
        if text[at] != "." or found is None:
            raise ValueError(
                f"{told}: the path {_short(text)!r} is not like $.member or "
                f'$."a member".another; items of a list have no path.'
            )
        members.append(found[0].strip('"'))
        at = found.end()
    if len(members) > PATH_MEMBERS_MAX:
        raise ValueError(f"{told}: the path has more than {PATH_MEMBERS_MAX} members.")
    return tuple(members)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def format_columns(declared: Declared) -> str:
    """As `parse` reads it."""
    items = [_format_column(column) for column in declared.columns]
    return ", ".join([*items, REST.name] if declared.rest else items)


def _format_column(column: Column) -> str:
    plain = f"{column.name}:{column.type}"
    if column.path == (column.name,):
        return plain
    members = (one if _is_bare(one) else f'"{one}"' for one in column.path)
    return f"{plain}={'.'.join(['$', *members])}"


def _is_bare(member: str) -> bool:
    return bool(re.fullmatch(r"[\w-]+", member))


def columns_of(text: str, schemas: Sequence[tuple[Column, ...]]) -> tuple[Column, ...]:
    """All columns of a table with this setting, whose schemas so far are `schemas`, oldest first.
    A column with the same name, type and path as an earlier one is that column: it keeps its field
    id. Any other gets an id that was never used. Raises ValueError like `parse`."""
    declared = parse(text)
    earlier = {
        (column.name, column.type, column.path): column
        for columns in schemas
        for column in columns
        if column.field_id >= FIRST_DECLARED_ID
    }
    free = 1 + max((one.field_id for one in earlier.values()), default=FIRST_DECLARED_ID - 1)
    found = []
    for column in declared.columns:
        known = earlier.get((column.name, column.type, column.path))
        if known is None:
            known = msgspec.structs.replace(column, field_id=free)
            free += 1
        found.append(known)
    return all_columns(tuple(found), rest=declared.rest)


# --- what a value must be ---

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Zoned = Annotated[datetime, msgspec.Meta(tz=True)]
# A number such as 1.0 is whole, too, but beyond this one it may have been rounded.
WHOLE_FLOAT_MAX: Final = 2.0**53

_decode: Final = msgspec.json.Decoder(strict=True).decode
_decode_time: Final = msgspec.json.Decoder(Zoned).decode
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what decoders raise

SUGGESTED_FROM_MAX: Final = 10_000  # records
_SEEN_MEMBERS_MAX: Final = 2_000
_EXAMPLE_CHARACTERS: Final = 80


class SuggestedColumn(msgspec.Struct, frozen=True):
    """`records`: how many had the member, and not as null. `example`: JSON of a value."""

    column: Column
    records: int
    example: str


class Suggestion(msgspec.Struct, frozen=True):
    """`text`: a setting that reads all `looked_at` records but the `unreadable` ones, which are no
    JSON objects; empty if no member was found. Tombstones are not counted."""

    text: str
    columns: tuple[SuggestedColumn, ...]
    looked_at: int
    unreadable: int


class _Seen:
    """What values of one member were like."""

    def __init__(self) -> None:
        self.records = 0
        self.kinds: set[str] = set()
        self.example = ""

    def note(self, value: Any) -> None:
        self.records += 1
        self.kinds.add(_kind_of(value))
        if not self.example:
            with contextlib.suppress(RecursionError):
                text = json.dumps(value, ensure_ascii=False)
                short = len(text) <= _EXAMPLE_CHARACTERS
                self.example = text if short else f"{text[:_EXAMPLE_CHARACTERS]}…"

    @property
    def kind(self) -> str:
        """The type that all values fit."""
        if len(self.kinds) == 1 and self.kinds != {"object"}:
            return next(iter(self.kinds))
        if self.kinds == {"long", "double"}:
            return "double"
        return "string" if self.kinds == {"string", "timestamp"} else "json"


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return "long"
        return "double" if abs(value) <= sys.float_info.max else "json"
    if isinstance(value, float):
        return "double"
    if not isinstance(value, str):
        return "object" if isinstance(value, dict) else "json"
    if value[:4].isdigit():
        with contextlib.suppress(*UNREADABLE):
            _decode_time(msgspec.json.encode(value))
            return "timestamp"
    return "string"


def suggest(values: Iterable[bytes | None]) -> Suggestion:
    """Columns for these JSON values, at most `SUGGESTED_FROM_MAX`; None is a tombstone. Members of
    objects in the value become columns, too; deeper objects and lists are `json`. What fewer than
    one record in a hundred has is left to `_rest`, which is always there: no member of later
    records is lost."""
    seen: dict[tuple[str, ...], _Seen] = {}
    looked_at = unreadable = 0
    for value in islice(values, SUGGESTED_FROM_MAX):
        if value is None:
            continue
        looked_at += 1
        try:
            members = _decode(value)
            value.decode()
        except UNREADABLE:
            members = None
        if not isinstance(members, dict):
            unreadable += 1
            continue
        for path, member in _members(members):
            if path in seen or len(seen) < _SEEN_MEMBERS_MAX:
                seen.setdefault(path, _Seen()).note(member)
    found = _chosen(seen, looked_at - unreadable)
    declared = Declared(tuple(one.column for one in found), rest=True)
    return Suggestion(format_columns(declared) if found else "", found, looked_at, unreadable)


def _members(members: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in members.items():
        if value is None:
            continue
        yield (name,), value
        if isinstance(value, dict):
            yield from (((name, inner), x) for inner, x in value.items() if x is not None)


def _chosen(seen: dict[tuple[str, ...], _Seen], readable: int) -> tuple[SuggestedColumn, ...]:
    usual = {path for path, one in seen.items() if one.records * 100 >= readable}
    # An object is taken apart if it is one in each record, and has members that are usual.
    apart = {path[:1] for path in usual if len(path) == 2}
    apart = {path for path in apart if seen[path].kinds == {"object"}}
    names = set(RESERVED_NAMES)
    found: list[SuggestedColumn] = []
    length = len(REST.name)
    for path, one in sorted(seen.items(), key=lambda pair: -pair[1].records):
        taken = path not in apart if len(path) == 1 else path[:1] in apart
        if not taken or path not in usual or not all(map(_can_be_named, path)):
            continue
        column = Column(0, _free_name(path, names), one.kind, path)  # type: ignore[arg-type]
        length += len(_format_column(column)) + 2
        if len(found) == limits.TABLE_COLUMNS_MAX or length > limits.TABLE_COLUMNS_LENGTH_MAX:
            break
        names.add(column.name.lower())
        found.append(SuggestedColumn(column, one.records, one.example))
    order = {path: at for at, path in enumerate(seen)}
    return tuple(sorted(found, key=lambda one: order[one.column.path]))


def _can_be_named(member: str) -> bool:
    """Others are left to `_rest`: a terminal would not show what the column takes."""
    return member.isprintable() and _QUOTED_MEMBER.fullmatch(f'"{member}"') is not None


def _free_name(path: tuple[str, ...], names: set[str]) -> str:
    """A name for this path that no column has; `names` are lower case."""
    base = re.sub(r"[^A-Za-z0-9_]", "_", "_".join(path))[:120]
    if not NAME.fullmatch(base):
        base = f"_{base}"
    numbered = (f"{base}_{number}" for number in count(2))
    return next(name for name in chain([base], numbered) if name.lower() not in names)
