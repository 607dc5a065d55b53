"""What a consumer group is told when it is refused."""

from __future__ import annotations

from seb_appliance import limits
from seb_appliance.errors import (
    BadRequestError,
    CommitBackwardError,
    CommitBeyondEndError,
    GroupNotFoundError,
    LeaseHeldError,
    OffsetConflictError,
    StaleGenerationError,
)


def no_such_group(group: str) -> GroupNotFoundError:
    """Also for a group that the caller must not know to be there."""
    return GroupNotFoundError(
        f"There is no group {group!r}, or you may see no topic on which it stands."
    )


def conflict(
    group: str, topic: str, expected: int | None, committed: int | None
) -> OffsetConflictError:
    """`expected` and `committed` None: no offset."""
    return OffsetConflictError(
        f"Group {group!r} stands at {_place(committed)} on {topic!r}, not at {_place(expected)}.",
        topic=topic,
        expected=expected,
        committed=committed,
    )


def made_anew(topic: str, topic_id: int, wanted_id: int | None) -> OffsetConflictError:
    return OffsetConflictError(
        f"Topic {topic!r} was made anew: it has the id {topic_id}, not {wanted_id}.",
        topic=topic,
        topic_id=topic_id,
    )


def beyond_end(topic: str, offset: int, end: int) -> CommitBeyondEndError:
    return CommitBeyondEndError(
        f"Offset {offset} is beyond the log end {end} of {topic!r}.",
        topic=topic,
        log_end_offset=end,
    )


def backward(
    group: str, topic: str, offset: int, committed: int, *, strictly: bool
) -> CommitBackwardError:
    """`strictly`: every offset had to grow, as in a transaction."""
    advice = (
        "In a transaction every offset must: if this step was done already, read on from there."
        if strictly
        else "Reset the group, or say allow_backward."
    )
    return CommitBackwardError(
        f"Group {group!r} stands at {committed} on {topic!r}; {offset} does not go forward. "
        f"{advice}",
        topic=topic,
        committed=committed,
    )


def no_room_for_offsets() -> BadRequestError:
    most = limits.COMMITTED_OFFSETS_BYTES_MAX // limits.MIB
    return BadRequestError(
        f"The committed offsets of all groups, with their metadata, take the {most} MiB that they "
        "may. Delete groups that nobody needs, or commit less metadata."
    )


def lease_held(group: str, holder: str, left_ms: int) -> LeaseHeldError:
    return LeaseHeldError(
        f"{holder!r} holds the lease of group {group!r}.", holder=holder, expires_in_ms=left_ms
    )


def stale_generation(group: str, holder: str | None) -> StaleGenerationError:
    """`holder` None: no lease is alive."""
    why = "No lease" if holder is None else f"Another lease, held by {holder!r},"
    return StaleGenerationError(
        f"{why} of group {group!r} is in force. Take the lease, then read from where it stands.",
        holder=holder,
    )


def _place(offset: int | None) -> str:
    return "no offset" if offset is None else str(offset)
