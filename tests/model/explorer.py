"""Exhaustive interleaving: every state that a protocol can reach within small bounds, checked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class Model(Protocol):
    """States are hashable values; a step is one atomic action of one party."""

    def initial(self) -> Any: ...

    def steps(self, state: Any) -> Iterable[tuple[str, Any]]:
        """(what happens, in words; the state after it)."""

    def violation(self, state: Any) -> str:
        """What is broken in this state, or ""."""


@dataclass(frozen=True)
class Outcome:
    """`violation` is "" when every state is sound; `path` leads to it, one step a line."""

    states: int
    seconds: float
    violation: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        verdict = "sound"
        if self.violation:
            verdict = f"after {len(self.path)} steps: {self.violation}"
        return f"{self.states:,} states in {self.seconds:.0f} s: {verdict}"


def explore(model: Model, *, states_max: int, say: Callable[[str], None] | None = None) -> Outcome:
    """Breadth first, so that the path to a violation is a shortest one. Raises OverflowError when
    there are more than `states_max` states: a bound that is not reached proves nothing.

    States are remembered by their 64-bit hashes, and the way back to each by one integer: millions
    of them fit into memory.
    """
    began_s = time.monotonic()
    start = model.initial()
    came_from: dict[int, int] = {hash(start): 0}
    frontier = deque([start])
    states = 0
    while frontier:
        state = frontier.popleft()
        states += 1
        if broken := model.violation(state):
            path = _path(model, start, came_from, hash(state))
            return Outcome(states, time.monotonic() - began_s, broken, path)
        here = hash(state)
        for _, following in model.steps(state):
            key = hash(following)
            if key not in came_from:
                came_from[key] = here
                frontier.append(following)
        if states > states_max:
            raise OverflowError(f"more than {states_max:,} states")
        if say and states % 500_000 == 0:
            say(f"  {states:,} states, {len(frontier):,} waiting")
    return Outcome(states, time.monotonic() - began_s, "", ())


def _path(model: Model, start: Any, came_from: dict[int, int], goal: int) -> tuple[str, ...]:
    """The steps to `goal`, found by walking the remembered hashes back, then the model forth."""
    hashes = []
    while goal != hash(start):
        hashes.append(goal)
        goal = came_from[goal]
    words, state = [], start
    for wanted in reversed(hashes):
        what, state = next(step for step in model.steps(state) if hash(step[1]) == wanted)
        words.append(what)
    return tuple(words)
