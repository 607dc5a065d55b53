"""Arrays of answers that may be long: they are made and written in slices.

An answer holds an `Each` where such an array belongs. `prepared` makes its elements and writes them
one by one, so that an answer about all topics neither holds the event loop nor exists twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, TypeVar

from seb_appliance.protocols.kafka.wire.codec import Api, Field, Message, Written, structure
from seb_appliance.protocols.kafka.wire.types import Writer

T = TypeVar("T")
_WRITERS: Final[dict[tuple[int, int], Writer]] = {}  # by the identity of a field, and version


class Each:
    """The elements that `made` makes of the items; none where it returns None."""

    def __init__(
        self, items: Iterable[Any], made: Callable[[Any], Message | None] = lambda item: item
    ) -> None:
        self._items = items
        self._made = made

    def __iter__(self) -> Iterator[Message]:
        return (one for one in map(self._made, self._items) if one is not None)


def listed(items: Iterable[T], made: Callable[[T], Message]) -> list[Message]:
    """Instead of an `Each`, where the items are few."""
    return [made(item) for item in items]


def has_long(message: Message) -> bool:
    """Whether it must be prepared."""
    return any(isinstance(value, Each) for value in message.values())


def prepared(
    api: Api, version: int, message: Message, fields: tuple[Field, ...] | None = None
) -> Generator[int, None, Message]:
    """Returns the message with each `Each` written. Yields the bytes of each element. `fields`: of
    the message, those of the response if None."""
    whole = dict(message)
    for field in api.response if fields is None else fields:
        each = message.get(field.name)
        if not isinstance(each, Each):
            continue
        assert isinstance(field.kind, tuple), field.name
        write, out, count = _writer(api, field, version), bytearray(), 0
        for element in each:
            before = len(out)
            if has_long(element):
                element = yield from prepared(api, version, element, field.kind)
            write(out, element)
            count += 1
            yield len(out) - before
        whole[field.name] = Written(count, out)
    return whole


def _writer(api: Api, field: Field, version: int) -> Writer:
    """Of one element."""
    place = id(field), version  # fields live as long as the process
    if place not in _WRITERS:
        assert isinstance(field.kind, tuple)
        _WRITERS[place] = structure(field.kind, version, flexible=api.is_flexible(version))[1]
    return _WRITERS[place]
