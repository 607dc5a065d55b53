"""The documents that are in force; see `documents.py`, which changes them."""

from __future__ import annotations

from collections.abc import Iterable

from seb_appliance.broker.ports import DocumentRow
from seb_appliance.formats.operations import DocumentRemoved, DocumentSet


class DocumentRows:
    """Changed only by applying journal entries. `get` returns the same object until it changes."""

    def __init__(self, rows: Iterable[DocumentRow]) -> None:
        self._rows = {(row.kind, row.name): row for row in rows}

    def apply(self, event: DocumentSet | DocumentRemoved) -> None:
        if isinstance(event, DocumentSet):
            row = DocumentRow(event.kind, event.name, event.document, event.set_us)
            self._rows[event.kind, event.name] = row
        else:
            del self._rows[event.kind, event.name]

    def get(self, kind: str, name: str) -> DocumentRow | None:
        return self._rows.get((kind, name))

    def all(self) -> list[DocumentRow]:
        """By kind and name."""
        return [row for _, row in sorted(self._rows.items())]
