"""Codecs of messages, made from their schemas when a version is first seen.

A message is a dictionary by field name. What is written may lack fields, which then have their
defaults.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from seb_appliance.protocols.kafka.wire import schemas
from seb_appliance.protocols.kafka.wire.types import (
    LAYOUTS,
    NO_UUID,
    NUMBERS,
    UUID,
    BadMessageError,
    Frame,
    Reader,
    Writer,
    read_length,
    read_uvarint,
    sized,
    write_length,
    write_uvarint,
)

Message: TypeAlias = dict[str, Any]
Side: TypeAlias = Literal["request", "response"]
Tagged: TypeAlias = dict[int, tuple[str, Reader, Writer]]  # by the tag: name, and how it is coded
ReadStep: TypeAlias = Callable[[Frame, int, Message], int]
_WriteStep: TypeAlias = Callable[[bytearray, Message], None]

NEVER: Final = 1 << 15
_MODIFIERS: Final = re.compile(
    r"(?P<null>\?(?P<null_from>\d+)?)?(@(?P<first>\d+)(-(?P<last>\d+))?)?(#(?P<tag>\d+))?"
    r"(=(?P<default>.+))?"
)


class Field(NamedTuple):
    """`kind`: a type, or the fields of a structure. `null_from`: the version from which on it may
    be null."""

    name: str
    kind: str | tuple[Field, ...]
    is_array: bool
    versions: range
    null_from: int
    tag: int | None
    default: Any


class Written(NamedTuple):
    """An array whose elements are written already."""

    elements: int
    data: bytes | bytearray


class Api(NamedTuple):
    """An API and the versions of it that are spoken here."""

    key: int
    name: str
    versions: range
    flexible_from: int
    request: tuple[Field, ...]
    response: tuple[Field, ...]

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


# --- schemas ---


def _apis(text: str) -> Iterator[Api]:
    for block in text.strip().split("\n\n"):
        head, _, rest = block.partition("\n> ")
        request, _, response = rest.partition("\n< ")
        key, name, versions, *flexible = head.split()
        first, last = map(int, versions.split("-"))
        yield Api(
            int(key),
            name,
            range(first, last + 1),
            int(flexible[1]) if flexible else NEVER,
            _fields(iter(request.split())),
            _fields(iter(response.split())),
        )


def _fields(words: Iterator[str]) -> tuple[Field, ...]:
    """Up to the end of the structure, which is the last item if there is one."""
    found = list[Field]()
    for word in words:
        if word[0] in "]}":
            return (*found, _field("", (), word[0] == "]", word[1:]))
        name, _, rest = word.partition(":")
        if rest in "[{":
            *inner, end = _fields(words)
            found.append(end._replace(name=name, kind=tuple(inner)))
        else:
            parts = re.fullmatch(r"(\[?)(\w+)\]?(.*)", rest)
            assert parts is not None, word
            found.append(_field(name, parts[2], bool(parts[1]), parts[3]))
    return tuple(found)


def _field(name: str, kind: str | tuple[Field, ...], is_array: bool, modifiers: str) -> Field:
    given = _MODIFIERS.fullmatch(modifiers)
    assert given is not None, (name, modifiers)
    versions = range(int(given["first"] or 0), int(given["last"] or NEVER) + 1)
    null_from = NEVER if given["null"] is None else int(given["null_from"] or 0)
    tag = None if given["tag"] is None else int(given["tag"])
    default: Any = given["default"]
    if default == "null":
        default = None
    elif default is not None:
        default = default == "true" if kind == "bool" else int(default)
    elif is_array:
        default = ()
    elif isinstance(kind, tuple):
        default = {}
    elif kind in NUMBERS:
        default = 0
    else:
        default = {"str": "", "uuid": NO_UUID}.get(kind, b"")
    return Field(name, kind, is_array, versions, null_from, tag, default)


APIS: Final = {api.key: api for api in _apis(schemas.TEXT)}


# --- codecs ---


@cache
def codec(key: int, version: int, side: Side) -> tuple[Reader, Writer]:
    api = APIS[key]
    fields = api.request if side == "request" else api.response
    return structure(fields, version, flexible=api.is_flexible(version))


def reader_of(fields: str) -> Reader:
    """Of what clients put into a field of bytes; not all of it needs to be named."""
    return structure(_fields(iter(fields.split())), 0, flexible=False)[0]


def read_request(key: int, version: int, frame: Frame, at: int) -> Message:
    """The body of a request, which begins at `at`. Bytes after it are ignored, as Kafka does:
    librdkafka sends three when it asks for the metadata of all topics. Raises BadMessageError."""
    try:
        return whole(frame, *codec(key, version, "request")[0](frame, at))
    except (struct.error, IndexError) as error:
        raise BadMessageError("a message ends too early") from error


def whole(frame: Frame, found: Message, end: int) -> Message:
    """The message that ends there. Raises BadMessageError."""
    if end > len(frame):
        raise BadMessageError("a field goes beyond its message")
    return found


def write_response(key: int, version: int, correlation_id: int, message: Message) -> bytearray:
    """A whole response, with its length and header."""
    out = bytearray(4)
    out += struct.pack(">i", correlation_id)
    # ApiVersions: a client that does not know this version yet must be able to read it.
    if APIS[key].is_flexible(version) and APIS[key].name != "ApiVersions":
        out.append(0)
    codec(key, version, "response")[1](out, message)
    struct.pack_into(">i", out, 0, len(out) - 4)
    return out


def structure(fields: tuple[Field, ...], version: int, *, flexible: bool) -> tuple[Reader, Writer]:
    """Reads and writes a structure of these fields."""
    plain, tagged = split(fields, version, flexible=flexible)
    steps = both_steps(plain, version, flexible=flexible)
    readers, writers = [step for step, _ in steps], [step for _, step in steps]
    missing = {field.name: field.default for field in fields}

    def read(frame: Frame, at: int) -> tuple[Message, int]:
        found = missing.copy()
        for step in readers:
            at = step(frame, at, found)
        return found, read_tags(frame, at, found, tagged) if flexible else at

    def write(out: bytearray, value: Message) -> None:
        for step in writers:
            step(out, value)
        if flexible:
            given = [(tag, one) for tag, one in tagged.items() if one[0] in value]
            write_uvarint(out, len(given))
            for tag, (name, _, write_one) in given:
                inner = bytearray()
                write_one(inner, value[name])
                write_uvarint(out, tag)
                write_uvarint(out, len(inner))
                out += inner

    return read, write


def split(fields: tuple[Field, ...], version: int, *, flexible: bool) -> tuple[list[Field], Tagged]:
    """The fields of a version: those without a tag, and those with one."""
    there = [field for field in fields if version in field.versions]
    tagged = {
        field.tag: (field.name, *value(field, version, flexible=flexible))
        for field in there
        if field.tag is not None
    }
    return [field for field in there if field.tag is None], tagged


def both_steps(
    plain: list[Field], version: int, *, flexible: bool
) -> list[tuple[ReadStep, _WriteStep]]:
    """Read and write these fields, one after the other."""
    steps = list[tuple[ReadStep, _WriteStep]]()
    for is_number, neighbours in groupby(plain, _is_number):
        if is_number:
            steps.append(_numbers(list(neighbours)))
        else:
            steps += [
                _one(field, *value(field, version, flexible=flexible)) for field in neighbours
            ]
    return steps


def read_tags(frame: Frame, at: int, found: Message, tagged: Tagged) -> int:
    count, at = read_uvarint(frame, at)
    for _ in range(frame.count(count, at)):
        number, at = read_uvarint(frame, at)
        length, at = read_uvarint(frame, at)
        if number in tagged:
            name, read_one, _ = tagged[number]
            found[name], _ = read_one(frame, at)
        at += length
    return at


def _is_number(field: Field) -> bool:
    return isinstance(field.kind, str) and field.kind in LAYOUTS and not field.is_array


def _numbers(fields: list[Field]) -> tuple[ReadStep, _WriteStep]:
    """Of neighbours that are numbers: all at once, which takes a third of the time."""
    whole = struct.Struct(">" + "".join(LAYOUTS[str(field.kind)] for field in fields))
    unpack, pack, size = whole.unpack_from, whole.pack, whole.size
    names = [field.name for field in fields]
    defaults = [(field.name, field.default) for field in fields]

    def read(frame: Frame, at: int, found: Message) -> int:
        found.update(zip(names, unpack(frame, at), strict=True))
        return at + size

    def write(out: bytearray, value: Message) -> None:
        out += pack(*[value.get(name, default) for name, default in defaults])

    return read, write


def _one(field: Field, read_one: Reader, write_one: Writer) -> tuple[ReadStep, _WriteStep]:
    name, default = field.name, field.default

    def read(frame: Frame, at: int, found: Message) -> int:
        found[name], at = read_one(frame, at)
        return at

    def write(out: bytearray, value: Message) -> None:
        write_one(out, value.get(name, default))

    return read, write


def value(field: Field, version: int, *, flexible: bool) -> tuple[Reader, Writer]:
    nullable = version >= field.null_from
    if isinstance(field.kind, tuple):
        both = structure(field.kind, version, flexible=flexible)
    elif field.kind in NUMBERS:
        both = NUMBERS[field.kind]
    elif field.kind == "uuid":
        both = UUID
    else:
        is_null = nullable and not field.is_array
        both = sized(field.kind, compact=flexible, nullable=is_null)
    return _array(*both, compact=flexible, nullable=nullable) if field.is_array else both


def _array(
    read_one: Reader, write_one: Writer, *, compact: bool, nullable: bool
) -> tuple[Reader, Writer]:
    def read(frame: Frame, at: int) -> tuple[list[Any] | None, int]:
        number, at = read_length(frame, at, compact=compact, short=False)
        if number < 0:
            if not nullable:
                raise BadMessageError("an array is null that must not be")
            return None, at
        found = list[Any]()
        for _ in range(frame.count(number, at)):
            value, at = read_one(frame, at)
            found.append(value)
        return found, at

    def write(out: bytearray, values: Any) -> None:
        if values is None:
            assert nullable
            write_length(out, -1, compact=compact, short=False)
            return
        if isinstance(values, Written):
            write_length(out, values.elements, compact=compact, short=False)
            out += values.data
            return
        write_length(out, len(values), compact=compact, short=False)
        for value in values:
            write_one(out, value)

    return read, write
