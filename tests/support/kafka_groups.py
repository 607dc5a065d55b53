"""Members of a Kafka consumer group, as a test plays them on a clock that it moves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

from seb_appliance import limits
from seb_appliance.broker.shares import AllShares
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.groups.coordinator import Coordinator
from seb_appliance.protocols.kafka.groups.values import (
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    Protocol,
    SyncRequest,
    SyncResult,
)
from tests.support.fakes import FakeClock, settle

INITIAL_S = limits.KAFKA_REBALANCE_DELAY_MS_DEFAULT / 1_000
RANGE = (Protocol("range", b"topics"),)


class Groups:
    """The coordinator, and the requests of members to it, of the group `g` unless it is named."""

    def __init__(self, rebalance_delay_s: float = INITIAL_S) -> None:
        self.clock = FakeClock()
        self.shares = AllShares()
        numbers = itertools.count(1)
        self.coordinator = Coordinator(
            self.clock,
            self.shares,
            lambda count: next(numbers).to_bytes(count, "big"),
            rebalance_delay_s,
        )

    @property
    def held(self) -> dict[str, int]:
        return {share.name: share.used for share in self.shares}

    def join(self, member_id: str = "", **given: Any) -> asyncio.Future[JoinResult]:
        request = JoinRequest(
            group="g",
            owner="key",
            member_id=member_id,
            group_instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            protocol_type="consumer",
            protocols=RANGE,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
        )
        return self.coordinator.join(request._replace(**given))

    def member_id(self, **given: Any) -> str:
        """A new one, which has not joined yet."""
        result = self.join(**given).result()
        assert result.error == ErrorCode.MEMBER_ID_REQUIRED
        return result.member_id

    def join_anew(self, **given: Any) -> asyncio.Future[JoinResult]:
        """With a member id that was asked for."""
        return self.join(self.member_id(**given), **given)

    def sync(
        self,
        joined: JoinResult,
        assignments: Mapping[str, bytes] | None = None,
        instance_id: str | None = None,
        **given: Any,
    ) -> asyncio.Future[SyncResult]:
        request = SyncRequest(
            "g", joined.generation, joined.member_id, instance_id, assignments or {}
        )
        return self.coordinator.sync(request._replace(**given))

    def heartbeat(self, joined: JoinResult, instance_id: str | None = None) -> ErrorCode:
        return self.coordinator.heartbeat("g", joined.generation, joined.member_id, instance_id)

    def commit(self, joined: JoinResult, instance_id: str | None = None) -> ErrorCode:
        return self.coordinator.check_commit("g", joined.generation, joined.member_id, instance_id)

    def leave(self, member_id: str, instance_id: str | None = None) -> LeaveResult:
        return self.coordinator.leave("g", [LeavingMember(member_id, instance_id)])[0]

    @property
    def state(self) -> str:
        described = self.coordinator.describe("g")
        return "gone" if described is None else described.state.value

    @property
    def member_ids(self) -> list[str]:
        described = self.coordinator.describe("g")
        return [] if described is None else [member.member_id for member in described.members]

    async def stable(self, *members: Mapping[str, Any]) -> list[JoinResult]:
        """All in a new group, with assignments. The leader is the first one."""
        waiting = [self.join(**{"requires_member_id": False, **given}) for given in members]
        await self.clock.advance(INITIAL_S)
        return await self.assigned(*waiting)

    async def assigned(self, *waiting: asyncio.Future[JoinResult]) -> list[JoinResult]:
        """They get their assignments: `for ` and the member id."""
        joined = [future.result() for future in waiting]
        assert [one.error for one in joined] == [ErrorCode.NONE] * len(joined)
        synced = [
            self.sync(one, {m.member_id: b"for " + m.member_id.encode() for m in one.members})
            for one in joined
        ]
        await settle()
        assert [future.result().assignment for future in synced] == [
            b"for " + one.member_id.encode() for one in joined
        ]
        return joined
