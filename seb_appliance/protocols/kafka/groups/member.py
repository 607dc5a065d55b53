"""A member of a consumer group."""

from __future__ import annotations

import asyncio

from seb_appliance.broker.shares import Reservation
from seb_appliance.clock import Timer
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.groups.values import (
    DescribedMember,
    JoinRequest,
    JoinResult,
    Protocol,
    SyncResult,
)


def size_bytes(request: JoinRequest) -> int:
    """What the member who asks takes in memory."""
    ids = len(request.client_id) + len(request.client_host) + len(request.group_instance_id or "")
    protocols = sum(len(name) + len(metadata) for name, metadata in request.protocols)
    return kafka_limits.MEMBER_BYTES + 2 * ids + len(request.protocol_type) + protocols


class Member:
    """`heard_s`: when it last asked for something that keeps its session. `is_new`: it was never
    in a generation. `joining`, `syncing`: what it waits for."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "heard_s",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_s",
        "room",
        "session_s",
        "syncing",
        "timer",
    )

    def __init__(
        self, member_id: str, request: JoinRequest, room: Reservation, now_s: float
    ) -> None:
        self.member_id = member_id
        self.instance_id = request.group_instance_id
        self.room = room
        self.heard_s = now_s
        self.is_new = True
        self.assignment = b""
        self.joining: asyncio.Future[JoinResult] | None = None
        self.syncing: asyncio.Future[SyncResult] | None = None
        self.timer: Timer | None = None
        self.take_over(request)

    def take_over(self, request: JoinRequest) -> None:
        """What it says of itself now."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.protocols = request.protocols
        self.session_s = request.session_timeout_ms / 1_000
        rebalance_ms = request.rebalance_timeout_ms
        if rebalance_ms < 0:
            rebalance_ms = request.session_timeout_ms
        self.rebalance_s = min(rebalance_ms, kafka_limits.REBALANCE_MS_MAX) / 1_000

    @property
    def is_waiting(self) -> bool:
        """It has sent a request that is not answered, so it sends no heartbeats."""
        return self.joining is not None or self.syncing is not None

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.protocols)

    def metadata_of(self, protocol_name: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    def has_protocols(self, protocols: tuple[Protocol, ...]) -> bool:
        return self.protocols == protocols

    def described(self, protocol_name: str | None) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.room.owner,
            self.metadata_of(protocol_name),
            self.assignment,
        )

    def answer_sync(self, result: SyncResult) -> None:
        """It waits for that."""
        waiting, self.syncing = self.syncing, None
        assert waiting is not None
        if not waiting.done():  # its connection may have cancelled it
            waiting.set_result(result)

    def refuse_sync(self, error: ErrorCode) -> None:
        """If it waits for that."""
        if self.syncing is not None:
            self.answer_sync(SyncResult(error))
