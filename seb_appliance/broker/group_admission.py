"""Admission of what groups do: commits, resets, leases. The rules; see admission.py for the view.

What something admitted but not yet stored changes of a group lies here over what is in force, and
goes when it is stored, so that idle groups cost their memory once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from seb_appliance import limits
from seb_appliance.broker.admission import Admission, AdmittedTopic, Refusal
from seb_appliance.broker.group_refusals import (
    backward,
    beyond_end,
    conflict,
    lease_held,
    made_anew,
    no_room_for_offsets,
    no_such_group,
    stale_generation,
)
from seb_appliance.broker.groups import Groups, Lease, offset_bytes
from seb_appliance.broker.window import Window
from seb_appliance.errors import BadRequestError
from seb_appliance.formats.operations import (
    CommittedOffset,
    GroupDeleted,
    GroupReset,
    LeaseReleased,
    LeaseTaken,
    OffsetsCommitted,
)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as it was asked for, by topic name.

    `expected` makes it compare-and-set for the topics it names (None: no offset committed yet).
    `topic_ids`: the topic must still be the one with this id. `strictly_forward`: every offset must
    grow, so that a blind retry is refused.
    """

    group: str
    offsets: Mapping[str, int]
    metadata: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, int | None] = field(default_factory=dict)
    topic_ids: Mapping[str, int] = field(default_factory=dict)
    generation: int | None = None
    allow_backward: bool = False
    strictly_forward: bool = False


@dataclass(frozen=True, slots=True)
class NewPosition:
    """Where an operator puts a group on the topic with this name and this id."""

    topic: str
    topic_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class _AdmittedLease:
    """A lease as it will be (`holder` None: none). It has no generation yet, and its time does not
    run before it is stored."""

    holder: str | None
    ttl_ms: int
    changed_in: Window


@dataclass(slots=True)
class _AdmittedGroup:
    """What lies over a group in force. `anew`: nothing of that one shows through, because it is
    deleted. `gone`: so is this one."""

    changed_in: Window
    offsets: dict[int, int] = field(default_factory=dict)
    lease: _AdmittedLease | None = None  # None: the one in force
    anew: bool = False
    gone: bool = False


class GroupAdmission:
    """Each `admit_…` adds to the window and changes the view, or raises Refusal and changes
    nothing."""

    def __init__(self, topics: Admission, groups: Groups) -> None:
        self._topics = topics
        self._groups = groups
        self._ahead: dict[str, _AdmittedGroup] = {}
        self._changed: dict[Window, set[str]] = {}  # the groups that each window changes
        self._new: set[str] = set()  # groups that are in no stored entry yet
        self._growth: dict[Window, int] = {}  # bytes of offsets that each window adds, at most

    # --- commits ---

    def check_commit(self, commit: Commit, now_s: float) -> tuple[CommittedOffset, ...]:
        """What the commit would store. Raises Refusal."""
        after = self._changed_in(commit.group)
        self._check_lease(commit.group, commit.generation, now_s)
        self._check_room(commit.group)
        offsets = []
        for name, offset in commit.offsets.items():
            topic = self._topic(name, commit.topic_ids.get(name))
            committed = self._committed(commit.group, topic.topic_id)
            if name in commit.expected and commit.expected[name] != committed:
                raise Refusal(conflict(commit.group, name, commit.expected[name], committed), after)
            if offset > topic.next_offset:
                raise Refusal(beyond_end(name, offset, topic.next_offset), topic.changed_in)
            if committed is not None and (
                (offset < committed and not commit.allow_backward)
                or (offset <= committed and commit.strictly_forward)
            ):
                strictly = commit.strictly_forward
                error = backward(commit.group, name, offset, committed, strictly=strictly)
                raise Refusal(error, after)
            metadata = commit.metadata.get(name, "")
            offsets.append(CommittedOffset(topic.topic_id, offset, metadata))
        self._check_room_for(commit.group, offsets)
        return tuple(offsets)

    def admit_commit(
        self, window: Window, commit: Commit, now_s: float
    ) -> tuple[CommittedOffset, ...]:
        offsets = self.check_commit(commit, now_s)
        self.admit_checked(window, commit.group, offsets)
        return offsets

    def admit_checked(
        self, window: Window, group: str, offsets: tuple[CommittedOffset, ...]
    ) -> None:
        """Admit what `check_commit` has just returned."""
        self._move(window, group, offsets)
        window.add_event(OffsetsCommitted(group=group, offsets=offsets), _size(offsets))

    def admit_reset(self, window: Window, group: str, positions: Collection[NewPosition]) -> None:
        """An operator sets offsets, forward or back, whatever lease there is."""
        self._check_room(group)
        items = []
        for position in positions:
            topic = self._topic(position.topic, position.topic_id)
            assert position.offset <= topic.next_offset, (position, topic.next_offset)
            items.append(CommittedOffset(topic.topic_id, position.offset))
        self._check_room_for(group, items)
        offsets = tuple(items)
        self._move(window, group, offsets)
        window.add_event(GroupReset(group=group, offsets=offsets), _size(offsets))

    def admit_deleted(self, window: Window, group: str) -> None:
        ahead = self._ahead.get(group)
        if ahead.gone if ahead is not None else self._groups.get(group) is None:
            raise Refusal(no_such_group(group), self._changed_in(group))
        gone = self._over(group, window)
        gone.offsets, gone.lease = {}, _AdmittedLease(None, 0, window)
        gone.anew = gone.gone = True
        window.add_event(GroupDeleted(group=group))

    # --- leases ---

    def admit_lease(
        self, window: Window, group: str, holder: str, ttl_ms: int, now_s: float
    ) -> bool:
        """Whether a new generation is begun; False when `holder` has a living lease that was
        granted for `ttl_ms` or longer (then it is the caller's to renew). Raises Refusal when
        somebody else has it."""
        pending = self._pending_lease(group)
        known = None if pending is not None else self._lease_in_force(group, now_s)
        if pending is not None and pending.holder not in (None, holder):
            raise Refusal(
                lease_held(group, pending.holder or "", pending.ttl_ms), pending.changed_in
            )
        if known is not None and known.holder != holder:
            raise Refusal(lease_held(group, known.holder, known.left_ms(now_s)), None)
        # A longer time must be in the journal too: a restart grants what is written there.
        if known is not None and ttl_ms <= known.ttl_ms:
            return False
        self._check_room(group)
        self._over(group, window).lease = _AdmittedLease(holder, ttl_ms, window)
        size_bytes = 512 + len(holder.encode())
        window.add_event(LeaseTaken(group=group, holder=holder, ttl_ms=ttl_ms), size_bytes)
        return True

    def admit_lease_released(
        self, window: Window, group: str, generation: int, now_s: float
    ) -> None:
        self._check_lease(group, generation, now_s)
        self._over(group, window).lease = _AdmittedLease(None, 0, window)
        window.add_event(LeaseReleased(group=group))

    # --- the view ahead ---

    def offsets_of(self, group: str) -> dict[str, int]:
        """Where the group will stand, by topic, once everything admitted is stored."""
        ahead, known = self._ahead.get(group), self._groups.get(group)
        offsets: dict[int, int] = {}
        if known is not None and not (ahead is not None and ahead.anew):
            offsets = {topic_id: item.offset for topic_id, item in known.offsets.items()}
        if ahead is not None:
            offsets |= ahead.offsets
        names = self._topics.names() if offsets else {}
        return {names[i]: offset for i, offset in offsets.items() if i in names}

    def _changed_in(self, group: str) -> Window | None:
        ahead = self._ahead.get(group)
        return ahead.changed_in if ahead is not None else None

    def _committed(self, group: str, topic_id: int) -> int | None:
        ahead = self._ahead.get(group)
        if ahead is not None:
            if topic_id in ahead.offsets:
                return ahead.offsets[topic_id]
            if ahead.anew:
                return None
        known = self._groups.get(group)
        committed = known.offsets.get(topic_id) if known is not None else None
        return committed.offset if committed is not None else None

    def _pending_lease(self, group: str) -> _AdmittedLease | None:
        """The lease as it will be, if that is not in force yet."""
        ahead = self._ahead.get(group)
        lease = ahead.lease if ahead is not None else None
        return lease if lease is not None and not lease.changed_in.is_done else None

    def _lease_in_force(self, group: str, now_s: float) -> Lease | None:
        known = self._groups.get(group)
        lease = known.lease if known is not None else None
        return lease if lease is not None and lease.is_alive(now_s) else None

    def _over(self, group: str, window: Window) -> _AdmittedGroup:
        """What lies over the group; `window` changes it."""
        ahead = self._ahead.get(group)
        if ahead is None:
            ahead = self._ahead[group] = _AdmittedGroup(window)
            if self._groups.get(group) is None:
                self._new.add(group)
        changed = self._changed.get(window)
        if changed is None:
            changed = self._changed[window] = set()
            window.when_done(lambda _: self._stored(window), lambda _: self._stored(window))
        changed.add(group)
        ahead.changed_in = window
        ahead.gone = False
        return ahead

    def _stored(self, window: Window) -> None:
        """What `window` changed is in force: nothing lies over it, unless a later one changes it
        again."""
        self._growth.pop(window, None)
        for group in self._changed.pop(window):
            self._new.discard(group)
            ahead = self._ahead.get(group)
            if ahead is not None and ahead.changed_in is window:
                del self._ahead[group]

    def _move(self, window: Window, group: str, offsets: tuple[CommittedOffset, ...]) -> None:
        self._over(group, window).offsets.update({o.topic_id: o.offset for o in offsets})
        self._growth[window] = self._growth.get(window, 0) + self._growth_by(group, offsets)

    def _topic(self, name: str, wanted_id: int | None) -> AdmittedTopic:
        """The topic, if it is the one with that id (None: any). Raises Refusal."""
        topic = self._topics.find(name)
        if topic is None:
            raise self._topics.missing(name)
        if wanted_id not in (None, topic.topic_id):
            raise Refusal(made_anew(name, topic.topic_id, wanted_id), topic.changed_in)
        return topic

    def _check_room(self, group: str) -> None:
        """A new group finds room. Groups that are not stored yet count as well."""
        if self._groups.get(group) is not None or group in self._new:
            return
        if len(self._groups) + len(self._new) >= limits.GROUPS_MAX:
            self._groups.forget_all()
        if len(self._groups) + len(self._new) >= limits.GROUPS_MAX:
            raise Refusal(BadRequestError(f"There are {limits.GROUPS_MAX} groups already."), None)

    def _check_room_for(self, group: str, offsets: Collection[CommittedOffset]) -> None:
        """The offsets of all groups stay within their bytes. What an entry under way adds counts
        in full, even where the next one replaces it."""
        growth = self._growth_by(group, offsets)
        if not growth:
            return
        room = limits.COMMITTED_OFFSETS_BYTES_MAX - growth - sum(self._growth.values())
        if self._groups.offsets_bytes > room:
            self._groups.forget_all()
        if self._groups.offsets_bytes > room:
            raise Refusal(no_room_for_offsets(), None)

    def _growth_by(self, group: str, offsets: Collection[CommittedOffset]) -> int:
        """Bytes by which the offsets in force would grow at most."""
        known = self._groups.get(group)
        growth = 0
        for item in offsets:
            before = known.offsets.get(item.topic_id) if known is not None else None
            size_bytes = before.size_bytes if before is not None else 0
            growth += max(0, offset_bytes(item.metadata) - size_bytes)
        return growth

    def _check_lease(self, group: str, generation: int | None, now_s: float) -> None:
        """The lease that lives, if one does, is the caller's. Raises Refusal."""
        pending = self._pending_lease(group)
        if pending is not None:
            # Nobody can have its generation yet, nor that of the lease that it replaces.
            if pending.holder is not None or generation is not None:
                raise Refusal(stale_generation(group, pending.holder), pending.changed_in)
            return
        known = self._lease_in_force(group, now_s)
        if (known.generation if known is not None else None) != generation:
            holder = known.holder if known is not None else None
            raise Refusal(stale_generation(group, holder), None)


def _size(offsets: tuple[CommittedOffset, ...]) -> int:
    return 256 + sum(24 + len(item.metadata.encode()) for item in offsets)
