"""Admits commits, resets and leases of groups.

Changes that are admitted but not stored yet overlay the applied groups until they are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import Action, Actor
from seb_appliance.broker.append.admission import Admission, AdmittedTopic, Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.groups.groups import (
    Group,
    Groups,
    Lease,
    ResetRow,
    lease_held,
    no_such_group,
    offset_bytes,
    stale_generation,
)
from seb_appliance.broker.shares import OPERATOR, Shares
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    CommitBackwardError,
    CommitBeyondEndError,
    OffsetConflictError,
    SebError,
)
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
    """A requested commit, by topic name. `expected` makes it compare-and-set for the topics it
    names (None: no offset committed yet). `topic_ids`: the topic must still have this id.
    `strictly_forward`: every offset must grow, so that a blind retry is refused. `heeds_lease`
    False: of a cursor that the appliance keeps, which no lease of anybody holds up."""

    group: str
    offsets: Mapping[str, int]
    metadata: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, int | None] = field(default_factory=dict)
    topic_ids: Mapping[str, int] = field(default_factory=dict)
    generation: int | None = None
    allow_backward: bool = False
    strictly_forward: bool = False
    heeds_lease: bool = True


@dataclass(frozen=True, slots=True)
class _AdmittedLease:
    """A lease as it will be (`holder` None: none). It gets its generation when it is stored, and
    its time begins then."""

    holder: str | None
    ttl_ms: int
    changed_in: Window


@dataclass(slots=True)
class _AdmittedGroup:
    """Pending changes over an applied group. `anew`: the applied one is deleted and does not show
    through. `gone`: the group is deleted, and no later change made it again."""

    changed_in: Window
    offsets: dict[int, int] = field(default_factory=dict)
    lease: _AdmittedLease | None = None  # None: the applied one
    anew: bool = False
    gone: bool = False


class GroupAdmission:
    """Each `admit_…` adds to the window and changes the view, or raises Refusal and changes
    nothing. `by` owns a group that the change creates."""

    def __init__(self, topics: Admission, groups: Groups, clock: Clock) -> None:
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._ahead: dict[str, _AdmittedGroup] = {}
        self._changed: dict[Window, set[str]] = {}  # the groups that each window changes
        self._makers: dict[str, str] = {}  # of groups that are in no stored entry yet
        # Shares that each window takes until it is stored.
        self._taken: dict[Window, list[tuple[Shares, str, int]]] = {}

    # --- commits ---

    def check_commit(self, commit: Commit, now_s: float, by: Actor) -> tuple[CommittedOffset, ...]:
        """What the commit would store. Raises Refusal."""
        after = self._changed_in(commit.group)
        if commit.heeds_lease:
            self._check_lease(commit.group, commit.generation, now_s)
        self._check_room(commit.group, by)
        offsets = []
        for name, offset in commit.offsets.items():
            topic = self._topic(name, commit.topic_ids.get(name))
            committed = self._committed(commit.group, topic.topic_id)
            if (conflict := _conflict(commit, name, committed)) is not None:
                raise Refusal(conflict, after)
            if offset > (end := topic.next_offset):
                text = f"Offset {offset} is beyond the log end {end} of {name!r}."
                beyond = CommitBeyondEndError(text, topic=name, log_end_offset=end)
                raise Refusal(beyond, topic.changed_in)
            if (backward := _backward(commit, name, committed)) is not None:
                raise Refusal(backward, after)
            metadata = commit.metadata.get(name, "")
            offsets.append(CommittedOffset(topic.topic_id, offset, metadata))
        self._check_room_for(commit.group, offsets, by)
        return tuple(offsets)

    def admit_commit(
        self, window: Window, commit: Commit, now_s: float, by: Actor
    ) -> tuple[CommittedOffset, ...]:
        offsets = self.check_commit(commit, now_s, by)
        self.admit_checked(window, commit.group, offsets, by)
        return offsets

    def admit_checked(
        self, window: Window, group: str, offsets: tuple[CommittedOffset, ...], by: Actor
    ) -> None:
        """Admit what `check_commit` has just returned."""
        self._move(window, group, offsets, by)
        window.add_event(OffsetsCommitted(group=group, offsets=offsets), _size(offsets))

    def admit_reset(
        self, window: Window, group: str, rows: Collection[ResetRow], by: Actor
    ) -> None:
        """An operator sets offsets, forward or backward, regardless of the lease."""
        self._check_room(group, by)
        for row in rows:
            topic = self._topic(row.topic, row.topic_id)
            assert row.after <= topic.next_offset, (row, topic.next_offset)
        offsets = tuple(CommittedOffset(row.topic_id, row.after) for row in rows)
        self._check_room_for(group, offsets, by)
        self._move(window, group, offsets, by)
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
        self, window: Window, group: str, holder: str, ttl_ms: int, now_s: float, by: Actor
    ) -> bool:
        """Whether a new generation begins; False when `holder` has a live lease that was granted
        for `ttl_ms` or longer, which the caller then renews. Raises Refusal when another holder
        has it."""
        pending = self._pending_lease(group)
        known = None if pending is not None else self._live_lease(group, now_s)
        if pending is not None and pending.holder not in (None, holder):
            error = lease_held(group, pending.holder or "", pending.ttl_ms)
            raise Refusal(error, pending.changed_in)
        if known is not None and known.holder != holder:
            raise Refusal(lease_held(group, known.holder, known.left_ms(now_s)), None)
        # A longer time goes to the journal: a restart grants what is written there.
        if known is not None and ttl_ms <= known.ttl_ms:
            return False
        self._check_room(group, by)
        self._make_if_missing(window, group, by)
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
        """The offsets by topic once everything admitted is stored."""
        ahead, known = self._ahead.get(group), self._known(group)
        offsets = {i: item.offset for i, item in known.offsets.items()} if known else {}
        if ahead is not None:
            offsets |= ahead.offsets
        names = self._topics.names() if offsets else {}
        return {names[i]: offset for i, offset in offsets.items() if i in names}

    def committed_except(self, group: str, topics: Collection[str]) -> tuple[CommittedOffset, ...]:
        """Its offsets once everything admitted is stored, without those on `topics`. The metadata
        of an offset that is not applied yet is left out."""
        known = self._known(group)
        applied = known.offsets if known is not None else {}
        kept = []
        for name, offset in self.offsets_of(group).items():
            topic = self._topics.find(name)
            if name not in topics and topic is not None:
                stood = applied.get(topic.topic_id)
                metadata = stood.metadata if stood is not None and stood.offset == offset else ""
                kept.append(CommittedOffset(topic.topic_id, offset, metadata))
        return tuple(kept)

    def _changed_in(self, group: str) -> Window | None:
        ahead = self._ahead.get(group)
        return ahead.changed_in if ahead is not None else None

    def _known(self, group: str) -> Group | None:
        """The applied group, unless its deletion is pending."""
        ahead = self._ahead.get(group)
        return None if ahead is not None and ahead.anew else self._groups.get(group)

    def _committed(self, group: str, topic_id: int) -> int | None:
        ahead = self._ahead.get(group)
        if ahead is not None and topic_id in ahead.offsets:
            return ahead.offsets[topic_id]
        known = self._known(group)
        committed = known.offsets.get(topic_id) if known is not None else None
        return committed.offset if committed is not None else None

    def _pending_lease(self, group: str) -> _AdmittedLease | None:
        """The lease as it will be, unless that is applied."""
        ahead = self._ahead.get(group)
        lease = ahead.lease if ahead is not None else None
        return lease if lease is not None and not lease.changed_in.is_done else None

    def _live_lease(self, group: str, now_s: float) -> Lease | None:
        known = self._groups.get(group)
        lease = known.lease if known is not None else None
        return lease if lease is not None and lease.is_alive(now_s) else None

    def _over(self, group: str, window: Window) -> _AdmittedGroup:
        """The pending changes of the group, to which `window` adds one."""
        ahead = self._ahead.get(group)
        if ahead is None:
            ahead = self._ahead[group] = _AdmittedGroup(window)
        changed = self._changed.get(window)
        if changed is None:
            changed = self._changed[window] = set()
            window.when_done(lambda _: self._stored(window), lambda _: self._stored(window))
        changed.add(group)
        ahead.changed_in = window
        ahead.gone = False
        return ahead

    def _stored(self, window: Window) -> None:
        """The changes of `window` are applied: drop them here, unless a later window changed the
        group again."""
        for shares, owner, amount in self._taken.pop(window, ()):
            shares.give_back(owner, amount)
        for group in self._changed.pop(window):
            self._makers.pop(group, None)
            ahead = self._ahead.get(group)
            if ahead is not None and ahead.changed_in is window:
                del self._ahead[group]

    def _move(
        self, window: Window, group: str, offsets: tuple[CommittedOffset, ...], by: Actor
    ) -> None:
        self._make_if_missing(window, group, by)
        growth, owner = self._growth_by(group, offsets), self._owner(group, by)
        self._take(window, self._groups.offsets_shares, owner, growth)
        self._over(group, window).offsets.update({o.topic_id: o.offset for o in offsets})

    def _make_if_missing(self, window: Window, group: str, by: Actor) -> None:
        """Note who makes the group, before anything that makes it is admitted."""
        if self.is_there(group):
            return
        self._makers[group] = by.name
        self._take(window, self._groups.shares, by.name, 1)
        self._over(group, window)
        action = Action("group_created", "group", group)
        audit.note(window, by, self._clock.wall_us(), action)

    def _take(self, window: Window, shares: Shares, owner: str, amount: int) -> None:
        """Take shares for the window until it is stored; the applied group takes them then."""
        if amount:
            shares.take_anyway(owner, amount)
            self._taken.setdefault(window, []).append((shares, owner, amount))

    def is_there(self, group: str) -> bool:
        """Whether the group exists once everything admitted is stored: it holds a lease, or an
        offset on a topic that exists then."""
        ahead, known = self._ahead.get(group), self._known(group)
        if ahead is not None and ahead.lease is not None:
            leased = ahead.lease.holder is not None
        else:
            leased = known is not None and known.lease is not None
        return leased or any(
            self._topics.lives(topic_id)
            for offsets in (ahead and ahead.offsets, known and known.offsets)
            for topic_id in offsets or ()
        )

    def _owner(self, group: str, by: Actor) -> str:
        """Whose shares the group's offsets take."""
        known = self._groups.get(group)
        maker = self._makers.get(group) or (known.owner if known is not None else None)
        return by.name if maker is None else maker

    def _topic(self, name: str, wanted_id: int | None) -> AdmittedTopic:
        """The topic, if it is the one with that id (None: any). Raises Refusal."""
        topic = self._topics.find(name)
        if topic is None:
            raise self._topics.missing(name)
        if wanted_id not in (None, topic.topic_id):
            error = OffsetConflictError(
                f"Topic {name!r} was deleted and created again: it has the id {topic.topic_id}, "
                f"not {wanted_id}.",
                topic=name,
                topic_id=topic.topic_id,
            )
            raise Refusal(error, topic.changed_in)
        return topic

    def _check_room(self, group: str, by: Actor) -> None:
        """Raise Refusal if there is no room for a new group. Pending groups count as well."""
        if not self.is_there(group):
            self._check_share(self._groups.shares, by.owner, 1)

    def _check_room_for(self, group: str, offsets: Collection[CommittedOffset], by: Actor) -> None:
        """Raise Refusal if the offsets exceed their share. What an entry in flight adds counts in
        full, even if the next one replaces it."""
        growth = self._growth_by(group, offsets)
        if growth:
            owner = OPERATOR if by.owner == OPERATOR else self._owner(group, by)
            self._check_share(self._groups.offsets_shares, owner, growth)

    def _check_share(self, shares: Shares, owner: str, amount: int) -> None:
        if not shares.has_room(owner, amount):
            self._groups.forget_all()
        try:
            shares.check(owner, amount)
        except SebError as error:
            raise Refusal(error, None) from None

    def _growth_by(self, group: str, offsets: Collection[CommittedOffset]) -> int:
        """Bytes by which the applied offsets would grow at most."""
        applied, growth = self._groups.offsets(group), 0
        for item in offsets:
            before = applied.get(item.topic_id)
            size_bytes = before.size_bytes if before is not None else 0
            growth += max(0, offset_bytes(item.metadata) - size_bytes)
        return growth

    def _check_lease(self, group: str, generation: int | None, now_s: float) -> None:
        """Raise Refusal if a live lease is not the caller's."""
        pending = self._pending_lease(group)
        if pending is not None:
            # Nobody can have its generation yet, nor that of the lease that it replaces.
            if pending.holder is not None or generation is not None:
                raise Refusal(stale_generation(group, pending.holder), pending.changed_in)
            return
        known = self._live_lease(group, now_s)
        if (known.generation if known is not None else None) != generation:
            holder = known.holder if known is not None else None
            raise Refusal(stale_generation(group, holder), None)


def _conflict(commit: Commit, topic: str, committed: int | None) -> OffsetConflictError | None:
    expected = commit.expected.get(topic, committed)
    if expected == committed:
        return None
    stands, wanted = ("no offset" if o is None else o for o in (committed, expected))
    text = f"Group {commit.group!r} stands at {stands} on {topic!r}, not at {wanted}."
    return OffsetConflictError(text, topic=topic, expected=expected, committed=committed)


def _backward(commit: Commit, topic: str, committed: int | None) -> CommitBackwardError | None:
    offset, strictly = commit.offsets[topic], commit.strictly_forward
    if committed is None or offset > committed:
        return None
    if not strictly and (offset == committed or commit.allow_backward):
        return None
    advice = (
        "In a transaction every offset must: if this step was done already, read on from there."
        if strictly
        else "Reset the group, or say allow_backward."
    )
    return CommitBackwardError(
        f"Group {commit.group!r} has committed {committed} on {topic!r}; {offset} is not after "
        f"it. {advice}",
        topic=topic,
        committed=committed,
    )


def _size(offsets: tuple[CommittedOffset, ...]) -> int:
    return 256 + sum(24 + len(item.metadata.encode()) for item in offsets)
