"""An object in the making: batches become sections of about a mebibyte, back to back."""

from __future__ import annotations

from collections.abc import Iterable

from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.formats import segment
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.operations import StoredSection
from seb_appliance.storage.merging import Piece


class ObjectDraft:
    """`sections` are those that are whole; call `end_section` behind the last batch of a range."""

    def __init__(self) -> None:
        self.sections: list[StoredSection] = []
        self._parts: list[Bytes] = []
        self._size_bytes = segment.HEADER_BYTES
        self._topic_id = 0
        self._pieces: list[Piece] = []
        self._pieces_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Of header and sections, with the one that is not whole yet."""
        return self._size_bytes + self._pieces_bytes

    def add(self, topic_id: int, pieces: Iterable[Piece]) -> None:
        """The next batches of a topic."""
        assert not self._pieces or topic_id == self._topic_id, (topic_id, self._topic_id)
        self._topic_id = topic_id
        for piece in pieces:
            if self._pieces_bytes + len(piece.data) > limits.SEGMENT_SECTION_BYTES:
                self.end_section()
            self._pieces.append(piece)
            self._pieces_bytes += len(piece.data)

    def end_section(self) -> None:
        pieces = self._pieces
        if not pieces:
            return
        crc = 0
        for piece in pieces:
            crc = crc32c(piece.data, crc)
            self._parts.append(piece.data)
        self.sections.append(
            StoredSection(
                self._topic_id,
                pieces[0].base_offset,
                pieces[-1].last_offset,
                sum(piece.count for piece in pieces),
                self._size_bytes,
                self._pieces_bytes,
                crc,
                max(piece.created_us for piece in pieces),
                max(piece.largest_timestamp_us for piece in pieces),
            )
        )
        self._size_bytes += self._pieces_bytes
        self._pieces, self._pieces_bytes = [], 0

    def seal(self, head: bytes, bucket_id: bytes) -> bytes:
        """The whole object; `head`: what `segment.header` made."""
        assert not self._pieces
        trailer = segment.trailer(head, self.sections, bucket_id)
        return b"".join((head, *self._parts, trailer))
