"""A standby beside the writers of mode B: it reads entry by entry, and serves what is settled.

It looks at the bases, reads the next entry of the chain that they name, LISTs claims, and serves
the entry if none is above the newest base that it knows. Each of these is a step of its own. What
it has served must stay on the log as what was acknowledged does: so both are kept in one set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.claims_model import (
    NOTHING,
    Claim,
    ClaimsModel,
    EntryId,
    Local,
    World,
    _author_of_next,
    _lies_on,
    _top,
)


class Standby(NamedTuple):
    """`phase`: bases, read, settle (the entry `found` was read), gone (it has to begin anew).
    `top`: the newest base as of its last look; `local`: what it has served."""

    phase: str = "bases"
    top: Claim | None = None
    local: Local = NOTHING
    found: EntryId | None = None


class Scene(NamedTuple):
    world: World
    standby: Standby


@dataclass(frozen=True, kw_only=True)
class StandbyModel:
    """`writers` are modelled as they are without it: it stores nothing. The rules: switch one off
    and something that was served is lost."""

    writers: ClaimsModel
    serves_settled_only: bool = True
    looks_after_it_has_read: bool = True

    def initial(self) -> Scene:
        return Scene(self.writers.initial(), Standby())

    def steps(self, scene: Scene) -> Iterator[tuple[str, Scene]]:
        for what, after in self.writers.steps(scene.world):
            yield what, scene._replace(world=after)
        for what, standby in self._standby_steps(scene):
            world = scene.world
            if standby.local != scene.standby.local and standby.local.last is not None:
                world = world._replace(acknowledged=world.acknowledged | {standby.local.last})
            yield f"standby: {what}", Scene(world, standby)

    def _standby_steps(self, scene: Scene) -> Iterator[tuple[str, Standby]]:
        world, standby = scene
        if standby.phase == "bases":
            top = _top(world)
            looking = standby._replace(top=top)
            if not _lies_on(world, top, standby.local.last):
                yield "begins anew", standby._replace(phase="gone")
            elif self.looks_after_it_has_read or self._is_settled(world, looking):
                yield "looks at the bases", looking._replace(phase="read")
        elif standby.phase == "read":
            if standby.top != _top(world):
                yield "looks again", standby._replace(phase="bases", top=None)
            entry = self._next(world, standby)
            if entry is not None:
                yield f"reads {entry}", standby._replace(phase="settle", found=entry)
        elif standby.phase == "settle":
            is_settled = not self.looks_after_it_has_read or self._is_settled(world, standby)
            if is_settled or not self.serves_settled_only:
                assert standby.found is not None
                served = Local(standby.found, (*standby.local.log, standby.found))
                following = "read" if self.looks_after_it_has_read else "bases"
                yield f"serves {standby.found}", Standby(following, standby.top, served)
            else:
                yield "sees a higher claim", standby._replace(phase="bases", top=None, found=None)

    def _next(self, world: World, standby: Standby) -> EntryId | None:
        """The next entry along the bases up to its `top`, if it is there."""
        author, _ = _author_of_next(world, standby.top, standby.local)
        if author is None:
            return None
        entry = (author, standby.local.seq + 1)
        return entry if (entry, standby.local.last) in world.entries else None

    def _is_settled(self, world: World, standby: Standby) -> bool:
        return standby.top is not None and max(world.claims) <= standby.top

    def violation(self, scene: Scene) -> str:
        return self.writers.violation(scene.world)
