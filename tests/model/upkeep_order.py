"""The order in which the steps of upkeep change a bucket: one statement, asked of model and code.

`test_upkeep_order.py` walks the model at random and asks each of its steps; the simulation asks
what the appliance itself did to the bucket, in each seed (`tests/simulation/upkeep.py`). So what
the model was found sound with is what the code does.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field


@dataclass
class Order:
    """Told of what takes effect in a bucket, step by step. `wrong`: sentences, of steps that were
    out of order. `kept`: snapshots that the floor goes by."""

    kept: int
    wrong: list[str] = field(default_factory=list)
    _end: int = 0
    _tidied: int = 0
    _highest_floor: int = 0
    _objects: set[Hashable] = field(default_factory=set)
    _read_back: set[Hashable] = field(default_factory=set)
    _condemned: set[Hashable] = field(default_factory=set)
    _snapshots: set[int] = field(default_factory=set)
    _firsts: set[int] = field(default_factory=set)

    def object_stored(self, name: Hashable) -> None:
        self._objects.add(name)

    def object_read(self, name: Hashable) -> None:
        if name in self._objects:
            self._read_back.add(name)

    def entry_stored(
        self,
        seq: int,
        *,
        is_first: bool = False,
        made: Collection[Hashable] = (),
        condemned: Collection[Hashable] = (),
        tidied: int = 0,
        in_force: Collection[Hashable] = (),
    ) -> None:
        """An entry on the log. `is_first`: of its writer; `made`: objects that it puts in force;
        `in_force`: all that were, before it; `tidied`: up to which entry nothing is, after it."""
        self._ask(seq == self._end + 1, f"entry {seq} was stored after entry {self._end}")
        self._end = seq
        self._tidied = tidied
        if is_first:
            self._firsts.add(seq)
        for name in made:
            self._ask(name in self._objects, f"entry {seq} names {name}, which is not stored")
            self._ask(name in self._read_back, f"entry {seq} names {name}, which nobody read back")
            self._ask(name not in self._condemned, f"entry {seq} names {name}, condemned before")
        for name in condemned:
            self._ask(name not in in_force, f"entry {seq} condemns {name}, which is in force")
        self._condemned.update(condemned)

    def object_deleted(self, name: Hashable) -> None:
        self._ask(name in self._condemned, f"{name} was deleted, and no entry condemned it")
        self._objects.discard(name)

    def entry_deleted(self, seq: int) -> None:
        self._ask(seq not in self._firsts, f"entry {seq}, the first of its writer, was deleted")
        self._ask(seq <= self._tidied, f"entry {seq} was deleted, and {self._tidied} are tidied")
        self._ask(
            seq <= self._highest_floor,
            f"entry {seq} was deleted, and the floor was never above {self._highest_floor}",
        )

    def snapshot_stored(self, seq: int) -> None:
        self._ask(seq <= self._end, f"a snapshot of {seq} was stored before that entry")
        self._snapshots.add(seq)
        self._highest_floor = max(self._highest_floor, self._floor())

    def snapshot_deleted(self, seq: int, *, damaged: bool = False) -> None:
        is_old = seq < self._floor()
        self._ask(is_old or damaged, f"snapshot {seq} was deleted, and the floor needs it")
        self._snapshots.discard(seq)

    def _floor(self) -> int:
        seqs = sorted(self._snapshots, reverse=True)
        return seqs[self.kept - 1] if len(seqs) >= self.kept else 0

    def _ask(self, is_right: bool, otherwise: str) -> None:
        if not is_right:
            self.wrong.append(otherwise)
