"""The documents that are in force; see `documents.py`, which changes them."""

from __future__ import annotations

from collections.abc import Iterable

from seb_appliance.broker.ports import DocumentRow
from seb_appliance.formats.operations import DocumentRemoved, DocumentSet


class DocumentRows:
    """Changed only by applying journal entries. `get` returns the same object until it changes."""

    def __init__(self, rows: Iterable[DocumentRow]) -> None:
        self._rows: dict[str, dict[str, DocumentRow]] = {}  # by kind and name
        for row in rows:
            self._rows.setdefault(row.kind, {})[row.name] = row

    def apply(self, event: DocumentSet | DocumentRemoved) -> None:
        rows = self._rows.setdefault(event.kind, {})
        if isinstance(event, DocumentSet):
            rows[event.name] = DocumentRow(event.kind, event.name, event.document, event.set_us)
        else:
            del rows[event.name]

    def get(self, kind: str, name: str) -> DocumentRow | None:
        return self._rows.get(kind, {}).get(name)

    def of_kind(self, kind: str) -> list[DocumentRow]:
        """By name."""
        return [row for _, row in sorted(self._rows.get(kind, {}).items())]

    def all(self) -> list[DocumentRow]:
        """By kind and name."""
        return [row for kind in sorted(self._rows) for row in self.of_kind(kind)]
