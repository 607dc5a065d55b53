"""Several entries in flight, as a model: a writer of fencing mode A sends n and n+1 at once.

It is not what the appliance does (docs/decisions/append.md, "One entry in flight"); it says which
rules that would need. The bucket creates only if absent, nothing is deleted, and disks are lost at
each crash. A PUT that was sent lands at any later time or never, also when its writer is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

EntryId = tuple[int, int]  # writer and number: 0 is the epoch entry, fillers count down from -1


class Entry(NamedTuple):
    epoch: int
    entry_id: EntryId
    prev: EntryId | None


class Log(NamedTuple):
    """What a reader knows after the keys up to `seq`."""

    seq: int = 0
    epoch: int = 0
    last: EntryId | None = None
    ids: tuple[EntryId, ...] = ()

    def apply(self, entry: Entry) -> Log:
        ids = (*self.ids, entry.entry_id) if entry.entry_id[1] > 0 else self.ids
        return Log(self.seq + 1, entry.epoch, entry.entry_id, ids)

    def continues(self, entry: Entry) -> bool:
        return entry.prev == self.last and entry.epoch >= self.epoch


class Writer(NamedTuple):
    """`phase`: down, replay, claim, fill, or force. `sent`: what is not acknowledged yet."""

    phase: str = "down"
    starts: int = 0
    appends: int = 0
    fillers: int = 0
    log: Log = Log()
    sent: tuple[tuple[int, Entry], ...] = ()


class World(NamedTuple):
    journal: frozenset[tuple[int, Entry]] = frozenset()
    under_way: frozenset[tuple[int, Entry]] = frozenset()
    writers: tuple[Writer, ...] = ()
    acknowledged: frozenset[EntryId] = frozenset()


@dataclass(frozen=True, kw_only=True)
class InFlightModel:
    """The bounds, and the rules: switch one off and the model must find a broken log."""

    in_flight: int = 2
    appends: tuple[int, ...] = (3, 2)
    acknowledges_in_order: bool = True
    passes_over_orphans: bool = True
    fills_after_its_epoch: bool = True

    def initial(self) -> World:
        return World(writers=(Writer(),) * len(self.appends))

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        journal = dict(world.journal)
        for seq, entry in world.under_way:
            landed = _land(world, journal, seq, entry)
            yield f"{entry.entry_id} arrives at {seq}", landed
        for number, writer in enumerate(world.writers):
            for what, after, changed in self._steps_of(world, journal, number, writer):
                writers = (*world.writers[:number], changed, *world.writers[number + 1 :])
                yield f"writer {number}: {what}", after._replace(writers=writers)

    def _steps_of(
        self, world: World, journal: dict[int, Entry], number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        log, down = writer.log, Writer(starts=writer.starts, appends=writer.appends)
        if writer.phase == "down":
            if not writer.starts:
                yield "starts", world, Writer("replay", 1, writer.appends)
            return
        yield "crashes", world, down
        if writer.phase == "force":
            yield from self._in_force(world, journal, number, writer)
            return
        found = journal.get(log.seq + 1)
        after = None if found is None else self.read(log, found)
        if writer.phase == "replay" and found is None:
            yield "is at the end", world, writer._replace(phase="claim")
        elif found is None:
            entry = self._own(number, writer)
            under_way = world.under_way | {(log.seq + 1, entry)}
            yield "crashes while it sends", world._replace(under_way=under_way), down
            stored = _land(world, journal, log.seq + 1, entry)
            yield "stores its epoch or a filler", stored, self._next(writer, log.apply(entry))
        elif after is None or (writer.phase == "fill" and after.last != log.last):
            yield "stops: another has started", world, down
        elif writer.phase == "fill":
            yield "passes over an orphan", world, self._next(writer, after)
        else:
            yield "reads the next key", world, writer._replace(phase="replay", log=after)

    def _own(self, number: int, writer: Writer) -> Entry:
        """The epoch entry, or a filler."""
        if writer.phase == "claim":
            return Entry(writer.log.epoch + 1, (number, 0), writer.log.last)
        return Entry(writer.log.epoch, (number, -writer.fillers), writer.log.last)

    def _next(self, writer: Writer, log: Log) -> Writer:
        """Once a key of the start is settled."""
        fillers = writer.fillers - 1
        if writer.phase == "claim":
            fillers = self.in_flight - 1 if self.fills_after_its_epoch else 0
        return writer._replace(phase="fill" if fillers else "force", log=log, fillers=fillers)

    def _in_force(
        self, world: World, journal: dict[int, Entry], number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        sent, log = writer.sent, writer.log
        if len(sent) < self.in_flight and writer.appends < self.appends[number]:
            seq, last = (sent[-1][0], sent[-1][1].entry_id) if sent else (log.seq, log.last)
            put = seq + 1, Entry(log.epoch, (number, writer.appends + 1), last)
            changed = writer._replace(appends=writer.appends + 1, sent=(*sent, put))
            yield "sends", world._replace(under_way=world.under_way | {put}), changed
        for i, (seq, entry) in enumerate(sent):
            found = journal.get(seq)
            if found is not None and found != entry:
                yield "412: fenced", world, Writer(starts=1, appends=writer.appends)
            elif found == entry and (i == 0 or not self.acknowledges_in_order):
                told = world._replace(acknowledged=world.acknowledged | {entry.entry_id})
                rest = sent[:i] + sent[i + 1 :]
                applied = log.apply(entry) if i == 0 else log
                yield "acknowledges", told, writer._replace(log=applied, sent=rest)

    def read(self, log: Log, entry: Entry) -> Log | None:
        """After the next key; None if this cannot be in a log."""
        if log.continues(entry):
            return log.apply(entry)
        if self.passes_over_orphans and entry.epoch < log.epoch:
            return log._replace(seq=log.seq + 1)
        return None

    def violation(self, world: World) -> str:
        journal = dict(world.journal)
        log: Log | None = Log()
        while log is not None and (entry := journal.get(log.seq + 1)) is not None:
            seq, log = log.seq + 1, self.read(log, entry)
        if log is None:
            return f"the log cannot be followed past {seq - 1}"
        if lost := world.acknowledged - set(log.ids):
            return f"acknowledged entries are LOST: {lost}"
        return ""


def _land(world: World, journal: dict[int, Entry], seq: int, entry: Entry) -> World:
    """It lands if nothing is there; it is under way no more."""
    under_way = world.under_way - {(seq, entry)}
    if seq in journal:
        return world._replace(under_way=under_way)
    return world._replace(under_way=under_way, journal=world.journal | {(seq, entry)})
