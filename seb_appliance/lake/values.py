"""JSON values as the declared columns of a table.

Almost every value is read by generated decoders, one pass each, which look at nothing but the
declared members. A value that they refuse is read again member by member: this says what each
column gets and why another one gets nothing. Both give the same for what both accept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import Raw

from seb_appliance.formats.lake.columns import UNREADABLE, WHOLE_FLOAT_MAX, Long, Zoned
from seb_appliance.formats.lake.tables import TOMBSTONE, Column

_NULL: Final = Raw(b"null")
_DECODED: Final[dict[str, Any]] = {
    "long": Long | None,
    "double": float | None,
    "string": str | None,
    "boolean": bool | None,
    "timestamp": Zoned | None,
}
_ONE: Final = {kind: msgspec.json.Decoder(of) for kind, of in _DECODED.items()}
_FLOAT: Final = msgspec.json.Decoder(float)
_NOT: Final = {
    "long": "is not a whole number of 64 bits",
    "double": "is not a finite number",
    "string": "is not a text",
    "boolean": "is neither true nor false",
    "timestamp": "is not a time with a zone (RFC 3339)",
}
_ERRORS_NAMED_MAX: Final = 5
_raw_of: Final = msgspec.json.Decoder(Raw).decode
_members_of: Final = msgspec.json.Decoder(dict[str, Raw] | None).decode


class _Node:
    """A member of the value, or the value itself. `columns`: places of columns that take it."""

    def __init__(self) -> None:
        self.columns: list[int] = []
        self.members: dict[str, _Node] = {}

    def add(self, place: int, path: tuple[str, ...]) -> None:
        node = self
        for name in path:
            node = node.members.setdefault(name, _Node())
        node.columns.append(place)

    def places(self) -> Iterator[int]:
        yield from self.columns
        for node in self.members.values():
            yield from node.places()


class _Layer:
    """Columns of which none takes a part of what another one takes: one decoder reads them."""

    def __init__(self, columns: Sequence[Column], places: Sequence[int]) -> None:
        self._columns = columns
        self._root = _Node()
        for place in places:
            self._root.add(place, columns[place].path)
        self._absent: dict[_Node, Any] = {}  # stands for a member that is not there
        self.decode = msgspec.json.Decoder(self._type_of(self._root)).decode

    def _type_of(self, node: _Node) -> Any:
        if node.columns:
            kind = self._columns[node.columns[0]].type
            return Raw if kind == "json" else _DECODED[kind]
        fields, names = [], {}
        for number, (name, inner) in enumerate(node.members.items()):
            is_text = inner.columns and self._columns[inner.columns[0]].type == "json"
            fields.append((f"m{number}", self._type_of(inner), _NULL if is_text else None))
            names[f"m{number}"] = name
        made = msgspec.defstruct("Members", fields, rename=names, frozen=True, gc=False)
        self._absent[node] = made()
        return made | None

    def fill(self, found: list[list[Any]], rows: Iterable[Any]) -> None:
        """`rows`: what `decode` gave, or None for a row without members."""
        self._fill(self._root, list(rows), found)

    def _fill(self, node: _Node, items: list[Any], found: list[list[Any]]) -> None:
        if node.columns:
            place = node.columns[0]
            is_text = self._columns[place].type == "json"
            found[place] = list(map(_text, items)) if is_text else items
            return
        if None in items:
            absent = self._absent[node]
            items = [absent if item is None else item for item in items]
        for number, inner in enumerate(node.members.values()):
            self._fill(inner, list(map(attrgetter(f"m{number}"), items)), found)


def _text(raw: Raw | None) -> bytes | None:
    text = None if raw is None else bytes(raw)
    return None if text == b"null" else text


class ReadValues(msgspec.Struct):
    """Lists of one item per value. `columns`: in the order they were declared; `json` as bytes of
    UTF-8, a timestamp as a datetime. `rest` is None if it was not asked for."""

    columns: list[list[Any]]
    rest: list[bytes | None] | None
    raw: list[bytes | None]
    errors: list[str | None]


class ValueReader:
    def __init__(self, columns: Sequence[Column], *, rest: bool) -> None:
        self._columns = columns
        self._rest = rest
        self._tree = _Node()
        for place, column in enumerate(columns):
            self._tree.add(place, column.path)
        self._layers = [_Layer(columns, places) for places in _layers(columns)]

    def read(self, values: Sequence[bytes | None], *, is_utf8: bool) -> ReadValues:
        """`is_utf8`: whether all values are known to be. Never refuses."""
        count = len(values)
        found = ReadValues(
            [[] for _ in self._columns],
            [None] * count if self._rest else None,
            [None] * count,
            [None] * count,
        )
        slow: dict[int, list[Any]] = {}
        decoders = [layer.decode for layer in self._layers]
        rows: list[list[Any]] = [[None] * count for _ in decoders]
        numbered = list(zip(decoders, rows, strict=True))
        for i, value in enumerate(values):
            if value is None:
                found.errors[i] = TOMBSTONE
                continue
            try:
                if not is_utf8:
                    value.decode()
                for decode, read in numbered:
                    read[i] = decode(value)
                if found.rest is not None:
                    found.rest[i] = self._rest_of(value)
            except UNREADABLE:
                slow[i], found.errors[i] = self._read_one(value)
                found.raw[i] = value if found.errors[i] else None
                if found.rest is not None:
                    found.rest[i] = self._rest_if_readable(value)
        for layer, read in zip(self._layers, rows, strict=True):
            layer.fill(found.columns, read)
        for i, items in slow.items():
            for column, item in zip(found.columns, items, strict=True):
                column[i] = item
        return found

    # --- what no column takes ---

    def _rest_of(self, value: bytes | Raw) -> bytes | None:
        members = _members_of(value)
        if not members:
            return None
        _remove_taken(self._tree, members)
        return msgspec.json.encode(members) if members else None

    def _rest_if_readable(self, value: bytes) -> bytes | None:
        try:
            value.decode()
            return self._rest_of(value)
        except UNREADABLE:
            return None

    # --- a value that the generated decoders refused ---

    def _read_one(self, value: bytes) -> tuple[list[Any], str | None]:
        """The items of all columns, and what is wrong."""
        items: list[Any] = [None] * len(self._columns)
        wrong: list[str] = []
        try:
            value.decode()
            self._visit(self._tree, _raw_of(value), "the value", items, wrong)
        except UnicodeDecodeError:
            wrong = ["the value is not UTF-8"]
        except RecursionError:
            wrong = ["the value is nested too deep"]
        except msgspec.DecodeError:
            wrong = ["the value is not JSON" if value else "the value is empty"]
        more = len(wrong) - _ERRORS_NAMED_MAX
        named = wrong[:_ERRORS_NAMED_MAX] + ([f"and {more} more"] if more > 0 else [])
        return items, "; ".join(named) or None

    def _visit(self, node: _Node, raw: Raw, told: str, items: list[Any], wrong: list[str]) -> None:
        for place in node.columns:
            column = self._columns[place]
            try:
                items[place] = _item(column.type, raw)
            except msgspec.DecodeError:
                wrong.append(f"column {column.name}: {told} {_NOT[column.type]}")
        if not node.members and not (self._rest and node is self._tree):
            return
        try:
            members = _members_of(raw) or {}
        except msgspec.ValidationError:
            below = [place for inner in node.members.values() for place in inner.places()]
            names = ", ".join(self._columns[place].name for place in below[:_ERRORS_NAMED_MAX])
            wrong.append(f"{f'column {names}: ' if names else ''}{told} is not an object")
            return
        for name, inner in node.members.items():
            if name in members:
                path = f"{'$' if node is self._tree else told}.{name}"
                self._visit(inner, members[name], path, items, wrong)


def _item(kind: str, raw: Raw) -> Any:
    if kind == "json":
        return _text(raw)
    try:
        return _ONE[kind].decode(raw)
    except msgspec.ValidationError:
        if kind != "long":
            raise
        number = _FLOAT.decode(raw)
        if not number.is_integer() or abs(number) > WHOLE_FLOAT_MAX:
            raise
        return int(number)


def _remove_taken(node: _Node, members: dict[str, Raw]) -> None:
    for name, inner in node.members.items():
        raw = members.pop(name, None)
        if raw is None or inner.columns:
            continue
        try:
            left = _members_of(raw)
        except msgspec.ValidationError:  # not an object: `_raw` has it
            continue
        if left:
            _remove_taken(inner, left)
            if left:
                members[name] = Raw(msgspec.json.encode(left))


def _layers(columns: Sequence[Column]) -> list[list[int]]:
    """Places of columns, such that within a list no path begins with another one."""
    found: list[list[int]] = []
    for place, column in enumerate(columns):
        for layer in found:
            if not any(_overlap(columns[other].path, column.path) for other in layer):
                layer.append(place)
                break
        else:
            found.append([place])
    # Without columns there is the rest, of a value that is an object.
    return found or [[]]


def _overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
