"""A journal entry's table of contents: its operations, its sections, and what requests did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from seb_appliance.errors import BadBatchError
from seb_appliance.formats.numbers import Whole
from seb_appliance.formats.operations import Append, Event, Operation

COUNTS_RECORDS: Final = "records"


class QualifiedSeq(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False
):
    """A seq, and the checksum that the producer gave with it; or COUNTS_RECORDS: the seq is that of
    the request's first record."""

    seq: Whole
    qualifier: Whole | Literal["records"]


class ProducerAppend(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False
):
    """One request of an idempotent producer: where its records went. `numbered`: its seq, qualified
    only where the producer gave a checksum, or counts records."""

    producer_id: str
    epoch: Whole
    numbered: Whole | QualifiedSeq
    offset: Whole
    count: Whole
    timestamp_us: int

    @property
    def seq(self) -> int:
        return self.numbered if isinstance(self.numbered, int) else self.numbered.seq

    @property
    def checksum(self) -> int | None:
        given = None if isinstance(self.numbered, int) else self.numbered.qualifier
        return given if isinstance(given, int) else None

    @property
    def counts_records(self) -> bool:
        """Whether the producer numbers records, not requests."""
        return not isinstance(self.numbered, int) and self.numbered.qualifier == COUNTS_RECORDS


class Section(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Batches of one topic, back to back. `start` counts from the first byte after the padded
    table of contents; offsets are inclusive; `crc` is the CRC-32C of the section's bytes."""

    topic_id: Whole
    base_offset: Whole
    last_offset: Whole
    record_count: Whole
    start: Whole
    length: Whole
    crc: Whole
    largest_timestamp_us: Whole
    producers: tuple[ProducerAppend, ...] = ()  # no list: a start reads a million sections


class Produced(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What one request appended to one topic: `offset` is the first of `count`."""

    topic_id: Whole
    offset: Whole
    count: Whole
    timestamp_us: int


class RequestResult(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a request with an Idempotency-Key did, so that it is never done twice.

    `scope`: 16 bytes, a hash of API key id, route and Idempotency-Key. `body_hash`: 16 bytes, a
    hash of what was sent, to tell another request under the same key; what it committed is known
    from there.
    """

    scope: bytes
    body_hash: bytes
    produced: list[Produced]


class Contents(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The table of contents of one journal entry."""

    operations: list[Operation]
    sections: list[Section]
    results: list[RequestResult] = []


# msgspec lets a text that is not UTF-8 through as the codec's own error.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Contents)
_checked_decoders: Final = {
    kind: msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]
    for kind in (Event, Section, RequestResult)
}
_CHECKED_AT_ONCE: Final = 1_000  # what holds the interpreter's lock in one go


class _SectionsOnly(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Contents whose operations are stepped over."""

    operations: msgspec.Raw
    sections: list[Section]
    results: msgspec.Raw = msgspec.Raw()


_sections_decoder: Final = msgspec.msgpack.Decoder(_SectionsOnly)


def encoded_bytes(event: Event) -> int:
    """How many bytes the event takes in a table of contents."""
    return len(_encoder.encode(event))


def check_readable(
    events: Sequence[Event], sections: Sequence[Section], results: Sequence[RequestResult]
) -> None:
    """Checks that a start can read the entry: otherwise no appliance could ever continue after it.
    Raises BadBatchError."""
    parts: dict[Any, Sequence[Any]] = {Event: events, Section: sections, RequestResult: results}
    for kind, items in parts.items():
        for at in range(0, len(items), _CHECKED_AT_ONCE):
            try:
                encoded = _encoder.encode(items[at : at + _CHECKED_AT_ONCE])
                _checked_decoders[kind].decode(encoded)
            except (*_UNREADABLE, OverflowError) as error:
                raise BadBatchError(f"an entry could not be read again: {error}") from error


def encode_contents(contents: Contents) -> bytes:
    return _encoder.encode(contents)


def decode_contents(data: bytes | memoryview) -> Contents:
    """The typed contents, or BadBatchError: unknown events, versions and fields are errors."""
    try:
        contents = _decoder.decode(data)
    except _UNREADABLE as error:
        raise BadBatchError(
            f"the table of contents cannot be read: {error}. If a newer release wrote it, install "
            "that release"
        ) from error
    for operation in contents.operations:
        if isinstance(operation, Append) and operation.section >= len(contents.sections):
            raise BadBatchError(f"an operation names section {operation.section}: not there")
    return contents


def decode_sections(data: bytes | memoryview) -> list[Section]:
    """Only the sections of an encoded table of contents, which `decode_contents` took once."""
    try:
        return _sections_decoder.decode(data).sections
    except _UNREADABLE as error:
        raise BadBatchError(f"the table of contents cannot be read: {error}") from error
