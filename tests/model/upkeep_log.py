"""What a log of one topic amounts to, for `upkeep_model.py`: where each record lies, what is gone.

An offset is the seq of the record's entry: each entry of data holds one record, with a record key.
One in capitals is a tombstone of the small one.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

Object = tuple[int, int]  # epoch in its name, number


class Switch(NamedTuple):
    """`made` takes the place of the sections that begin in base..last; `kept`: what is in it.
    `until`: entries that it was made of, all up to this one; 0: it was made of objects."""

    made: Object
    base: int
    last: int
    kept: frozenset[int]
    until: int


# ("epoch", e) | ("data", record key) | ("trim", log start) | ("condemn", object) | a switch
Op = tuple


class Section(NamedTuple):
    """Of an object in force: it answers for offsets base..last; compaction left only `kept`."""

    found: Object
    base: int
    last: int
    kept: frozenset[int]


class View(NamedTuple):
    """`known`: objects that a switch named, and nobody condemned; `tidied`: entries up to this one
    hold nothing in force; `run`: the last offset that the newest compaction from the log
    start on went over."""

    end: int = 0
    keys: tuple[tuple[int, str], ...] = ()  # of all data: offset, record key
    start: int = 1
    sections: tuple[Section, ...] = ()
    known: frozenset[Object] = frozenset()
    condemned: frozenset[Object] = frozenset()
    tidied: int = 0
    run: int = 0

    @property
    def untidied(self) -> tuple[int, ...]:
        """Offsets whose records must be read from their entries."""
        return tuple(at for at, _ in self.keys if at > self.tidied and at >= self.start)

    @property
    def in_force(self) -> frozenset[Object]:
        return frozenset(section.found for section in self.sections)

    @property
    def unused(self) -> frozenset[Object]:
        return self.known - self.in_force

    def section_of(self, offset: int) -> Section | None:
        return next((s for s in self.sections if s.base <= offset <= s.last), None)

    def is_superseded(self, offset: int) -> bool:
        """Whether a later record has the record key of this one."""
        key = dict(self.keys)[offset].lower()
        return any(at > offset and other.lower() == key for at, other in self.keys)

    def is_tombstone(self, offset: int) -> bool:
        return dict(self.keys)[offset].isupper()

    def deleted_by(self, offset: int) -> list[int]:
        """The records that this tombstone deletes."""
        key = dict(self.keys)[offset].lower()
        return [at for at, other in self.keys if at < offset and other == key]


@cache
def view_of(log: tuple[Op, ...]) -> View:
    return _applied(view_of(log[:-1]), log[-1]) if log else View()


def _applied(view: View, op: Op) -> View:
    view = view._replace(end=view.end + 1)
    if isinstance(op, Switch):
        sections = [s for s in view.sections if not op.base <= s.base <= op.last]
        sections.append(Section(op.made, op.base, op.last, op.kept))
        view = view._replace(
            sections=tuple(sorted(sections, key=lambda s: s.base)),
            known=view.known | {op.made},
            tidied=max(view.tidied, op.until),
        )
        below = [at for at, _ in view.keys if view.start <= at < op.base]
        if not op.until and not below:
            view = view._replace(run=op.last)
    elif op[0] == "data":
        view = view._replace(keys=(*view.keys, (view.end, op[1])))
    elif op[0] == "trim":
        view = view._replace(start=max(view.start, op[1]))
    elif op[0] == "condemn":
        sections = [s for s in view.sections if s.found != op[1]]
        view = view._replace(
            sections=tuple(sections),
            known=view.known - {op[1]},
            condemned=view.condemned | {op[1]},
        )
    return view._replace(sections=tuple(s for s in view.sections if s.last >= view.start))
