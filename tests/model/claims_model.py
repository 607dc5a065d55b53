"""Fencing mode B as a model: claims, bases, each writer's own keys, snapshots and deletion.

Every PUT may land and be answered, land and lose its answer, or stay under way and land at any
later time. Writers crash anywhere and are never told that they are zombies. Each LIST and each GET
of replay is a step of its own. Time is not modelled: a higher claim without a base may be taken for
an aborted start at any moment, which is more than any clock would do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

Claim = tuple[int, int]  # n, writer
EntryId = tuple[Claim, int]  # whose, seq: each key has one content
Put = tuple[str, object]  # ("claim" | "base" | "entry", what)


class Base(NamedTuple):
    claim: Claim
    previous: Claim | None
    cut: EntryId | None


class Local(NamedTuple):
    """State as of entry `last`; a snapshot is the same thing in the bucket."""

    last: EntryId | None = None
    log: tuple[EntryId, ...] = ()

    @property
    def seq(self) -> int:
        return len(self.log)


NOTHING = Local()


class Writer(NamedTuple):
    """`phase`: down, claim, contest (is mine the highest?), begin, replay, recheck, base, confirm,
    force, put, stored (waits for its claims check); renew. `claim`: mine; `began`: seq that `local`
    was begun from, along the bases up to `top`; `renewed`: the claim that a running writer gives up
    for a higher one, while it does."""

    phase: str = "down"
    starts: int = 0
    appends: int = 0
    snapshots: int = 0
    claim: Claim = (0, 0)
    claimed_anew: bool = False
    renewed: Claim | None = None
    top: Claim | None = None
    local: Local = NOTHING
    began: int = 0
    unclear: int = 0


class World(NamedTuple):
    claims: frozenset[Claim]
    bases: frozenset[Base]
    entries: frozenset[tuple[EntryId, EntryId | None]]  # and the entry before, by its header CRC
    snapshots: frozenset[Local]
    under_way: frozenset[Put]
    writers: tuple[Writer, ...]
    acknowledged: frozenset[EntryId]


@dataclass(frozen=True, kw_only=True)
class ClaimsModel:
    """The bounds, and the rules: switch one off and the model must find a lost record."""

    starts: tuple[int, ...] = (1, 1)  # of each writer
    appends: tuple[int, ...] = (2, 1)
    snapshots: tuple[int, ...] = (0, 0)
    unclear: tuple[int, ...] = (1, 1)  # lost answers, for each PUT
    kept: int = 2  # snapshots that the floor goes by
    outwaits: bool = True  # a higher claim without a base: claim anew, once
    claim_until_definite: bool = True
    highest_before_replay: bool = True
    floor_checked_after_replay: bool = True
    highest_after_base: bool = True
    highest_after_put: bool = True
    snapshots_hold_checked_only: bool = True
    begins_on_the_chain_only: bool = True
    deletes_only_to_floor: bool = True

    def initial(self) -> World:
        empty: frozenset = frozenset()
        writers = (Writer(),) * len(self.starts)
        return World(empty, empty, empty, empty, empty, writers, empty)

    def floor(self, world: World) -> int:
        seqs = sorted({s.seq for s in world.snapshots}, reverse=True)
        return seqs[self.kept - 1] if len(seqs) >= self.kept else 0

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        for put in world.under_way:
            landed = _store(world._replace(under_way=world.under_way - {put}), put)
            yield f"a late PUT of {put} lands", landed
        for number, writer in enumerate(world.writers):
            for what, after, changed in self._writer_steps(world, number, writer):
                writers = (*after.writers[:number], changed, *after.writers[number + 1 :])
                yield f"writer {number}: {what}", after._replace(writers=writers)

    def _writer_steps(
        self, world: World, number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        phase, claim = writer.phase, writer.claim
        if phase == "down":
            if writer.starts < self.starts[number]:
                yield "starts", world, self._claim(world, number, writer, starts=writer.starts + 1)
            return
        yield "crashes", world, self._down(writer, number)
        if phase == "claim":
            yield from self._put(world, number, writer, ("claim", claim), "contest")
        elif phase == "contest":
            mine = max(world.claims, default=claim) == claim and claim in world.claims
            if mine or not self.highest_before_replay:
                following = "renew" if writer.renewed else "begin"
                yield "sees that it is the highest", world, writer._replace(phase=following)
            else:
                yield from self._contested(world, number, writer)
        elif phase == "renew":
            yield "looks at the bases", world, self._renew(world, number, writer)
        elif phase == "begin":
            yield "begins", world, self._begin(world, number, writer)
        elif phase == "replay":
            yield "reads the next key", world, self._replay(world, writer)
        elif phase == "recheck":
            misled = self.floor_checked_after_replay and self.floor(world) > writer.began
            after = _anew(writer) if misled else writer._replace(phase="base")
            yield "lists the snapshots again", world, after
        elif phase == "base":
            yield from self._put(world, number, writer, ("base", self._base(writer)), "confirm")
        elif phase == "confirm":
            if max(world.claims, default=claim) == claim or not self.highest_after_base:
                yield from self._into_force(world, writer)
            else:
                yield from self._contested(world, number, writer)
        else:
            yield from self._in_force(world, number, writer)

    def _claim(self, world: World, number: int, writer: Writer, **changes: object) -> Writer:
        highest = max((c[0] for c in world.claims), default=0)
        claimed = writer._replace(phase="claim", claim=(highest + 1, number), unclear=0)
        return claimed._replace(**changes)

    def _contested(
        self, world: World, number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        """A higher claim was seen (or mine was not): fenced, or claim anew if it has no base."""
        yield "is fenced", world, self._down(writer, number)
        by = max(world.claims, default=writer.claim)
        abandoned = all(base.claim < by for base in world.bases)
        if self.outwaits and abandoned and by > writer.claim and not writer.claimed_anew:
            yield "claims anew", world, self._claim(world, number, writer, claimed_anew=True)

    def _begin(self, world: World, number: int, writer: Writer) -> Writer:
        """LIST bases and snapshots: from the local state or the newest snapshot."""
        top = _top(world)
        if top is not None and top > writer.claim:
            return self._down(writer, number)
        local = writer.local
        on_chain = not self.begins_on_the_chain_only or _lies_on(world, top, local.last)
        if local.seq < self.floor(world) or not on_chain:
            local = NOTHING
        for snapshot in world.snapshots:
            if snapshot.seq > local.seq and _lies_on(world, top, snapshot.last):
                local = snapshot
        return writer._replace(phase="replay", top=top, local=local, began=local.seq)

    def _replay(self, world: World, writer: Writer) -> Writer:
        """One GET."""
        local = writer.local
        author, below_cut = _author_of_next(world, writer.top, local)
        if author is None:
            return writer._replace(phase="recheck")
        entry = (author, local.seq + 1)
        if (entry, local.last) in world.entries:
            return writer._replace(local=Local(entry, (*local.log, entry)))
        if below_cut or any(found == entry for found, _ in world.entries):
            return _anew(writer)  # missing below a cut, or not chained
        return writer._replace(phase="recheck")

    def _base(self, writer: Writer) -> Base:
        return Base(writer.claim, writer.renewed or writer.top, writer.local.last)

    def _renew(self, world: World, number: int, writer: Writer) -> Writer:
        """A running writer that claimed anew goes on only if its own base is still the highest."""
        if _top(world) != writer.renewed:
            return self._down(writer, number)
        return writer._replace(phase="base", top=None)

    def _into_force(self, world: World, writer: Writer) -> Iterator[tuple[str, World, Writer]]:
        after = writer._replace(phase="force", top=None, renewed=None, unclear=0, began=0)
        if writer.renewed is None:
            yield "is in force", world, after
            return
        assert writer.local.last is not None
        told = world._replace(acknowledged=world.acknowledged | {writer.local.last})
        yield "is in force again, entry acknowledged", told, after

    def _in_force(
        self, world: World, number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        local, claim = writer.local, writer.claim
        checked = writer.phase == "force"
        if writer.phase == "put":
            entry = (claim, local.seq + 1)
            for what, after, changed in self._put(
                world, number, writer, ("entry", (entry, local.last)), "stored"
            ):
                if changed.phase == "stored":
                    changed = changed._replace(local=Local(entry, (*local.log, entry)))
                yield what, after, changed
            return
        if checked and writer.appends < self.appends[number]:
            yield (
                "seals",
                world,
                writer._replace(phase="put", appends=writer.appends + 1, unclear=0),
            )
        if not checked:
            if max(world.claims, default=claim) == claim or not self.highest_after_put:
                assert local.last is not None
                told = world._replace(acknowledged=world.acknowledged | {local.last})
                yield "entry acknowledged", told, writer._replace(phase="force")
            else:
                for what, after, changed in self._contested(world, number, writer):
                    renewed = claim if changed.phase == "claim" else None
                    yield what, after, changed._replace(renewed=renewed)
        if checked or not self.snapshots_hold_checked_only:
            yield from self._snapshot(world, number, writer)
        yield from self._delete(world, writer)

    def _snapshot(
        self, world: World, number: int, writer: Writer
    ) -> Iterator[tuple[str, World, Writer]]:
        taken = {snapshot.seq for snapshot in world.snapshots}
        if writer.snapshots < self.snapshots[number] and 0 < writer.local.seq not in taken:
            after = world._replace(snapshots=world.snapshots | {writer.local})
            yield "snapshots", after, writer._replace(snapshots=writer.snapshots + 1)

    def _delete(self, world: World, writer: Writer) -> Iterator[tuple[str, World, Writer]]:
        newest = max((s.seq for s in world.snapshots), default=0)
        until = self.floor(world) if self.deletes_only_to_floor else newest
        for item in world.entries:
            if item[0][1] <= until and item[0] in writer.local.log:
                after = world._replace(entries=world.entries - {item})
                yield f"deletes entry {item[0]}", after, writer

    def _put(
        self, world: World, number: int, writer: Writer, put: Put, following: str
    ) -> Iterator[tuple[str, World, Writer]]:
        """One attempt. Without a definite answer the same is tried again."""
        stored = _store(world, put)
        yield f"{put[0]} stored", stored, writer._replace(phase=following, unclear=0)
        if writer.unclear >= self.unclear[number]:
            return
        again = writer._replace(unclear=writer.unclear + 1)
        if put[0] == "claim" and not self.claim_until_definite:
            again = writer._replace(phase="begin")
        if stored != world:
            yield f"{put[0]} landed, answer lost", stored, again
            late = world._replace(under_way=world.under_way | {put})
            yield f"{put[0]} is under way, answer lost", late, again

    def _down(self, writer: Writer, number: int) -> Writer:
        """Only what matters to a later start is kept, so that equal states are one."""
        if writer.starts >= self.starts[number]:
            return Writer(starts=writer.starts)
        return Writer(
            starts=writer.starts,
            appends=writer.appends,
            snapshots=writer.snapshots,
            local=writer.local if writer.phase != "stored" else NOTHING,
        )

    def violation(self, world: World) -> str:
        newest_first = sorted(world.snapshots, key=lambda s: s.seq, reverse=True)
        sources = newest_first[: self.kept]
        if len(sources) < self.kept:
            sources.append(NOTHING)
        top = _top(world)
        for source in sources:
            if not _lies_on(world, top, source.last):
                return f"snapshot {source.last} is not on the chain"
            local = source
            while True:
                author, below_cut = _author_of_next(world, top, local)
                entry = (author, local.seq + 1)
                if author is None or (entry, local.last) not in world.entries:
                    break
                local = Local(entry, (*local.log, entry))
            if author is not None and below_cut:
                return f"from {source.last} the log has a hole at {entry}"
            if lost := world.acknowledged - set(local.log):
                return f"from {source.last} acknowledged entries are LOST: {lost}"
        return ""


def _top(world: World) -> Claim | None:
    return max((base.claim for base in world.bases), default=None)


def _links(world: World, top: Claim | None) -> Iterator[tuple[Base, Base | None]]:
    """From the first base to `top`: each with the one that cuts it."""
    bases = {base.claim: base for base in world.bases}
    chain: list[Base] = []
    while top is not None:
        chain.insert(0, bases[top])
        top = bases[top].previous
    return zip_longest(chain, chain[1:])


def _lies_on(world: World, top: Claim | None, last: EntryId | None) -> bool:
    if last is None:
        return True
    for base, following in _links(world, top):
        if base.claim == last[0]:
            return following is None or (following.cut is not None and last[1] <= following.cut[1])
    return False


def _author_of_next(world: World, top: Claim | None, local: Local) -> tuple[Claim | None, bool]:
    """Whose the entry after `local` is, and whether it lies below the next one's cut (and so must
    be there)."""
    for base, following in _links(world, top):
        if following is None:
            return base.claim, False
        if following.cut is not None and following.cut[1] > local.seq:
            return base.claim, True
    return None, False


def _store(world: World, put: Put) -> World:
    kind, what = put
    if kind == "claim":
        return world._replace(claims=world.claims | {what})
    if kind == "base":
        return world._replace(bases=world.bases | {what})
    return world._replace(entries=world.entries | {what})


def _anew(writer: Writer) -> Writer:
    return writer._replace(phase="begin", local=NOTHING, began=0)
