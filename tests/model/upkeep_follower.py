"""The follower of `upkeep_model.py`: a standby that reads on, or a start, until it is the writer.

It may go on at any moment with what it saw last: a process that was stopped meanwhile does so. In
mode B it does not LIST the snapshots anew when it has claimed, as a start does: what is left to it
has to do.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.upkeep_world import Rules, Snapshot, World, Writer, append


def follow(rules: Rules, world: World, writer: Writer) -> Iterator[tuple[str, World, Writer]]:
    floor = rules.floor(world)
    if writer.phase == "begin":
        yield "lists the snapshots", world, _begin(rules, world, writer, floor)
    elif writer.phase == "fetch":
        there = Snapshot(writer.target, True) in world.snapshots
        fetched = writer._replace(phase="read", knows=writer.target, began=writer.target)
        after = fetched if there else writer._replace(phase="begin")
        yield f"fetches snapshot {writer.target}", world, after
    elif writer.phase == "read":
        if writer.knows + 1 in world.entries:
            yield "reads an entry", world, writer._replace(knows=writer.knows + 1)
        elif rules.mode == "A" and max(world.entries) > writer.knows:
            yield "finds a gap", world, _anew(writer)
        elif rules.mode == "A":
            yield "sees no entry", world, writer._replace(phase="epoch")
        elif writer.claimed:
            yield "sees no entry", world, writer._replace(phase="check")
        else:
            yield "claims", world._replace(claim=2), writer._replace(claimed=True)
        if floor > writer.began and not writer.claimed:
            yield "is behind the floor", world, _anew(writer)
    elif writer.phase == "epoch":
        yield _epoch(rules, world, writer)
    elif writer.phase == "check":
        yield _check(rules, world, writer, floor)
    else:
        yield _base(rules, world, writer)


def _begin(rules: Rules, world: World, writer: Writer, floor: int) -> Writer:
    """From what it has read, or the newest good snapshot: whichever is further."""
    if writer.began < floor:
        writer = _anew(writer)
    newest = max((s.seq for s in world.snapshots if s.good), default=0)
    if newest >= floor and newest > writer.knows:
        return writer._replace(phase="fetch", target=newest)
    return writer._replace(phase="read")


def _epoch(rules: Rules, world: World, writer: Writer) -> tuple[str, World, Writer]:
    """Mode A: create the epoch entry at the next key, if that is free."""
    if writer.knows + 1 in world.entries:
        return "412: reads on", world, writer._replace(phase="read")
    if writer.knows < len(world.log):
        astray = writer._replace(phase="check", astray=True)
        return "stores its epoch entry at a freed key", world, astray
    number = 1 + sum(op[0] == "epoch" for op in world.log)
    stored = append(world, ("epoch", number))
    after = writer._replace(phase="check", knows=writer.knows + 1, epoch=number)
    return "stores its epoch entry", stored, after


def _check(rules: Rules, world: World, writer: Writer, floor: int) -> tuple[str, World, Writer]:
    newest = max((snapshot.seq for snapshot in world.snapshots), default=0)
    misled = rules.checks_floor and floor > writer.began
    misled |= rules.checks_newest_snapshot and newest > writer.knows
    if misled:
        return "sees newer snapshots", world, _anew(writer)
    if rules.mode == "B":
        return "sees no newer snapshot", world, writer._replace(phase="base")
    wrong = "there are two logs" if writer.astray else ""
    in_force = writer._replace(phase="force")
    told = max(world.acknowledged, writer.knows)
    return "is in force", world._replace(acknowledged=told, wrong=wrong), in_force


def _base(rules: Rules, world: World, writer: Writer) -> tuple[str, World, Writer]:
    """Mode B: the log goes on from here, whatever the one before had stored beyond."""
    cut = writer.knows
    log = (*world.log[:cut], ("epoch", 2))
    lost = f"entries above {cut} were acknowledged" if cut < world.acknowledged else ""
    after = world._replace(
        log=log,
        entries=frozenset(s for s in world.entries if s <= cut) | {cut + 1},
        acknowledged=max(world.acknowledged, cut + 1),
        wrong=lost,
    )
    return (
        f"puts its base above {cut}",
        after,
        writer._replace(phase="force", epoch=2, knows=cut + 1),
    )


def _anew(writer: Writer) -> Writer:
    return Writer("begin", claimed=writer.claimed)
