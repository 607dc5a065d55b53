"""Fencing mode A as a model: writers, a bucket that creates only if absent, and deletion.

The bucket holds entries by seq, and snapshots. Every PUT of an entry may land and be answered, land
and lose its answer, or stay under way and land at any later time. Writers crash anywhere, keep or
lose their disks, and are never told that they are zombies. Replay reads one key a step. Who was too
late with an epoch entry reads what came before it and tries again, without another LIST.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

EntryId = tuple[int, int, int]  # writer, start, number: 0 is the epoch entry


class Entry(NamedTuple):
    epoch: int
    entry_id: EntryId
    prev: EntryId | None

    @property
    def is_epoch(self) -> bool:
        return self.entry_id[2] == 0

    @property
    def author(self) -> tuple[int, int]:
        return self.entry_id[:2]


class Local(NamedTuple):
    """State as of an entry; a snapshot is the same thing in the bucket."""

    seq: int = 0
    epoch: int = 0
    author: tuple[int, int] = (-1, 0)
    last: EntryId | None = None
    log: tuple[EntryId, ...] = ()

    def apply(self, entry: Entry) -> Local:
        log = self.log if entry.is_epoch else (*self.log, entry.entry_id)
        return Local(self.seq + 1, entry.epoch, entry.author, entry.entry_id, log)


NOTHING = Local()


class Writer(NamedTuple):
    """`phase`: down, begin, replay, claim, chase, check or force. `began`: seq that `local` was
    begun from; `putting`: the entry under way in phases claim and force; `unclear`: answers lost.
    """

    phase: str = "down"
    starts: int = 0
    appends: int = 0
    local: Local = NOTHING
    began: int = 0
    putting: Entry | None = None
    unclear: int = 0
    snapshots: int = 0


class World(NamedTuple):
    journal: frozenset[tuple[int, Entry]]
    snapshots: frozenset[Local]
    under_way: frozenset[tuple[int, Entry]]
    writers: tuple[Writer, ...]
    acknowledged: frozenset[EntryId]


@dataclass(frozen=True, kw_only=True)
class CreateOnlyModel:
    """The bounds, and the rules: switch one off and the model must find a lost record."""

    starts: tuple[int, ...] = (1, 1)  # of each writer
    appends: tuple[int, ...] = (2, 1)
    snapshots: tuple[int, ...] = (2, 0)
    unclear: tuple[int, ...] = (1, 1)  # lost answers, for each PUT
    kept: int = 2  # snapshots that the floor goes by
    creates_only_if_absent: bool = True
    floor_checked_after_epoch: bool = True
    epoch_entries_stay: bool = True
    deletes_only_to_floor: bool = True
    steps_over_nothing: bool = True

    def initial(self) -> World:
        empty: frozenset = frozenset()
        return World(empty, empty, empty, (Writer(),) * len(self.starts), empty)

    def floor(self, world: World) -> int:
        seqs = sorted((s.seq for s in world.snapshots), reverse=True)
        return seqs[self.kept - 1] if len(seqs) >= self.kept else 0

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        journal = dict(world.journal)
        for put in world.under_way:
            landed = world._replace(under_way=world.under_way - {put})
            if put[0] not in journal or not self.creates_only_if_absent:
                landed = _store(landed, put)
            yield f"a late PUT of {put} lands", landed
        for number, writer in enumerate(world.writers):
            for what, after, changed in self._writer_steps(world, journal, number, writer):
                writers = (*after.writers[:number], changed, *after.writers[number + 1 :])
                yield f"writer {number}: {what}", after._replace(writers=writers)

    def _writer_steps(
        self, world: World, journal: dict[int, Entry], number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        if writer.phase != "down":
            yield "crashes and loses its disk", world, _down(writer, NOTHING)
            if writer.starts < self.starts[number]:
                yield "crashes", world, _down(writer, writer.local)
        elif writer.starts < self.starts[number]:
            yield "starts", world, writer._replace(phase="begin", starts=writer.starts + 1)
        if writer.phase == "begin":
            yield "begins", world, self._begin(world, writer)
        elif writer.phase in {"replay", "chase"}:
            yield "reads the next key", world, self._replay(journal, number, writer)
        elif writer.phase == "check":
            misled = self.floor_checked_after_epoch and self.floor(world) > writer.began
            after = _anew(writer) if misled else writer._replace(phase="force")
            yield "lists the snapshots", world, after
        elif writer.phase == "force":
            yield from self._in_force(world, journal, number, writer)
        if writer.putting is not None:
            yield from self._put(world, journal, number, writer)

    def _begin(self, world: World, writer: Writer) -> Writer:
        """From the local state or the newest snapshot, whichever is further."""
        local = writer.local
        if local.seq < self.floor(world):
            local = NOTHING
        newest = max(world.snapshots, key=lambda s: s.seq, default=NOTHING)
        local = max(local, newest, key=lambda s: s.seq)
        return writer._replace(phase="replay", local=local, began=local.seq)

    def _replay(self, journal: dict[int, Entry], number: int, writer: Writer) -> Writer:
        seq, local = writer.local.seq + 1, writer.local
        entry = journal.get(seq)
        above = [s for s in journal if s > seq] if writer.phase == "replay" else []
        if entry is None and not above:
            epoch_entry = Entry(local.epoch + 1, (number, writer.starts, 0), local.last)
            return writer._replace(phase="claim", putting=epoch_entry, unclear=0)
        if entry is not None and continues(local, entry):
            return writer._replace(local=local.apply(entry))
        if self.steps_over_nothing:
            return _anew(writer)
        return writer._replace(local=local._replace(seq=seq))  # as if there were nothing at seq

    def _put(
        self, world: World, journal: dict[int, Entry], number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        """One attempt at the entry that the writer is putting."""
        entry, seq = writer.putting, writer.local.seq + 1
        assert entry is not None
        found = journal.get(seq) if self.creates_only_if_absent else None
        stored = _store(world, (seq, entry))
        if found is not None and found != entry:
            if entry.is_epoch:
                yield "412: reads on", world, writer._replace(phase="chase", putting=None)
            else:
                yield "412: fenced", world, _down(writer, writer.local)
            return
        done = writer._replace(local=writer.local.apply(entry), putting=None, unclear=0)
        if entry.is_epoch:
            yield "epoch stored", stored, done._replace(phase="check")
        else:
            told = stored._replace(acknowledged=stored.acknowledged | {entry.entry_id})
            yield "entry acknowledged", told, done
        if found is None and writer.unclear < self.unclear[number]:
            again = writer._replace(unclear=writer.unclear + 1)
            yield "PUT landed, answer lost", stored, again
            late = world._replace(under_way=world.under_way | {(seq, entry)})
            yield "PUT is under way, answer lost", late, again

    def _in_force(
        self, world: World, journal: dict[int, Entry], number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        local = writer.local
        if writer.putting is None and writer.appends < self.appends[number]:
            entry = Entry(local.epoch, (number, writer.starts, writer.appends + 1), local.last)
            yield "seals", world, writer._replace(putting=entry, appends=writer.appends + 1)
        taken = {snapshot.seq for snapshot in world.snapshots}
        if writer.snapshots < self.snapshots[number] and local.seq not in taken:
            after = world._replace(snapshots=world.snapshots | {local})
            yield "snapshots", after, writer._replace(snapshots=writer.snapshots + 1)
        newest = max(taken, default=0)
        until = self.floor(world) if self.deletes_only_to_floor else newest
        for seq, entry in journal.items():
            if seq <= until and not (entry.is_epoch and self.epoch_entries_stay):
                after = world._replace(journal=world.journal - {(seq, entry)})
                yield f"deletes entry {seq}", after, writer

    def violation(self, world: World) -> str:
        journal = dict(world.journal)
        newest_first = sorted(world.snapshots, key=lambda s: s.seq, reverse=True)
        sources = newest_first[: self.kept]
        if len(sources) < self.kept:
            sources.append(NOTHING)
        for source in sources:
            local = source
            while (entry := journal.get(local.seq + 1)) and continues(local, entry):
                local = local.apply(entry)
            if any(seq > local.seq for seq in journal):
                return f"from snapshot {source.seq} the log cannot be followed past {local.seq}"
            if lost := world.acknowledged - set(local.log):
                return f"from snapshot {source.seq} acknowledged entries are LOST: {lost}"
            if len(set(local.log)) != len(local.log):
                return f"from snapshot {source.seq} an entry is there twice: {local.log}"
        return ""


def continues(local: Local, entry: Entry) -> bool:
    if entry.prev != local.last:
        return False
    if entry.is_epoch:
        return entry.epoch > local.epoch
    return (entry.epoch, entry.author) == (local.epoch, local.author)


def _store(world: World, put: tuple[int, Entry]) -> World:
    others = frozenset(item for item in world.journal if item[0] != put[0])
    return world._replace(journal=others | {put})


def _down(writer: Writer, local: Local) -> Writer:
    return writer._replace(phase="down", local=local, putting=None, unclear=0, began=0)


def _anew(writer: Writer) -> Writer:
    return writer._replace(phase="begin", local=NOTHING, putting=None, unclear=0, began=0)
