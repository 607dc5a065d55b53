"""Media types: Content-Type and Accept, and the formats that protocols register."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seb_appliance.broker.values import NewRecords, ReadResult
from seb_appliance.errors import NotAcceptableError, UnsupportedMediaTypeError
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
    one: Callable[[ReadResult], Iterable[Bytes]] | None = None
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


def media_type(content_type: bytes) -> str:
    """The lower-case type without its parameters. A charset other than UTF-8 is refused."""
    named, *parameters = content_type.decode("latin-1").split(";")
    named = named.strip().lower()
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and not named.startswith("text/"):
            charset = value.strip().strip('"').lower()
            if charset not in {"utf-8", "utf8", "us-ascii"}:
                raise UnsupportedMediaTypeError(
                    f"The charset {charset[:50]!r} is not supported; send UTF-8."
                )
    return named


def negotiate(accept: bytes | None, offered: Sequence[str]) -> str:
    """The offered type that the client likes best; of equals, the first one offered.

    Raises NotAcceptableError that lists what is offered.
    """
    if not accept:
        return offered[0]
    ranges = [_quality(part) for part in accept.decode("latin-1").split(",")[:50]]
    best, best_quality = "", 0.0
    for candidate in offered:
        family = candidate.partition("/")[0] + "/*"
        # The most specific range that fits decides (RFC 9110, 12.5.1).
        for wanted in (candidate, family, "*/*"):
            qualities = [quality for named, quality in ranges if named == wanted]
            if qualities:
                if max(qualities) > best_quality:
                    best, best_quality = candidate, max(qualities)
                break
    if not best:
        raise NotAcceptableError(
            "None of the accepted media types is available here. Accept one of "
            f"{', '.join(offered)}.",
            supported=list(offered),
        )
    return best


def _quality(part: str) -> tuple[str, float]:
    named, *parameters = part.split(";")
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
    return named.strip().lower(), quality
