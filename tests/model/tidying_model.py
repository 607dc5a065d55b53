"""Tidying as a model: put, switch, condemn, delete, and snapshots that give way to newer ones.

Two writers, of which the first may be a zombie at any moment: it goes on deleting by what it knows.
The log is taken as the other two models have proved it: one order, and an append of a writer that
is not the newest is no part of it. What a writer knows is a prefix of the log; in mode B without
the check after each PUT, also entries of its own that are not on it.

Grace times are not modelled: what is condemned may be deleted at once, which is sooner than any
clock would allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

Object = tuple[int, int]  # epoch in its name, number
Op = tuple  # ("epoch", e) | ("data",) | ("switch", object, inputs, until) | ("condemn", object)


class View(NamedTuple):
    """What a log amounts to. `living`: objects in force, each with the data entries it stands for;
    `tidied`: entries up to this one hold nothing in force; `data`: seqs of all data entries."""

    living: tuple[tuple[Object, frozenset[int]], ...] = ()
    condemned: frozenset[Object] = frozenset()
    unused: frozenset[Object] = frozenset()
    tidied: int = 0
    data: tuple[int, ...] = ()

    @property
    def untidied(self) -> frozenset[int]:
        return frozenset(seq for seq in self.data if seq > self.tidied)

    @property
    def in_force(self) -> frozenset[Object]:
        return frozenset(found for found, _ in self.living)


@cache
def view_of(log: tuple[Op, ...]) -> View:
    view = View()
    for seq, op in enumerate(log, 1):
        view = _applied(view, seq, op)
    return view


def _applied(view: View, seq: int, op: Op) -> View:
    if op[0] == "data":
        return view._replace(data=(*view.data, seq))
    if op[0] == "condemn":
        gone = frozenset({op[1]})
        living = tuple(item for item in view.living if item[0] not in gone)
        return view._replace(
            living=living, condemned=view.condemned | gone, unused=view.unused - gone
        )
    if op[0] == "switch":
        _, made, inputs, until = op
        merged = [entries for found, entries in view.living if found in inputs]
        taken = frozenset().union(*merged)
        if until:
            taken |= {s for s in view.data if view.tidied < s <= until}
        kept = tuple(item for item in view.living if item[0] not in inputs)
        return view._replace(
            living=(*kept, (made, taken)),
            unused=view.unused | frozenset(inputs),
            tidied=max(view.tidied, until),
        )
    return view


class Snapshot(NamedTuple):
    seq: int
    good: bool


class Job(NamedTuple):
    """`stored`: its object is in the bucket, and was read back."""

    made: Object
    inputs: tuple[Object, ...]
    until: int
    stored: bool = False


class Writer(NamedTuple):
    """`knows`: so many entries of the log, and then `ghosts`; `pending`: the entry under way, which
    has `landed` or not; `removing`: snapshots that it has decided to delete."""

    epoch: int = 0  # 0: not started, or fenced
    knows: int = 0
    ghosts: tuple[Op, ...] = ()
    pending: Op | None = None
    landed: bool = False
    job: Job | None = None
    jobs: int = 0
    appends: int = 0
    snapshots: int = 0
    read_back: Snapshot | None = None  # PUT, and not looked at yet
    removing: frozenset[Snapshot] = frozenset()


class World(NamedTuple):
    log: tuple[Op, ...]
    entries: frozenset[int]  # seqs of the log that are in the bucket
    objects: frozenset[Object]
    snapshots: frozenset[Snapshot]
    under_way: frozenset[Object]  # PUTs of jobs that were given up
    bad: int  # snapshots that were damaged on the way
    writers: tuple[Writer, ...]


@dataclass(frozen=True, kw_only=True)
class TidyingModel:
    """The bounds, and the rules: switch one off and the model must find a lost record."""

    mode: Literal["A", "B"]
    appends: tuple[int, ...] = (2, 0)  # of each writer
    jobs: tuple[int, ...] = (2, 1)
    snapshots: tuple[int, ...] = (1, 1)
    bad: int = 1  # snapshots that may be damaged
    kept: int = 2  # snapshots that the floor goes by
    deletes_condemned_only: bool = True
    settles_before_deciding: bool = True  # nothing of ours is under way in the journal
    strays_while_no_job: bool = True
    refuses_condemned: bool = True  # a switch to an object that was condemned
    entries_when_tidied: bool = True
    entries_to_floor: bool = True
    reads_back_snapshots: bool = True
    removes_damaged_snapshots: bool = True  # of its own, which the floor would count
    checks_after_put: bool = True  # mode B

    def initial(self) -> World:
        empty: frozenset = frozenset()
        started = Writer(epoch=1, knows=1)
        rest = (Writer(),) * (len(self.appends) - 1)
        return World((("epoch", 1),), frozenset({1}), empty, empty, empty, 0, (started, *rest))

    def floor(self, world: World) -> int:
        seqs = sorted({snapshot.seq for snapshot in world.snapshots}, reverse=True)
        return seqs[self.kept - 1] if len(seqs) >= self.kept else 0

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        for late in world.under_way:
            rest = world.under_way - {late}
            landed = world._replace(objects=world.objects | {late}, under_way=rest)
            yield f"a late PUT of object {late} lands", landed
        for number, writer in enumerate(world.writers):
            for what, after, changed in self._writer_steps(world, number, writer):
                writers = (*after.writers[:number], changed, *after.writers[number + 1 :])
                yield f"writer {number}: {what}", after._replace(writers=writers)

    def _writer_steps(
        self, world: World, number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        if number and not writer.epoch and not writer.knows:
            taken = _append(world, ("epoch", number + 1))
            yield "takes over", taken, Writer(epoch=number + 1, knows=len(taken.log))
        if not writer.epoch:
            return
        yield from self._journal(world, number, writer)
        view = view_of((*world.log[: writer.knows], *writer.ghosts))
        yield from self._job(world, number, writer, view)
        yield from self._condemn(world, writer, view)
        yield from self._delete(world, writer, view)
        yield from self._snapshot(world, number, writer)

    # --- the journal ---

    def _journal(
        self, world: World, number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        is_newest = _newest(world) == writer.epoch
        if writer.pending is None:
            if writer.appends < self.appends[number]:
                sealed = writer._replace(pending=("data",), appends=writer.appends + 1)
                yield "seals data", world, sealed
        elif not writer.landed and is_newest:
            yield (
                f"its {writer.pending[0]} lands",
                _append(world, writer.pending),
                writer._replace(landed=True),
            )
        elif not writer.landed and self.mode == "B" and not self.checks_after_put:
            ghost = writer._replace(ghosts=(*writer.ghosts, writer.pending), pending=None)
            yield f"its {writer.pending[0]} is stored beside the log", world, ghost
        elif not writer.landed:
            yield "is fenced", world, _fenced(writer)
        elif is_newest or self.mode == "A" or not self.checks_after_put:
            # Mode A: 412, and the entry at that key is ours.
            learned = writer._replace(knows=writer.knows + 1, pending=None, landed=False)
            yield f"learns that its {writer.pending[0]} is stored", world, learned
        else:
            yield "sees a higher claim", world, _fenced(writer)

    # --- merging ---

    def _job(
        self, world: World, number: int, writer: Writer, view: View
    ) -> Iterator[tuple[str, World, Writer]]:
        job = writer.job
        if job is None:
            if writer.jobs < self.jobs[number] and self._settled(writer):
                made = (writer.epoch, writer.jobs + 1)
                begun = writer._replace(jobs=writer.jobs + 1)
                if view.untidied:
                    until = max(view.untidied)
                    yield "merges entries", world, begun._replace(job=Job(made, (), until))
                if view.living:
                    inputs = tuple(found for found, _ in view.living)
                    yield "merges objects", world, begun._replace(job=Job(made, inputs, 0))
            return
        if not job.stored:
            stored = world._replace(objects=world.objects | {job.made})
            yield f"stores {job.made}", stored, writer._replace(job=job._replace(stored=True))
            late = world._replace(under_way=world.under_way | {job.made})
            yield "its child dies", late, writer._replace(job=None)
            return
        yield "gives the job up", world, writer._replace(job=None)
        is_free = job.made not in view.condemned or not self.refuses_condemned
        if writer.pending is None and is_free:
            switch = ("switch", job.made, job.inputs, job.until)
            yield "switches", world, writer._replace(pending=switch, job=None)

    def _settled(self, writer: Writer) -> bool:
        return writer.pending is None or not self.settles_before_deciding

    # --- garbage ---

    def _condemn(
        self, world: World, writer: Writer, view: View
    ) -> Iterator[tuple[str, World, Writer]]:
        for found in self._garbage(world, writer, view):
            if writer.pending is None:
                condemned = writer._replace(pending=("condemn", found))
                yield f"condemns {found}", world, condemned
            if not self.deletes_condemned_only:
                gone = world._replace(objects=world.objects - {found})
                yield f"deletes {found}, which nothing refers to", gone, writer
        if writer.pending is not None and not self.settles_before_deciding and writer.landed:
            # Its caller gave up waiting: what is under way is not in what it knows.
            for found in self._strays(world, writer, view):
                learned = writer._replace(knows=writer.knows + 1, landed=False)
                yield f"condemns {found}", world, learned._replace(pending=("condemn", found))

    def _garbage(self, world: World, writer: Writer, view: View) -> frozenset[Object]:
        if not self._settled(writer):
            return frozenset()
        return view.unused & world.objects | self._strays(world, writer, view)

    def _strays(self, world: World, writer: Writer, view: View) -> frozenset[Object]:
        if writer.job is not None and self.strays_while_no_job:
            return frozenset()
        known = view.in_force | view.condemned
        return frozenset(found for found in world.objects - known if found[0] <= writer.epoch)

    def _delete(
        self, world: World, writer: Writer, view: View
    ) -> Iterator[tuple[str, World, Writer]]:
        for found in view.condemned & world.objects:
            gone = world._replace(objects=world.objects - {found})
            yield f"deletes {found}", gone, writer
        until = view.tidied if self.entries_when_tidied else writer.knows
        if self.entries_to_floor:
            until = min(until, self.floor(world))
        for seq in world.entries:
            if seq <= until and world.log[seq - 1][0] != "epoch":
                gone = world._replace(entries=world.entries - {seq})
                yield f"deletes entry {seq}", gone, writer

    # --- snapshots ---

    def _snapshot(
        self, world: World, number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        taken = {snapshot.seq for snapshot in world.snapshots}
        if writer.read_back is not None:
            if writer.read_back.good or not self.reads_back_snapshots:
                floor = self.floor(world)
                old = frozenset(s for s in world.snapshots if s.seq < floor)
                yield (
                    "reads the snapshot back",
                    world,
                    writer._replace(read_back=None, removing=writer.removing | old),
                )
            else:
                removed = frozenset({writer.read_back} if self.removes_damaged_snapshots else ())
                without = world._replace(snapshots=world.snapshots - removed)
                yield "finds it damaged", without, writer._replace(read_back=None)
        elif (
            writer.snapshots < self.snapshots[number]
            and not writer.ghosts
            and writer.knows not in taken
        ):
            for good in (True, False) if world.bad < self.bad else (True,):
                made = Snapshot(writer.knows, good)
                stored = world._replace(
                    snapshots=world.snapshots | {made}, bad=world.bad + (not good)
                )
                what = f"stores a snapshot of {made.seq}" + ("" if good else ", damaged")
                yield (
                    what,
                    stored,
                    writer._replace(snapshots=writer.snapshots + 1, read_back=made),
                )
        for old in writer.removing & world.snapshots:
            gone = world._replace(snapshots=world.snapshots - {old})
            yield f"deletes snapshot {old.seq}", gone, writer

    # --- what must hold ---

    def violation(self, world: World) -> str:
        floor, end = self.floor(world), len(world.log)
        # A start takes the newest that is good. An older one may be of no use: once a damaged one
        # is removed, the floor goes back, and entries above it may have been deleted by it.
        source = max((s.seq for s in world.snapshots if s.good), default=0)
        if source < floor:
            return f"nothing at or above the floor {floor} can be begun from"
        if not world.entries.issuperset(range(source + 1, end + 1)):
            return "the log cannot be followed to its end"
        view = view_of(world.log)
        if lost := view.untidied - world.entries:
            return f"entries {sorted(lost)} are LOST"
        if lost := view.in_force - world.objects:
            return f"objects {sorted(lost)} in force are LOST"
        stood_for = frozenset().union(*(entries for _, entries in view.living))
        if lost := set(view.data) - view.untidied - stood_for:
            return f"nothing in force stands for entries {sorted(lost)}"
        return ""


def _append(world: World, op: Op) -> World:
    log = (*world.log, op)
    return world._replace(log=log, entries=world.entries | {len(log)})


def _newest(world: World) -> int:
    return max(op[1] for op in world.log if op[0] == "epoch")


def _fenced(writer: Writer) -> Writer:
    """It appends nothing any more; what it has decided to delete, it may delete yet."""
    return writer._replace(pending=None, landed=False, job=None, appends=99, jobs=99)
