"""Formats of bodies and answers that protocols register, by media type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seb_appliance.broker.values import NewRecords, ReadResult
from seb_appliance.errors import NotAcceptableError
from seb_appliance.formats.columns import Bytes


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the bytes of a long answer are made: `opening`, the `parts` of each result, `closing`.
    `in_thread`: a part takes long, and needs the interpreter for little of that."""

    parts: Callable[[ReadResult], Iterable[Bytes]]
    opening: bytes = b""
    closing: bytes = b""
    in_thread: bool = False


@dataclass(frozen=True, kw_only=True)
class AnswerFormat:
    """`page` encodes one result, `one` its first record. `whole` returns the encoding of an answer
    of any length to a query. `check` raises NotAcceptableError where the format cannot be used."""

    media_type: bytes
    page: Callable[[ReadResult], Iterable[Bytes]] | None = None
    one: Callable[[ReadResult], bytes] | None = None
    whole: Callable[[dict[str, str]], Awaitable[Encoding]] | None = None
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class BodyFormat:
    """`mode_of` returns how a request carries the format, None if it does not. `parse` runs in a
    child process where the body is large: it returns the records, and what identifies each."""

    media_types: tuple[str, ...]
    header_prefix: bytes
    mode_of: Callable[[dict[bytes, bytes]], str | None]
    parse: Callable[[bytes, Any, dict[bytes, bytes]], tuple[NewRecords, Sequence[bytes]]]


BODY_FORMATS: Final[list[BodyFormat]] = []
_answer_formats: Final[dict[str, AnswerFormat]] = {}


def register(*formats: AnswerFormat | BodyFormat) -> None:
    """For the whole process; the composition root calls it."""
    for one in formats:
        if isinstance(one, AnswerFormat):
            _answer_formats[one.media_type.decode()] = one
        elif one not in BODY_FORMATS:
            BODY_FORMATS.append(one)


def answer_format(media_type: str) -> AnswerFormat:
    """Raises NotAcceptableError."""
    if media_type not in _answer_formats:
        raise NotAcceptableError(f"{media_type} is not available here.")
    return _answer_formats[media_type]
