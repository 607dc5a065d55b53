"""What protocols keep in the journal: a JSON document under a kind and a name, such as an inlet.

The broker stores documents and reads nothing of them but their `owner`, whose share they take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access.audit import Action, Actor, AuditedWrites, RowsAhead
from seb_appliance.broker.access.document_rows import DocumentRows
from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.ports import DocumentRow
from seb_appliance.broker.shares import OPERATOR, AllShares
from seb_appliance.clock import Clock
from seb_appliance.errors import NotFoundError, SebError
from seb_appliance.formats.operations import DocumentRemoved, DocumentSet

# Kinds that no operator makes: they are not in the audit, and their protocols bound them.
KEPT_KINDS: Final = frozenset({"kafka_transactional_id"})


class _Owned(msgspec.Struct):
    owner: str = OPERATOR


_owned: Final = msgspec.json.Decoder(_Owned).decode


Check = Callable[[DocumentRow | None], None]
"""Whether this one may be replaced. It is asked when the change is decided: what was there when the
request came may be another one by now."""


def any_may(_row: DocumentRow | None) -> None:
    """Who may change every document."""


class Documents:
    """`get` returns the same object until the document changes."""

    def __init__(
        self, rows: DocumentRows, writes: Writes, *, clock: Clock, shares: AllShares
    ) -> None:
        self.get = rows.get
        self._rows = rows
        self._writes = AuditedWrites(writes)
        self._plain = writes
        self._clock = clock
        self._watching: dict[str, Callable[[], None]] = {}
        self._ahead = RowsAhead(
            {_text(row.kind, row.name): row for row in rows.all()},
            lambda text: NotFoundError(f"There is no {text[:150]}."),
        )
        remedy = "Delete those that nobody needs."
        self._shares = shares.declare(
            "documents", limits.DOCUMENTS_MAX, "inlets and subscriptions", remedy
        )
        for row in rows.all():
            if row.kind not in KEPT_KINDS:
                self._shares.take_anyway(_owner_of(row.document), 1)

    def of_kind(self, kind: str) -> list[DocumentRow]:
        """By name."""
        return self._rows.of_kind(kind)

    def watch(self, kind: str, changed: Callable[[], None]) -> None:
        """Call `changed` after each change that was made here to a document of this kind."""
        self._watching[kind] = changed

    def _tell(self, kind: str) -> None:
        if (changed := self._watching.get(kind)) is not None:
            changed()

    async def keep(
        self, kind: str, name: str, document: str, owner: str, forgotten: Iterable[str] = ()
    ) -> None:
        """Store a document of KEPT_KINDS soon, and remove those that are `forgotten`, if they are
        there. `owner`: an id of an API key, whose share of memory it takes while it waits."""
        assert kind in KEPT_KINDS, kind
        event = DocumentSet(kind=kind, name=name, document=document, set_us=self._clock.wall_us())

        def admit(window: Window) -> None:
            row = DocumentRow(kind, name, document, event.set_us)
            self._ahead.change(window, _text(kind, name), row, event)
            for gone in forgotten:
                if gone != name and _text(kind, gone) in self._ahead.rows:
                    removed = DocumentRemoved(kind=kind, name=gone)
                    self._ahead.change(window, _text(kind, gone), None, removed)

        await self._plain.operate(admit, owner=owner)

    async def put(
        self,
        kind: str,
        name: str,
        document: str,
        by: Actor,
        shown: Mapping[str, Any],
        check: Check = any_may,
    ) -> bool:
        """Store it; whether there was none of that name. `shown`: what the audit shows of it,
        without secrets. `check` is given what it replaces. Raises BadRequestError,
        ShareExceededError for too many, and what `check` raises."""
        event = DocumentSet(kind=kind, name=name, document=document, set_us=self._clock.wall_us())
        made = False

        def admit(window: Window) -> Action:
            nonlocal made
            before, owner = self._ahead.rows.get(_text(kind, name)), _owner_of(document)
            made = before is None
            try:
                check(before)
                if before is None:
                    self._shares.take(owner, 1)
            except SebError as error:
                raise Refusal(error, None) from None
            if before is not None:
                self._shares.give_back(_owner_of(before.document), 1)
                self._shares.take_anyway(owner, 1)
            row = DocumentRow(kind, name, document, event.set_us)
            self._ahead.change(window, _text(kind, name), row, event)
            return Action(f"{kind}_{'created' if made else 'changed'}", kind, name, None, shown)

        await self._writes.store(admit, by)
        self._tell(kind)
        return made

    async def remove(self, kind: str, name: str, by: Actor) -> None:
        """Raises NotFoundError."""

        def admit(window: Window) -> Action:
            row = self._ahead.find(_text(kind, name))
            self._shares.give_back(_owner_of(row.document), 1)
            self._ahead.change(
                window, _text(kind, name), None, DocumentRemoved(kind=kind, name=name)
            )
            return Action(f"{kind}_removed", kind, name)

        await self._writes.store(admit, by)
        self._tell(kind)


def _text(kind: str, name: str) -> str:
    return f"{kind} {name!r}"


def _owner_of(document: str) -> str:
    try:
        return _owned(document).owner
    except msgspec.DecodeError:
        return OPERATOR
