"""The state of `upkeep_model.py`: two writers, a bucket, a reader; and what must hold of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.model.upkeep_log import Object, Op, Switch, View, view_of


class Snapshot(NamedTuple):
    seq: int
    good: bool


class Job(NamedTuple):
    """`stored`: its object is in the bucket, and was read back."""

    switch: Switch
    inputs: frozenset[Object]
    stored: bool = False


class Writer(NamedTuple):
    """`phase`: begin, fetch, read, epoch (mode A: the log ends here, so create the epoch entry),
    check (LIST the snapshots again), base (mode B), force, zombie. `began`: the seq that local
    state was begun from; `knows`: so many entries of the log. `queue`: the entry under way, which
    has `landed` or not, and the window behind it. `astray`: its epoch entry took a freed key."""

    phase: str
    epoch: int = 0
    began: int = 0
    knows: int = 0
    target: int = 0
    claimed: bool = False
    astray: bool = False
    queue: tuple[Op, ...] = ()
    landed: bool = False
    job: Job | None = None
    elsewhere: Job | None = None
    jobs: int = 0
    clusters: int = 0
    appends: int = 0
    trims: int = 0
    snapshots: int = 0
    read_back: Snapshot | None = None  # PUT, and not looked at yet
    removing: frozenset[Snapshot] = frozenset()


class Reader(NamedTuple):
    """`place`: where the next record lies, as it was looked up: an object, or an entry's seq."""

    at: int = 1
    place: Object | int | None = None
    kept: frozenset[int] = frozenset()
    last: int = 0
    skipped: frozenset[int] = frozenset()
    done: bool = False


class World(NamedTuple):
    """`acknowledged`: so many entries of the log are. `wrong`: what happened that must not."""

    log: tuple[Op, ...]
    entries: frozenset[int]  # seqs of the log that are in the bucket
    writers: tuple[Writer, Writer]
    objects: frozenset[Object] = frozenset()
    snapshots: frozenset[Snapshot] = frozenset()
    bad: int = 0  # snapshots that were damaged on the way
    claim: int = 1  # mode B: the highest
    acknowledged: int = 1
    reader: Reader = Reader(done=True)
    wrong: str = ""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The bounds (of each of the two writers), and the rules: switch one off and the model must
    find a lost record. `keys`: record keys of what the writers append, in turn."""

    mode: Literal["A", "B"]
    keys: str = "aabb"
    appends: tuple[int, int] = (2, 0)
    trims: tuple[int, int] = (0, 0)
    jobs: tuple[int, int] = (2, 0)
    clusters: tuple[int, int] = (0, 0)
    snapshots: tuple[int, int] = (0, 0)
    bad: int = 0
    kept: int = 2  # snapshots that the floor goes by
    takes_over: bool = True
    reads: bool = False  # a reader, at the first writer
    switches_before_deleting: bool = True
    condemns_before_deleting: bool = True
    switch_checks_inputs: bool = True
    leaves_held_alone: bool = True
    spares_names_that_were_given: bool = True
    keeps_newest: bool = True
    tombstones_outlive: bool = True  # by a compaction, what they delete
    checks_after_put: bool = True  # mode B
    checks_floor: bool = True
    checks_newest_snapshot: bool = True
    reader_looks_again: bool = True

    def floor(self, world: World) -> int:
        seqs = sorted({snapshot.seq for snapshot in world.snapshots}, reverse=True)
        return seqs[self.kept - 1] if len(seqs) >= self.kept else 0


def append(world: World, op: Op) -> World:
    log = (*world.log, op)
    return world._replace(log=log, entries=world.entries | {len(log)})


def read(world: World, *, looks_again: bool) -> Iterator[tuple[str, Reader]]:
    """Look up where the next record lies, at the first writer; or read what lies there."""
    reader = world.reader
    view = view_of(world.log[: world.writers[0].knows])
    if reader.at < view.start:
        yield "is told that the log begins later", reader._replace(done=True)
    elif reader.place is None:
        yield from _look_up(view, reader)
    elif _is_there(world, reader.place):
        passed = frozenset(range(reader.at, reader.last + 1)) - reader.kept
        read_on = reader._replace(place=None, at=reader.last + 1, skipped=reader.skipped | passed)
        yield f"reads up to {reader.last}", read_on
    elif looks_again:
        yield "finds nothing there, and looks again", reader._replace(place=None)
    else:
        gone = frozenset(range(reader.at, reader.last + 1))
        skipped = reader._replace(place=None, at=reader.last + 1, skipped=reader.skipped | gone)
        yield "finds nothing there, and reads on", skipped


def _look_up(view: View, reader: Reader) -> Iterator[tuple[str, Reader]]:
    offsets = [at for at, _ in view.keys if at >= reader.at]
    if not offsets:
        return
    section = view.section_of(offsets[0])
    if section is not None:
        found = reader._replace(place=section.found, kept=section.kept, last=section.last)
    else:
        kept = frozenset(offsets[:1])
        found = reader._replace(place=offsets[0], kept=kept, last=offsets[0])
    yield f"looks up where {offsets[0]} is", found


def _is_there(world: World, place: Object | int) -> bool:
    return place in world.entries or place in world.objects


def broken(world: World, floor: int) -> str:
    """What a bucket is that somebody cannot begin from, or that has lost a record; or ""."""
    if world.wrong:
        return world.wrong
    source = max((s.seq for s in world.snapshots if s.good), default=0)
    if source < floor:
        return f"nothing at or above the floor {floor} can be begun from"
    if not world.entries.issuperset(range(source + 1, len(world.log) + 1)):
        return "the log cannot be followed to its end"
    view = view_of(world.log)
    for offset, _ in view.keys:
        if offset >= view.start and (lost := _lost(world, view, offset)):
            return lost
    for offset in world.reader.skipped & dict(view.keys).keys():
        if offset < view.start or view.is_superseded(offset):
            continue
        if not view.is_tombstone(offset):
            return f"the reader stepped over {offset}"
        if set(view.deleted_by(offset)) - world.reader.skipped:
            return f"the reader has what {offset} deletes, and stepped over it"
    return ""


def _lost(world: World, view: View, offset: int) -> str:
    if offset > view.tidied:
        return "" if offset in world.entries else f"entry {offset} is LOST"
    section = view.section_of(offset)
    if section is None:
        return f"nothing in force answers for {offset}"
    if section.found not in world.objects:
        return f"object {section.found}, which is in force, is LOST"
    if offset in section.kept or view.is_superseded(offset):
        return ""
    if not view.is_tombstone(offset):
        return f"{offset} is the newest of its record key, and LOST"
    kept = frozenset().union(*(section.kept for section in view.sections))
    shown = [at for at in view.deleted_by(offset) if at > view.tidied or at in kept]
    return f"{offset} is gone, and {shown} show again" if shown else ""
