"""Requests with long arrays: they are read in short steps, so that none holds the event loop."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache
from itertools import groupby
from typing import Any, TypeAlias

from seb_appliance.protocols.kafka.wire.codec import (
    APIS,
    NEVER,
    Field,
    Message,
    ReadStep,
    both_steps,
    read_tags,
    split,
    value,
    whole,
)
from seb_appliance.protocols.kafka.wire.types import (
    NUMBERS,
    BadMessageError,
    Frame,
    read_length,
)

_Steps: TypeAlias = Generator[None, None, tuple[Message, int]]


def steps_of_request(
    key: int, version: int, frame: Frame, at: int
) -> Generator[None, None, Message]:
    """Returns what `read_request` does, and raises the same."""
    try:
        return whole(frame, *(yield from _reader(key, version)(frame, at)))
    except (struct.error, IndexError) as error:
        raise BadMessageError("a message ends too early") from error


@cache
def _reader(key: int, version: int) -> Callable[[Frame, int], _Steps]:
    return _structure(APIS[key].request, version, flexible=APIS[key].is_flexible(version))


def _structure(
    fields: tuple[Field, ...], version: int, *, flexible: bool
) -> Callable[[Frame, int], _Steps]:
    """Reads as the reader of `structure`, with a step for each element of an array."""
    plain, tagged = split(fields, version, flexible=flexible)
    missing = {field.name: field.default for field in fields}
    arrays = {
        field.name: _array(field, version, flexible=flexible)
        for field in plain
        if _has_steps(field)
    }
    readers = list[tuple[str, ReadStep | None]]()  # None: of an array
    for has_steps, neighbours in groupby(plain, _has_steps):
        if has_steps:
            readers += [(field.name, None) for field in neighbours]
        else:
            steps = both_steps(list(neighbours), version, flexible=flexible)
            readers += [("", step) for step, _ in steps]

    def read(frame: Frame, at: int) -> _Steps:
        found = missing.copy()
        for name, step in readers:
            if step is None:
                found[name], at = yield from arrays[name](frame, at)
            else:
                at = step(frame, at, found)
        return found, read_tags(frame, at, found, tagged) if flexible else at

    return read


def _has_steps(field: Field) -> bool:
    """An array of numbers is read quickly, however long it is."""
    return field.is_array and field.kind not in NUMBERS


def _array(
    field: Field, version: int, *, flexible: bool
) -> Callable[[Frame, int], Generator[None, None, tuple[list[Any] | None, int]]]:
    one = field._replace(is_array=False, null_from=NEVER)
    read_one, _ = value(one, version, flexible=flexible)
    steps_of_one = None
    if isinstance(field.kind, tuple) and any(map(_has_steps, field.kind)):
        steps_of_one = _structure(field.kind, version, flexible=flexible)

    def read(frame: Frame, at: int) -> Generator[None, None, tuple[list[Any] | None, int]]:
        number, at = read_length(frame, at, compact=flexible, short=False)
        if number < 0:
            if version < field.null_from:
                raise BadMessageError("an array is null that must not be")
            return None, at
        found = list[Any]()
        for _ in range(frame.count(number, at)):
            if steps_of_one is None:
                element, at = read_one(frame, at)
            else:
                element, at = yield from steps_of_one(frame, at)
            found.append(element)
            yield
        return found, at

    return read
