"""Members of consumer groups: join, assign, stay, leave; and groups as operators see them."""

from __future__ import annotations

from functools import partial

from seb_appliance.api.routes.groups.groups import authorize_whole, check_seen
from seb_appliance.broker.groups.consumer_groups import everybody
from seb_appliance.broker.topics.names import check_group_name
from seb_appliance.errors import BadNameError, NotFoundError, SebError
from seb_appliance.protocols.kafka.errors import ErrorCode, code_of
from seb_appliance.protocols.kafka.groups.grants import may_use
from seb_appliance.protocols.kafka.groups.names import group_of, id_of
from seb_appliance.protocols.kafka.groups.values import (
    DescribedMember,
    JoinedMember,
    JoinRequest,
    LeaveResult,
    LeavingMember,
    Protocol,
    State,
    SyncRequest,
)
from seb_appliance.protocols.kafka.requests import Outcome, Request, handles
from seb_appliance.protocols.kafka.server import Server
from seb_appliance.protocols.kafka.wire.codec import Message
from seb_appliance.protocols.kafka.wire.long_arrays import Each
from seb_appliance.tasks import in_slices

_PROTOCOL_TYPE = "consumer"  # of groups that have no members now
_LISTED_MAX = 1_000  # of groups that only have offsets


def _group(request: Request) -> str:
    """Its name."""
    return group_of(request.body["group_id"])


def _refusal(request: Request) -> ErrorCode:
    """NONE if a grant covers the group."""
    group = _group(request)
    try:
        check_group_name(group)
    except BadNameError:
        return ErrorCode.INVALID_GROUP_ID
    may = request.may("consume", group=group)
    return ErrorCode.NONE if may else ErrorCode.GROUP_AUTHORIZATION_FAILED


@handles(11)
def join_group(server: Server, request: Request) -> Outcome:
    refusal = _refusal(request)
    if refusal:
        return {"error_code": refusal, "protocol_name": _no_name(request)}
    return _joined(server, request)


def _no_name(request: Request) -> str | None:
    """Of a protocol, where none was chosen."""
    return None if request.version >= 7 else ""


async def _joined(server: Server, request: Request) -> Message:
    body, caller = request.body, request.caller
    if not await may_use(server, request, _group(request)):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return {"error_code": code, "protocol_name": _no_name(request)}
    result = await server.coordinator.join(
        JoinRequest(
            _group(request),
            caller.key.api_key_id,
            body["member_id"],
            body["group_instance_id"],
            caller.client_id,
            caller.address,
            body["protocol_type"],
            tuple(Protocol(one["name"], one["metadata"]) for one in body["protocols"]),
            body["session_timeout_ms"],
            body["rebalance_timeout_ms"],
            requires_member_id=request.version >= 4,
            may_skip_assignment=request.version >= 9,
        )
    )
    return {
        "error_code": result.error,
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name or _no_name(request),
        "leader": result.leader,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": Each(result.members, JoinedMember._asdict),
    }


@handles(14)
def sync_group(server: Server, request: Request) -> Outcome:
    refusal = _refusal(request)
    return {"error_code": refusal} if refusal else _synced(server, request)


async def _synced(server: Server, request: Request) -> Message:
    body, group = request.body, _group(request)
    syncing = server.coordinator.sync(
        SyncRequest(
            group,
            body["generation_id"],
            body["member_id"],
            body["group_instance_id"],
            {one["member_id"]: one["assignment"] for one in body["assignments"]},
            body["protocol_type"],
            body["protocol_name"],
        )
    )
    # It may wait for long, and the request may name thousands of members.
    body = request.body = {}
    result = await syncing
    return {
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }


@handles(12)
def heartbeat(server: Server, request: Request) -> Message:
    body = request.body
    return {
        "error_code": _refusal(request)
        or server.coordinator.heartbeat(
            _group(request), body["generation_id"], body["member_id"], body["group_instance_id"]
        )
    }


@handles(13)
async def leave_group(server: Server, request: Request) -> Message:
    refusal = _refusal(request)
    if not refusal and not await may_use(server, request, _group(request)):
        refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if refusal:
        return {"error_code": refusal}
    body = request.body
    if request.version < 3:
        (left,) = server.coordinator.leave(_group(request), [LeavingMember(body["member_id"])])
        return {"error_code": left.error}
    group, left_all = _group(request), list[LeaveResult]()
    async for one in in_slices(body["members"]):
        leaving = LeavingMember(one["member_id"], one["group_instance_id"])
        left_all += server.coordinator.leave(group, [leaving])
    return {"members": Each(left_all, _left)}


def _left(one: LeaveResult) -> Message:
    return {
        "member_id": one.member_id,
        "group_instance_id": one.group_instance_id,
        "error_code": one.error,
    }


# --- groups ---


@handles(15)
async def describe_groups(server: Server, request: Request) -> Message:
    asked = dict.fromkeys(request.body["groups"])
    return {
        "groups": Each([await _described(server, request, one) async for one in in_slices(asked)])
    }


async def _described(server: Server, request: Request, group_id: str) -> Message:
    group = group_of(group_id)
    if not request.may("consume", group=group):
        return {"group_id": group_id, "error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    if not await may_use(server, request, group):
        return {"group_id": group_id, "group_state": State.DEAD}  # as one that is not there
    found = server.coordinator.describe(group)
    if found is None:
        state = State.EMPTY if await _is_seen(server, request, group) else State.DEAD
        return {"group_id": group_id, "group_state": state}
    return {
        "group_id": group_id,
        "group_state": found.state,
        "protocol_type": found.protocol_type,
        "protocol_data": found.protocol_name,
        "members": Each(found.members, _member),
    }


def _member(one: DescribedMember) -> Message:
    return {
        "member_id": one.member_id,
        "group_instance_id": one.group_instance_id,
        "client_id": one.client_id,
        "client_host": f"/{one.client_host}",
        "member_metadata": one.metadata,
        "member_assignment": one.assignment,
    }


async def _is_seen(server: Server, request: Request, group: str) -> bool:
    """Whether it has offsets that the API key may see."""
    try:
        await check_seen(server.broker, request.caller.key, group)
    except NotFoundError:
        return False
    return True


@handles(16)
async def list_groups(server: Server, request: Request) -> Message:
    """Those with members, and those that only have offsets."""
    states = {state for state in State if state in request.body["states_filter"]}
    wants_all = not request.body["states_filter"]
    listed = {one.group: one for one in server.coordinator.listed()}
    found: list[Message] = [
        {
            "group_id": id_of(one.group),
            "protocol_type": one.protocol_type,
            "group_state": one.state,
        }
        async for one in in_slices(list(listed.values()))
        if (wants_all or one.state in states) and await may_use(server, request, one.group)
    ]
    if wants_all or State.EMPTY in states:
        sees = partial(_may_see, request)
        views, _ = await server.broker.groups.page("", _LISTED_MAX, sees, everybody)
        found += [
            {
                "group_id": id_of(view.group),
                "protocol_type": _PROTOCOL_TYPE,
                "group_state": State.EMPTY,
            }
            for view in views
            if view.group not in listed
        ]
    return {"groups": Each(found)}


def _may_see(request: Request, group: str, topic: str | None) -> bool:
    return any(request.may(operation, topic, group) for operation in ("consume", "manage"))


@handles(42)
async def delete_groups(server: Server, request: Request) -> Message:
    return {
        "results": [
            {"group_id": group, "error_code": await _deleted(server, request, group_of(group))}
            async for group in in_slices(dict.fromkeys(request.body["groups_names"]))
        ]
    }


async def _deleted(server: Server, request: Request, group: str) -> ErrorCode:
    if not request.may("manage", group=group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    try:
        await authorize_whole(server.broker, request.caller.key, group)
        code = server.coordinator.delete(group)
        if not code:
            await server.broker.groups.delete(group, request.actor)
    except SebError as error:
        return code_of(error, of_group=True)
    return code
