"""Upkeep as a model: retention, compaction, snapshots, a reader, and a follower that takes over.

The first writer may be a zombie from any moment on. It does its own compactions, and holds one that
a cluster makes for it. Behind it comes a follower, from nothing, a snapshot or what it has read: it
reads key by key, takes over when the log seems to end, and goes on as the writer, with the first
one still at work. `tidying_model.py` has the take-over in one step, and more of merging; the models
of fencing have the contest for it. Times are left out: what is condemned may go at once, and so may
tombstones, but that a reader is thought not to be overtaken by two compactions.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.upkeep_follower import follow
from tests.model.upkeep_log import Object, Op, Section, Switch, View, view_of
from tests.model.upkeep_world import (
    Job,
    Reader,
    Rules,
    Snapshot,
    World,
    Writer,
    append,
    broken,
    read,
)


class UpkeepModel(Rules):
    """`Rules` says how far it goes, and what is left out on purpose."""

    def initial(self) -> World:
        first = Writer("force", epoch=1, knows=1)
        world = World((("epoch", 1),), frozenset({1}), (first, Writer("begin")))
        return world._replace(reader=Reader()) if self.reads else world

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        for number, writer in enumerate(world.writers):
            for what, after, changed in self._writer_steps(world, number, writer):
                pair = (changed, after.writers[1]) if number == 0 else (after.writers[0], changed)
                yield f"writer {number}: {what}", after._replace(writers=pair)
        if not world.reader.done:
            for what, reader in read(world, looks_again=self.reader_looks_again):
                yield f"reader: {what}", world._replace(reader=reader)

    def _writer_steps(
        self, world: World, number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        if writer.phase not in ("force", "zombie"):
            if self.takes_over:
                yield from follow(self, world, writer)
            return
        view = view_of(world.log[: writer.knows])
        if writer.phase == "force":
            yield from self._journal(world, number, writer, view)
            yield from self._jobs(world, number, writer, view)
        yield from self._garbage(world, writer, view)
        yield from self._cluster(world, writer)
        yield from self._delete(world, writer, view)
        yield from self._snapshot(world, number, writer)

    # --- the journal ---

    def _journal(
        self, world: World, number: int, writer: Writer, view: View
    ) -> Iterator[tuple[str, World, Writer]]:
        if len(writer.queue) < 2:
            if writer.appends < self.appends[number]:
                op = ("data", self.keys[number * self.appends[0] + writer.appends])
                more = writer._replace(appends=writer.appends + 1)
                yield "takes a record", world, _queued(more, op)
            alive = [at for at, _ in view.keys if at >= view.start]
            if writer.trims < self.trims[number] and alive:
                more = writer._replace(trims=writer.trims + 1)
                yield "trims", world, _queued(more, ("trim", alive[0] + 1))
        if not writer.queue:
            return
        is_newest = _newest(world) == writer.epoch
        highest = self.mode == "A" or world.claim == writer.epoch or not self.checks_after_put
        what = writer.queue[0][0] if isinstance(writer.queue[0][0], str) else "switch"
        if not writer.landed and is_newest:
            after = append(world, writer.queue[0])
            yield f"its {what} lands", after, writer._replace(landed=True)
        elif writer.landed and highest:
            learned = writer._replace(knows=writer.knows + 1, queue=writer.queue[1:], landed=False)
            told = world._replace(acknowledged=max(world.acknowledged, learned.knows))
            if world.log[writer.knows] != writer.queue[0]:
                told = told._replace(wrong=f"its {what} was acknowledged, and is on no log")
            yield f"learns that its {what} is stored", told, learned
        else:
            yield "is fenced", world, _fenced(writer)

    # --- compaction ---

    def _jobs(
        self, world: World, number: int, writer: Writer, view: View
    ) -> Iterator[tuple[str, World, Writer]]:
        made = (writer.epoch, writer.jobs + writer.clusters + 1)
        if writer.job is None and _settled(writer) and writer.jobs < self.jobs[number]:
            begun = writer._replace(jobs=writer.jobs + 1)
            if view.untidied:
                yield "merges entries", world, begun._replace(job=_merged(view, made))
            free = view.in_force - self._held(writer)
            if free:
                yield "compacts", world, begun._replace(job=self._compacted(view, made, free))
        if writer.elsewhere is None and writer.clusters < self.clusters[number] and view.sections:
            job = self._compacted(view, made, view.in_force)
            begun = writer._replace(clusters=writer.clusters + 1, elsewhere=job)
            yield "a cluster begins to compact", world, begun
        if writer.job is not None and not writer.job.stored:
            stored = world._replace(objects=world.objects | {writer.job.switch.made})
            job = writer.job._replace(stored=True)
            yield f"stores {job.switch.made}", stored, writer._replace(job=job)
        elif writer.job is not None:
            yield "gives the job up", world, writer._replace(job=None)
            yield from self._switch(world, writer, view, writer.job, writer._replace(job=None))
        if writer.elsewhere is not None and writer.elsewhere.stored and writer.job is None:
            ended = writer._replace(elsewhere=None)
            yield from self._switch(world, writer, view, writer.elsewhere, ended)

    def _cluster(self, world: World, writer: Writer) -> Iterator[tuple[str, World, Writer]]:
        """It knows of no take-over: its PUT may land whenever."""
        job = writer.elsewhere
        if job is not None and not job.stored:
            stored = world._replace(objects=world.objects | {job.switch.made})
            handed_over = writer._replace(elsewhere=job._replace(stored=True))
            yield f"its cluster stores {job.switch.made}", stored, handed_over

    def _held(self, writer: Writer) -> frozenset[Object]:
        if writer.elsewhere is None or not self.leaves_held_alone:
            return frozenset()
        return writer.elsewhere.inputs

    def _compacted(self, view: View, made: Object, inputs: frozenset[Object]) -> Job:
        sections = [section for section in view.sections if section.found in inputs]
        sections = sections[: _adjacent(view, sections)]
        left = sorted(frozenset().union(*(section.kept for section in sections)))
        keys = dict(view.keys)
        order = left if self.keeps_newest else reversed(left)
        kept = frozenset({keys[at].lower(): at for at in order if at >= view.start}.values())
        kept -= self._over(view, sections, left)
        switch = Switch(made, sections[0].base, sections[-1].last, kept, 0)
        return Job(switch, frozenset(section.found for section in sections))

    def _over(self, view: View, sections: list[Section], left: list[int]) -> frozenset[int]:
        """Tombstones that nobody needs any more; the last record of all stays."""
        if any(view.start <= at < sections[0].base for at, _ in view.keys):
            return frozenset()
        below = view.run if self.tombstones_outlive else sections[-1].last
        return frozenset(at for at in left[:-1] if view.is_tombstone(at) and at <= below)

    def _switch(
        self, world: World, writer: Writer, view: View, job: Job, ended: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        switch = job.switch
        if not _settled(writer):
            return
        if self._fits(view, job) or not self.switch_checks_inputs:
            if len(writer.queue) < 2:
                yield f"switches to {switch.made}", world, _queued(ended, switch)
        else:
            yield f"refuses {switch.made}", world, ended
        if not self.switches_before_deleting:
            for found in job.inputs & world.objects:
                gone = world._replace(objects=world.objects - {found})
                yield f"deletes {found}, which it is going to replace", gone, writer

    def _fits(self, view: View, job: Job) -> bool:
        """As `Tidying._check`."""
        switch = job.switch
        if switch.made in view.known | view.condemned:
            return False
        if switch.until:
            return not view.tidied >= switch.base and view.section_of(switch.base) is None
        inside = [s for s in view.sections if switch.base <= s.base <= switch.last]
        if view.start > switch.last:
            return True  # all of it was trimmed
        return (
            bool(inside)
            and inside[-1].last == switch.last
            and (job.inputs.issuperset(section.found for section in inside))
        )

    # --- garbage ---

    def _garbage(
        self, world: World, writer: Writer, view: View
    ) -> Iterator[tuple[str, World, Writer]]:
        if not _settled(writer):
            return
        for found in (view.unused | self._strays(world, writer, view)) & world.objects:
            if writer.phase == "force" and len(writer.queue) < 2:
                yield f"condemns {found}", world, _queued(writer, ("condemn", found))
            if not self.condemns_before_deleting:
                gone = world._replace(objects=world.objects - {found})
                yield f"deletes {found}, which nothing refers to", gone, writer

    def _strays(self, world: World, writer: Writer, view: View) -> frozenset[Object]:
        if writer.job is not None:
            return frozenset()
        known = view.known | view.condemned
        if writer.elsewhere is not None and self.spares_names_that_were_given:
            known |= {writer.elsewhere.switch.made}
        return frozenset(found for found in world.objects - known if found[0] <= writer.epoch)

    def _delete(
        self, world: World, writer: Writer, view: View
    ) -> Iterator[tuple[str, World, Writer]]:
        for found in view.condemned & world.objects:
            gone = world._replace(objects=world.objects - {found})
            yield f"deletes {found}", gone, writer
        until = min(view.tidied, self.floor(world))
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
            if writer.read_back.good:
                floor = self.floor(world)
                old = frozenset(s for s in world.snapshots if s.seq < floor)
                read = writer._replace(read_back=None, removing=writer.removing | old)
                yield "reads its snapshot back", world, read
            else:
                without = world._replace(snapshots=world.snapshots - {writer.read_back})
                yield "removes its damaged snapshot", without, writer._replace(read_back=None)
        elif writer.snapshots < self.snapshots[number] and writer.knows not in taken:
            for good in (True, False) if world.bad < self.bad else (True,):
                made = Snapshot(writer.knows, good)
                snapshots, bad = world.snapshots | {made}, world.bad + (not good)
                stored = world._replace(snapshots=snapshots, bad=bad)
                begun = writer._replace(snapshots=writer.snapshots + 1, read_back=made)
                what = "a snapshot" if good else "a damaged snapshot"
                yield f"stores {what} of {made.seq}", stored, begun
        for old in writer.removing & world.snapshots:
            gone = world._replace(snapshots=world.snapshots - {old})
            yield f"deletes snapshot {old.seq}", gone, writer

    def violation(self, world: World) -> str:
        return broken(world, self.floor(world))


def _newest(world: World) -> int:
    return max(op[1] for op in world.log if op[0] == "epoch")


def _queued(writer: Writer, op: Op) -> Writer:
    return writer._replace(queue=(*writer.queue, op))


def _settled(writer: Writer) -> bool:
    """Nothing of the tidier's is under way in the journal."""
    return all(op[0] in ("data", "trim") for op in writer.queue)


def _fenced(writer: Writer) -> Writer:
    """It appends nothing any more; what it has decided to delete, it may delete yet."""
    return writer._replace(phase="zombie", queue=(), landed=False, job=None)


def _merged(view: View, made: Object) -> Job:
    offsets = view.untidied
    return Job(Switch(made, offsets[0], offsets[-1], frozenset(offsets), view.end), frozenset())


def _adjacent(view: View, sections: list[Section]) -> int:
    """How many of the first of them follow each other, with no other section between."""
    order = list(view.sections)
    begin = order.index(sections[0])
    count = 0
    while count < len(sections) and order[begin + count] == sections[count]:
        count += 1
    return count
