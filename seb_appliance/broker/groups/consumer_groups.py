"""Operations on consumer groups: read, commit, reset, describe, lease.

Two readers of one group get the same records unless one holds a lease. A commit waits for `linger`
like a record and is stored in the same entry; only an operator's reset does not wait.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from heapq import merge
from itertools import islice

from seb_appliance import limits
from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import THE_APPLIANCE, Action, Actor, AuditedWrites
from seb_appliance.broker.append.acknowledgement import AckCallback
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.groups.admission import Commit, GroupAdmission
from seb_appliance.broker.groups.groups import (
    Committed,
    GroupFigures,
    GroupRead,
    GroupTopicView,
    GroupView,
    Lag,
    LeaseView,
    ResetRow,
    lease_held,
    no_such_group,
)
from seb_appliance.broker.groups.members import GroupMember, Members, Membership
from seb_appliance.broker.read.reads import Reads
from seb_appliance.broker.read.sections import SectionIndex
from seb_appliance.broker.shares import OPERATOR, Reservation
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.names import (
    Patterns,
    check_group_name,
    check_pattern,
    check_topic_name,
)
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import BadRequestError, CorruptObjectError, TopicNotFoundError
from seb_appliance.formats.operations import CommittedOffset
from seb_appliance.tasks import in_slices

# Whether a caller may see a group (None), or its offset on a topic.
Sees = Callable[[str, str | None], bool]
# Whether a caller is that API key, or may see all groups.
Owns = Callable[[str], bool]


def everybody(_api_key_id: str) -> bool:
    """An `Owns` for who sees all groups, or looks at the members of groups itself."""
    return True


class ConsumerGroups:
    def __init__(
        self,
        catalog: Catalog,
        admission: GroupAdmission,
        reads: Reads,
        index: SectionIndex,
        writes: Writes,
        age_us: Callable[[int], int],
    ) -> None:
        self._catalog = catalog
        self._admission = admission
        self._reads = reads
        self._index = index
        self._writes = writes
        self._audited = AuditedWrites(writes)
        self._linger = writes.linger
        self._clock = writes.clock
        self._age_us = age_us
        self.members = Members()

    async def read(
        self, group: str, topic: str, request: ReadRequest, *, default: From
    ) -> GroupRead:
        """Read from the committed offset, or from `default` when there is none. Raises what
        `Reads.read` raises; OffsetExpiredError when retention has overtaken the group."""
        check_group_name(group)
        found = self._catalog.topic(topic)
        committed = began = self.committed_offset(group, found.topic_id)
        start = From(offset=committed) if committed is not None else default
        result = await self._reads.read(topic, replace(request, start=start))
        if began is None and result.slices:  # the first record found
            began = int(result.slices[0].batch.offsets()[result.slices[0].begin])
        elif began is None:
            began = result.next_offset
        lag = await self.lag(found, began, result.log_end_offset)
        return GroupRead(result, committed, lag)

    def committed_offset(self, group: str, topic_id: int) -> int | None:
        """None: the group has no offset on the topic. Raises BadNameError."""
        committed = self._catalog.groups.offsets(check_group_name(group)).get(topic_id)
        return None if committed is None else committed.offset

    def committed_of(self, group: str, topics: Iterable[str] | None = None) -> dict[str, Committed]:
        """The group's offsets with their metadata, by topic name: on these topics, or on all
        (None). Topics without one are left out. Raises BadNameError."""
        offsets = self._catalog.groups.offsets(check_group_name(group))
        if topics is None:
            found = list(map(self._catalog.find_id, offsets))
        else:
            found = list(map(self._catalog.find, topics)) if offsets else []
        return {
            topic.name: offsets[topic.topic_id]
            for topic in found
            if topic is not None and topic.topic_id in offsets
        }

    async def commit(
        self,
        commit: Commit,
        reservation: Reservation,
        by: Actor = THE_APPLIANCE,
        patience_ms: int | None = None,
    ) -> tuple[CommittedOffset, ...]:
        """The offsets that are now committed, all or nothing, and durable. Takes over `reservation`
        (of the body). `patience_ms`: see `Writes.submit`. Raises TopicNotFoundError,
        CommitBeyondEndError, CommitBackwardError, OffsetConflictError, StaleGenerationError, and
        what an append raises."""
        admitted: tuple[CommittedOffset, ...] = ()
        now_s = self._clock.monotonic_s()

        def admit(window: Window) -> None:
            nonlocal admitted
            admitted = self._admission.admit_commit(window, commit, now_s, by)

        with reservation:
            check_commit(commit)
            await self._writes.operate(
                admit, self._linger.default_ms, reservation.owner, patience_ms
            )
        return admitted

    def commit_nowait(self, by: Actor, commit: Commit, on_done: AckCallback) -> bool:
        """`commit` for the fast lane, of a group that exists. True: admitted, and `on_done` gets
        the result. False: `commit` would raise, and nothing happened. Raises BadRequestError,
        BadNameError."""
        check_commit(commit)
        if not self._admission.is_there(commit.group):
            return False
        now_s = self._clock.monotonic_s()
        return self._writes.operate_nowait(
            lambda window: self._admission.admit_commit(window, commit, now_s, by),
            self._linger.default_ms,
            by.name,
            on_done,
        )

    async def take_lease(
        self, group: str, holder: str, ttl_ms: int, by: Actor = THE_APPLIANCE
    ) -> LeaseView:
        """Take the group's lease, or renew it. Raises LeaseHeldError."""
        check_group_name(group)
        if not limits.LEASE_TTL_MS_MIN <= ttl_ms <= limits.LEASE_TTL_MS_MAX:
            raise BadRequestError(
                f"ttl_ms must be from {limits.LEASE_TTL_MS_MIN} to {limits.LEASE_TTL_MS_MAX}, "
                f"not {ttl_ms}."
            )
        if not 1 <= len(holder) <= limits.NAME_LENGTH_MAX:
            raise BadRequestError(f"holder must have 1 to {limits.NAME_LENGTH_MAX} characters.")
        now_s = self._clock.monotonic_s()
        granted = await self._writes.operate(
            lambda window: self._admission.admit_lease(window, group, holder, ttl_ms, now_s, by),
            owner=by.name,
        )
        found = self._catalog.groups.get(group)
        lease = found.lease if found is not None else None
        if lease is None or lease.holder != holder:  # the same entry gave it to another holder
            raise lease_held(group, lease.holder if lease is not None else "nobody", 0)
        if not granted:
            lease.expires_s = now_s + ttl_ms / 1000
        return lease.view(self._clock.monotonic_s())

    async def release_lease(self, group: str, generation: int, owner: str = OPERATOR) -> None:
        """Raises StaleGenerationError when another lease, or none, is live."""
        now_s = self._clock.monotonic_s()
        await self._writes.operate(
            lambda window: self._admission.admit_lease_released(window, group, generation, now_s),
            owner=owner,
        )

    # --- operators ---

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self._catalog.groups)

    def lags(self, most: int) -> dict[tuple[str, int], int]:
        """Records by which groups are behind, by group and topic id, of at most `most` pairs in
        order of the groups' names. Does no I/O."""
        found: dict[tuple[str, int], int] = {}
        for name in self._catalog.groups.names("", most):
            for topic_id, committed in self._catalog.groups.offsets(name).items():
                topic = self._catalog.find_id(topic_id)
                if topic is not None:
                    found[name, topic_id] = max(0, topic.log_end_offset - committed.offset)
                if len(found) == most:
                    return found
        return found

    async def page(
        self, after: str, most: int, sees: Sees, owns: Owns
    ) -> tuple[list[GroupView], str | None]:
        """Groups behind `after` in order of their names, and the name after which the next page
        begins (None: no more), of a group that `sees` lets through. There may be fewer than `most`,
        since the rows of a page are bounded."""
        views: list[GroupView] = []
        rows = 0
        known = self._catalog.groups
        new = sorted(name for name in self.members.groups() if known.get(name) is None)
        while names := self._names(after, limits.GROUPS_PER_PAGE_LOOKED_AT, new):
            async for after in in_slices(names):
                view = await self._view(after, sees, owns)
                if view is None:
                    continue
                if len(views) == most or rows >= limits.GROUPS_PER_PAGE_LOOKED_AT:
                    return views, views[-1].group
                views.append(view)
                rows += len(view.topics)
        return views, None

    async def names(self) -> list[str]:
        """Of all groups, in order."""
        found = list[str]()
        known, most = self._catalog.groups, limits.GROUPS_PER_PAGE_LOOKED_AT
        new = sorted(name for name in self.members.groups() if known.get(name) is None)
        while some := self._names(found[-1] if found else "", most, new):
            found += some
            await asyncio.sleep(0)
        return found

    def figures(self, group: str) -> GroupFigures:
        """What memory tells of a group, to order many of them."""
        found = self._catalog.groups.get(group)
        offsets = {} if found is None else found.offsets
        records, committed_us = 0, None
        for topic_id, one in offsets.items():
            topic = self._catalog.find_id(topic_id)
            if topic is not None:
                records += max(0, topic.log_end_offset - one.offset)
                committed_us = max(committed_us or 0, one.committed_us)
        lease = None if found is None else found.lease
        is_held = lease is not None and lease.is_alive(self._clock.monotonic_s())
        holder = lease.holder if lease is not None and is_held else ""
        members = self.members.count_of(group)
        return GroupFigures(len(offsets), records, committed_us, holder, members)

    async def describe(self, group: str, sees: Sees, owns: Owns) -> GroupView:
        """Raises GroupNotFoundError, also for a group with nothing that `sees` lets through."""
        view = await self._view(group, sees, owns)
        if view is None:
            raise no_such_group(group)
        return view

    async def membership(self, group: str, sees: Sees) -> Membership | None:
        """With the topics that `sees` lets through. None: the group has no members."""
        found = self.members.of(group)
        if found is None:
            return None
        members = list[GroupMember]()
        async for one in in_slices(found.members):
            subscribed, assigned = one.subscribed, one.assigned
            if subscribed is not None:
                subscribed = [name for name in subscribed if sees(group, name)]
            if assigned is not None:
                assigned = [name for name in assigned if sees(group, name)]
            members.append(replace(one, subscribed=subscribed, assigned=assigned))
        return replace(found, members=members)

    def topics_of(self, group: str) -> list[str]:
        """The topics on which the group has an offset, by name. Raises GroupNotFoundError."""
        found = self._catalog.groups.get(group)
        if found is None:
            if self.members.count_of(group):
                return []
            raise no_such_group(group)
        topics = map(self._catalog.find_id, found.offsets)
        return sorted(topic.name for topic in topics if topic is not None)

    def stands_on(self, group: str) -> list[str]:
        """The topics on which the group has an offset once everything admitted is stored."""
        return list(self._admission.offsets_of(group))

    async def is_open_to(self, group: str, sees: Sees, owns: Owns) -> bool:
        """Whether a caller may use a group without offsets, which belongs to its members, if it has
        any: to their API keys, and to who may see a topic that a member subscribes to."""
        is_new = True
        async for owner, topics in in_slices(self.members.owners(group)):
            is_new = False
            if owns(owner) or any(sees(group, topic) for topic in topics):
                return True
        return is_new

    def stands_on_one_of(self, group: str, topics: Collection[str]) -> bool:
        """Whether the group has an offset on one of these topics; or on none at all, and no
        members."""
        offsets = self._catalog.groups.offsets(group)
        found = filter(None, map(self._catalog.find, topics if offsets else ()))
        if any(topic.topic_id in offsets for topic in found):
            return True
        stood = self._admission.offsets_of(group)
        if not stood:
            return not self.members.count_of(group)
        return any(name in stood for name in topics)

    def pick(self, group: str, patterns: Collection[str]) -> list[str]:
        """Topics for a reset: the named ones, and those of the group that a pattern with * or **
        matches. Raises TopicNotFoundError, GroupNotFoundError, BadParameterError."""
        picked: set[str] = set()
        wild = [check_pattern(pattern) for pattern in patterns if "*" in pattern]
        for name in patterns:
            if "*" not in name:
                picked.add(self._catalog.topic(check_topic_name(name)).name)
        if wild:
            picked.update(filter(Patterns(wild).cover, self.topics_of(group)))
        return sorted(picked)

    async def plan_reset(
        self, group: str, topics: Collection[str], to: From | None, shift: int
    ) -> list[ResetRow]:
        """The offsets after a reset: `to`, or the committed ones plus `shift`, within the log.
        Topics without an offset of the group are not shifted."""
        check_group_name(group)
        rows = []
        for name in topics:
            topic = self._catalog.topic(name)
            before = self.committed_offset(group, topic.topic_id)
            if to is not None:
                wanted = await self._reads.resolve(topic, to)
            elif before is not None:
                wanted = before + shift
            else:
                continue
            after = min(max(wanted, topic.log_start_offset), topic.log_end_offset)
            rows.append(ResetRow(name, topic.topic_id, before, after, wanted))
        return rows

    async def reset(
        self, group: str, rows: Collection[ResetRow], by: Actor = THE_APPLIANCE
    ) -> list[ResetRow]:
        """Apply a plan. In the result, `before` includes commits that were in flight. Raises
        TopicNotFoundError, OffsetConflictError (the topic was created again)."""
        done: list[ResetRow] = []

        def admit(window: Window) -> Action:
            stood = self._admission.offsets_of(group)
            self._admission.admit_reset(window, group, rows, by)
            done.extend(replace(row, before=stood.get(row.topic)) for row in rows)
            before = audit.of_offsets({row.topic: row.before for row in done})
            after = audit.of_offsets({row.topic: row.after for row in done})
            return Action("group_reset", "group", group, before, after)

        if rows:
            await self._audited.store(admit, by)
        return done

    async def delete(self, group: str, by: Actor = THE_APPLIANCE) -> None:
        """Delete its offsets and its lease. Raises GroupNotFoundError."""

        def admit(window: Window) -> Action:
            before = audit.of_offsets(self._admission.offsets_of(group))
            self._admission.admit_deleted(window, group)
            return Action("group_deleted", "group", group, before)

        await self._audited.store(admit, by)

    async def forget(self, group: str, topics: Collection[str], by: Actor = THE_APPLIANCE) -> None:
        """Delete its offsets on these topics, and its lease. Raises GroupNotFoundError."""

        def admit(window: Window) -> Action | None:
            stood = self._admission.offsets_of(group)
            gone = [name for name in topics if name in stood]
            if not gone:
                if self._admission.is_there(group):
                    return None
                raise no_such_group(group)
            kept = self._admission.committed_except(group, gone)
            self._admission.admit_deleted(window, group)
            if kept:
                self._admission.admit_checked(window, group, kept, by)
            before = audit.of_offsets({name: stood[name] for name in gone})
            return Action("group_offsets_deleted", "group", group, before)

        await self._audited.store(admit, by)

    async def _view(self, group: str, sees: Sees, owns: Owns) -> GroupView | None:
        """None if there is no such group, or the caller may see nothing of it."""
        found, member_count = self._catalog.groups.get(group), self.members.count_of(group)
        if not sees(group, None):
            return None
        has_offsets = found is not None and found.offsets
        if member_count and not has_offsets and not await self.is_open_to(group, sees, owns):
            return None
        if found is None:
            return GroupView(group, [], None, member_count) if member_count else None
        topics = [
            GroupTopicView(
                topic.name,
                topic_id,
                committed.offset,
                committed.metadata,
                committed.committed_us,
                topic.log_start_offset,
                end := topic.log_end_offset,
                await self.lag(topic, committed.offset, end),
            )
            async for topic_id, committed in in_slices(list(found.offsets.items()))
            if (topic := self._catalog.find_id(topic_id)) is not None and sees(group, topic.name)
        ]
        if found.offsets and not topics:
            return None
        now_s = self._clock.monotonic_s()
        lease = None
        if found.lease is not None and found.lease.is_alive(now_s):
            lease = found.lease.view(now_s)
        topics.sort(key=lambda view: view.topic)
        return GroupView(group, topics, lease, member_count)

    def _names(self, after: str, most: int, new: list[str]) -> list[str]:
        """At most `most` names behind `after`, of groups that are known and of those in `new`."""
        first = bisect_right(new, after)
        found = merge(self._catalog.groups.names(after, most), new[first : first + most])
        return list(islice(dict.fromkeys(found), most))

    async def lag(self, topic: Topic, offset: int, end: int) -> Lag:
        """Of whoever is to read the record at `offset` next."""
        if offset >= end:
            return Lag(0, 0, 0.0)
        while (stands_at := max(offset, topic.log_start_offset)) < topic.log_end_offset:
            try:
                unread_bytes = await self._index.bytes_from(topic, stands_at)
                if stands_at < topic.log_start_offset:
                    continue  # trimmed meanwhile
                _, rows, _ = await self._index.rows_of(topic, stands_at)
            except TopicNotFoundError:  # deleted meanwhile
                return Lag(0, 0, 0.0)
            except CorruptObjectError:
                if stands_at >= topic.log_start_offset:
                    raise
                continue
            age_us = max(0, self._age_us(rows.created_us[rows.row_of(stands_at)]))
            return Lag(end - offset, unread_bytes, age_us / 1_000_000)
        return Lag(end - offset, 0, 0.0)  # all of them were trimmed


def check_commit(commit: Commit) -> None:
    """Raises BadRequestError, BadNameError."""
    check_group_name(commit.group)
    if commit.generation is not None and commit.generation < 1:
        raise BadRequestError(
            "generation must be 1 or more: send the one that taking the lease returned."
        )
    if not 1 <= len(commit.offsets) <= limits.OFFSETS_PER_COMMIT_MAX:
        raise BadRequestError(
            f"A commit has 1 to {limits.OFFSETS_PER_COMMIT_MAX} offsets, not {len(commit.offsets)}."
        )
    for what, named in (
        ("metadata", commit.metadata),
        ("expected", commit.expected),
        ("topic_ids", commit.topic_ids),
    ):
        for topic in named:
            if topic not in commit.offsets:
                raise BadRequestError(f"{what} names {topic[:200]!r}, which is not in offsets.")
    for text in commit.metadata.values():
        if len(text) > limits.COMMIT_METADATA_CHARACTERS_MAX:
            raise BadRequestError(
                f"metadata can have at most {limits.COMMIT_METADATA_CHARACTERS_MAX} characters "
                "for each topic."
            )
