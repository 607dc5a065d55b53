"""What consumer groups do in the model: rules for the machine of test_appliance_model.py."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.groups.consumer_groups import everybody
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import From
from seb_appliance.errors import (
    CommitBackwardError,
    CommitBeyondEndError,
    GroupNotFoundError,
    LeaseHeldError,
    OffsetConflictError,
    SebError,
    StaleGenerationError,
    TopicNotFoundError,
)

TTL_MS = 3_600_000  # none runs out within a history; that is tested with a clock of our own

groups = st.sampled_from(["g", "h"])
topics = st.sampled_from(["a", "b.c", "b.d"])
holders = st.sampled_from(["worker-1", "worker-2"])


@dataclass
class ModelGroup:
    """`lease`: holder and generation."""

    offsets: dict[str, int] = field(default_factory=dict)
    lease: tuple[str, int] | None = None


class GroupRules:
    """`groups`: name → what is committed and who holds the lease."""

    groups: dict[str, ModelGroup]
    model: dict[str, list[bytes | None]]

    @rule(
        group=groups,
        topic=topics,
        offset=st.integers(0, 12),
        expected=st.sampled_from(["any", "right", "wrong"]),
        leased=st.booleans(),
        backward=st.booleans(),
    )
    def commit(
        self, group: str, topic: str, offset: int, expected: str, leased: bool, backward: bool
    ) -> None:
        known = self.groups.get(group, ModelGroup())
        committed = known.offsets.get(topic)
        wrong = None if committed is not None else 1
        conditions = {"right": {topic: committed}, "wrong": {topic: wrong}}.get(expected, {})
        generation = known.lease[1] if leased and known.lease is not None else None
        refusal: type[SebError] | None = None
        if known.lease is not None and generation is None:
            refusal = StaleGenerationError
        elif topic not in self.model:
            refusal = TopicNotFoundError
        elif expected == "wrong":
            refusal = OffsetConflictError
        elif offset > len(self.model[topic]):
            refusal = CommitBeyondEndError
        elif committed is not None and offset < committed and not backward:
            refusal = CommitBackwardError
        asked = Commit(
            group,
            {topic: offset},
            expected=conditions,
            generation=generation,
            allow_backward=backward,
        )
        working = self.broker.groups.commit(asked, self.broker.pending.reserve(OPERATOR, 9))
        if refusal is not None:
            with pytest.raises(refusal):
                self.run(working)
            return
        self.run(working)
        self.groups.setdefault(group, known).offsets[topic] = offset

    @rule(group=groups, topic=topics, to=st.sampled_from(["earliest", "latest", "back"]))
    def reset(self, group: str, topic: str, to: str) -> None:
        if topic not in self.model:
            return
        before = self.groups.get(group, ModelGroup()).offsets.get(topic)
        place = {"earliest": From(earliest=True), "latest": From(latest=True)}.get(to)
        rows = self.run(self.broker.groups.plan_reset(group, [topic], place, -1))
        self.run(self.broker.groups.reset(group, rows))
        if place is None and before is None:
            assert rows == []
            return
        moved = {"earliest": self.starts.get(topic, 0), "latest": len(self.model[topic])}
        after = moved[to] if to in moved else max(moved["earliest"], (before or 0) - 1)
        assert [(row.before, row.after) for row in rows] == [(before, after)]
        self.groups.setdefault(group, ModelGroup()).offsets[topic] = after

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        if group not in self.groups:
            with pytest.raises(GroupNotFoundError):
                self.run(self.broker.groups.delete(group))
            return
        self.run(self.broker.groups.delete(group))
        del self.groups[group]

    @rule(group=groups, holder=holders)
    def take_lease(self, group: str, holder: str) -> None:
        known = self.groups.setdefault(group, ModelGroup())
        if known.lease is not None and known.lease[0] != holder:
            with pytest.raises(LeaseHeldError):
                self.run(self.broker.groups.take_lease(group, holder, TTL_MS))
            return
        lease = self.run(self.broker.groups.take_lease(group, holder, TTL_MS))
        if known.lease is not None:
            assert lease.generation == known.lease[1]
        known.lease = (holder, lease.generation)

    @rule(group=groups)
    def release_lease(self, group: str) -> None:
        known = self.groups.get(group)
        if known is None or known.lease is None:
            with pytest.raises(StaleGenerationError):
                self.run(self.broker.groups.release_lease(group, 1))
            return
        self.run(self.broker.groups.release_lease(group, known.lease[1]))
        known.lease = None
        self._drop_empty_groups()

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted."""
        for known in self.groups.values():
            known.offsets.pop(topic, None)
        self._drop_empty_groups()

    def _drop_empty_groups(self) -> None:
        for group in [g for g, k in self.groups.items() if not k.offsets and k.lease is None]:
            del self.groups[group]

    @invariant()
    def the_groups_are_the_model(self) -> None:
        views, after = self.run(self.broker.groups.page("", 100, lambda *_: True, everybody))
        assert after is None
        assert [view.group for view in views] == sorted(self.groups)
        for view in views:
            known = self.groups[view.group]
            assert {t.topic: t.committed_offset for t in view.topics} == known.offsets
            lags = {t.topic: t.lag.records for t in view.topics}
            assert lags == {t: len(self.model[t]) - known.offsets[t] for t in known.offsets}
            lease = view.lease
            assert known.lease == (None if lease is None else (lease.holder, lease.generation))
