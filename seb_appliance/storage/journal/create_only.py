"""Fencing mode A: the store creates an object only if it is absent.

Every entry lies at `journal/<seq>.seb`, so the epoch entry of a new writer takes the very key that
the old writer needs next.
"""

from __future__ import annotations

from typing import Final

from seb_appliance.formats.entry import EncodedEntry, Entry, EntryHeader, Position
from seb_appliance.storage import layout
from seb_appliance.storage.journal.journal import StoredJournal, create_entry
from seb_appliance.storage.journal.replay import (
    EntryReader,
    Replay,
    ReplayError,
    Span,
    chain_refusal,
)

_AHEAD_IN_A_RACE: Final = 4  # of which the first is there, and perhaps the next


class CreateOnlyJournal(StoredJournal):
    _fenced_side_effects = "none"  # ours can never land at a key that another took
    encodes_ahead = True

    async def _store(self, encoded: EncodedEntry) -> None:
        key = layout.create_only_key(encoded.entry.header.seq)
        ours = await create_entry(self._object_store, key, encoded)
        self._failpoints.reach("K7")
        if not ours:
            raise self._fence(f"another appliance has written entry {encoded.entry.header.seq}")

    async def confirm_in_force(self) -> None:
        """Read the next key: a newer writer's first entry can only be there."""
        self._refuse_if_fenced()
        seq = self.position.seq + 1
        reader = EntryReader(self._object_store)
        try:
            header = await reader.read_header(layout.create_only_key(seq))
        except ReplayError as error:
            # If it is ours, of an append in progress, that append decides.
            if self._appending or self.position.seq >= seq:
                return
            detail = f"the next key of the journal is taken: {error}"
            raise self._fence(detail, side_effects="unknown") from error
        # An append in progress may have stored ours there meanwhile.
        if header is not None and header.writer_id != self.writer_id:
            raise self._fence(f"another appliance has written entry {seq}")


class CreateOnlyLog:
    """`recovery.Log` of mode A."""

    def __init__(self, replay: Replay, bucket_id: bytes) -> None:
        self.bucket_id = bucket_id
        self._replay = replay

    async def look(self) -> None:
        """Nothing to do: the keys are numbered."""

    async def holds(self, position: Position) -> bool:  # noqa: ARG002 - the protocol's
        """The first entry replayed is checked against it."""
        return True

    async def entry_at(self, position: Position) -> EntryHeader | None:
        return await self._replay.reader.read_header(layout.create_only_key(position.seq))

    async def replay(self, position: Position) -> Position:
        span = create_only_span()
        await self._replay.expect(layout.JOURNAL, layout.create_only_key(position.seq))
        position = await self._replay.run(position, span, self.bucket_id)
        if not await self._goes_on_after(position):
            return position
        # Either it was stored after its GET, or LIST shows what GET does not. One more replay is
        # enough: a running writer may store another entry each time.
        end = await self._replay.run(position, span, self.bucket_id)
        if end == position:
            raise ReplayError(
                layout.create_only_key(position.seq + 1), "is listed, but GET answers 404"
            )
        await self._goes_on_after(end)
        return end

    async def read_on(self, position: Position) -> list[Entry]:
        """What was stored after `position` since the log ended there, not applied. Raises
        ReplayError.

        For a start that races a running writer for the next key. No LIST is needed: the log had no
        gap when `replay` looked, and later entries were stored one after the other."""
        return await self._replay.read(
            position, create_only_span(), self.bucket_id, ahead=_AHEAD_IN_A_RACE
        )

    async def _goes_on_after(self, position: Position) -> bool:
        """Whether LIST shows the next entry. Raises ReplayError for a gap."""
        key, next_key = (layout.create_only_key(position.seq + i) for i in (0, 1))
        above = await self._replay.store.list_after(layout.JOURNAL, key, 1)
        if above and above[0].key != next_key:
            there = above[0].key
            raise ReplayError(
                next_key,
                f"is missing, and {there} is there (if no appliance made that one, move it out of "
                "the bucket)",
            )
        return bool(above)


def create_only_span() -> Span:
    """The whole log, of all writers."""
    return Span(layout.create_only_key, None, _refusal)


def _refusal(header: EntryHeader, position: Position) -> str:
    """The next entry has exactly seq = prev + 1 and the current epoch, or is an epoch entry with a
    larger one."""
    if why := chain_refusal(header, position):
        return why
    if header.is_epoch:
        if header.epoch > position.epoch:
            return ""
        return f"begins epoch {header.epoch}, but epoch {position.epoch} is in force before it"
    if (header.epoch, header.writer_id) == (position.epoch, position.writer_id):
        return ""
    return f"is of epoch {header.epoch}, which is not in force there (epoch {position.epoch} is)"
