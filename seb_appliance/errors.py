"""Every error: its code, its HTTP status and what a caller may do next.

`retryable`: the same request may succeed later. `side_effects`: "none" guarantees that nothing
happened, "unknown" means that the request may have taken effect or still may. The codes are stable;
docs/ERRORS.md lists them.
"""

from __future__ import annotations

import copy
from typing import ClassVar, Literal, Self

SideEffects = Literal["none", "unknown"]


def printable(text: str) -> str:
    """With control characters escaped: what a stranger named may hold a terminal's commands."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class SebError(Exception):
    """Base of all errors. `detail`: one sentence that says what to do. `data`: further members of
    the problem document."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = True
    side_effects: SideEffects = "unknown"

    def __init__(self, detail: str, **data: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.data = data

    def again(self) -> Self:
        """A copy without a traceback, to raise one failure in several callers."""
        return copy.copy(self).with_traceback(None)


# --- errors of a request ---


class RefusedError(SebError):
    """The request changed nothing. The same request would be refused again."""

    status = 400
    retryable = False
    side_effects: SideEffects = "none"


class BadRequestError(RefusedError):
    code, title = "bad_request", "Bad request"


class BadJsonError(RefusedError):
    code, title = "bad_json", "The body is not the expected JSON"


class BadBatchError(RefusedError):
    """The bytes are not a valid record batch, or exceed a limit of the decoder."""

    code, title = "bad_batch", "Not a valid record batch"


class BadCloudEventError(RefusedError):
    code, title = "bad_cloud_event", "Not a CloudEvent of version 1.0"


class BadParameterError(RefusedError):
    code, title = "bad_parameter", "Invalid query parameter or header"


class DelayTooLongError(RefusedError):
    code, title = "delay_too_long", "The delay is too long"


class BadNameError(RefusedError):
    code, title = "bad_name", "Invalid name"


class UnauthenticatedError(RefusedError):
    code, status, title = "unauthenticated", 401, "No valid API key"


class ForbiddenError(RefusedError):
    code, status, title = "forbidden", 403, "The API key has no grant for this"


class NotFoundError(RefusedError):
    code, status, title = "not_found", 404, "No such resource"


class TopicNotFoundError(NotFoundError):
    code, title = "topic_not_found", "No such topic"


class TopicHeldError(TopicNotFoundError):
    """The topic was deleted while it had forks. Its name stays reserved, and the forks read the
    shared records, until the last fork is deleted."""

    code, status, title = "topic_held", 410, "The topic was deleted but still has forks"


class GroupNotFoundError(NotFoundError):
    code, title = "group_not_found", "No such consumer group"


class QueueNotFoundError(NotFoundError):
    code, title = "queue_not_found", "No such queue"


class ApiKeyNotFoundError(NotFoundError):
    code, title = "api_key_not_found", "No such API key"


class EntryNotFoundError(NotFoundError):
    """The appliance was restored as of an earlier time since it told the client the entry."""

    code, title = "entry_not_found", "The journal has no such entry"


class RecordNotFoundError(NotFoundError):
    code, title = "record_not_found", "No such record"


class RecordKeyNotFoundError(NotFoundError):
    """No record below `indexed_offset` has this record key, or the newest is a tombstone."""

    code, title = "record_key_not_found", "No live record has this record key"


class MethodNotAllowedError(RefusedError):
    code, status, title = "method_not_allowed", 405, "Method not allowed"


class TransferCodingError(RefusedError):
    code, status, title = "transfer_coding_unsupported", 501, "Transfer coding not supported"


class NotAcceptableError(RefusedError):
    code, status, title = "not_acceptable", 406, "No accepted media type is available"


class RequestTimeoutError(RefusedError):
    code, status, title = "request_timeout", 408, "The request did not arrive in time"
    retryable = True


class TopicDiffersError(RefusedError):
    code, status, title = "topic_differs", 409, "The topic exists with other settings"


class TopicReplacedError(RefusedError):
    """The topic was deleted, and a new topic has its name."""

    code, status, title = "topic_replaced", 409, "The topic was deleted and created again"


class StreamConflictError(RefusedError):
    code, status, title = "stream_conflict", 409, "The stream differs from the request"


class StreamClosedError(RefusedError):
    """Durable Streams protocol: `log_end_offset` is the end of the stream."""

    code, status, title = "stream_closed", 409, "The stream is closed"


class NameHeldError(RefusedError):
    code, status, title = "name_held", 409, "A deleted topic with forks still holds this name"


class ForkRefusedError(RefusedError):
    """The fork would exceed `limit` (number or depth of forks), or would start inside a compacted
    range; offsets up to `base_offset` and from `next_offset` are possible."""

    code, status, title = "fork_refused", 409, "The topic cannot be forked"


class LastAdminKeyError(RefusedError):
    code, status, title = "last_admin_key", 409, "The last admin key cannot be removed"


class CommitBeyondEndError(RefusedError):
    code, title = "commit_beyond_end", "The offset is beyond the log end"


class OffsetConflictError(RefusedError):
    """A compare-and-set failed; `committed` is the current offset."""

    code, status, title = "offset_conflict", 409, "The committed offset is not the expected one"


class CommitBackwardError(RefusedError):
    code, status, title = "commit_backward", 409, "The commit would move an offset back"


class StaleGenerationError(RefusedError):
    code, status, title = "stale_generation", 409, "This consumer does not hold the lease"


class LeaseEndedError(RefusedError):
    """`results`: what became of each delivery, `ok` for a lease that is live."""

    code, status, title = "lease_ended", 409, "A delivery is not this worker's any more"


class LeaseHeldError(RefusedError):
    code, status, title = "lease_held", 409, "Another consumer holds the lease of this group"


class KeyIndexOffError(RefusedError):
    """The topic's setting `key_index` is `none`, or `latest` where `history` is needed."""

    code, status, title = "key_index_off", 409, "The topic's record keys are not indexed"


class SqlStatementError(RefusedError):
    """`detail`: as DuckDB says it."""

    code, status, title = "sql_statement", 400, "The SQL statement cannot be run"


class SqlTimeoutError(RefusedError):
    code, status, title = "sql_timeout", 408, "The SQL statement took too long"


class SqlUnavailableError(RefusedError):
    code, status, title = "sql_unavailable", 409, "This appliance cannot run SQL"


class StandbyError(RefusedError):
    """`epoch` and `writer` identify the writing appliance (the bucket has no address of it)."""

    code, status, title = "standby", 409, "This appliance is a standby and accepts no writes"


class StaleEpochError(RefusedError):
    code, status, title = "stale_epoch", 403, "A newer epoch of this producer is active"


class SequenceGapError(RefusedError):
    """`expected` is the seq that must come next; `received` is the one that came."""

    code, status, title = "sequence_gap", 409, "The producer's seq does not follow its last one"


class CompactionRefusedError(RefusedError):
    code = "compaction_refused"
    status = 409
    title = "The external compaction cannot start or cannot be applied"


class CompactionNotFoundError(RefusedError):
    code, status, title = "compaction_not_found", 404, "No such compaction is running"


class ImportRefusedError(RefusedError):
    """A log of the Go broker cannot be imported completely. No damaged part was imported."""

    code, title = "import_refused", "The log cannot be imported"


class ExportRefusedError(RefusedError):
    """The format cannot represent a record, or the destination has other content."""

    code, title = "export_refused", "The data cannot be exported to this format"


class PreconditionFailedError(RefusedError):
    """`log_end_offset` is the current log end."""

    code = "precondition_failed"
    status = 412
    title = "The log end is not the expected offset"


class IdempotencyMismatchError(RefusedError):
    code = "idempotency_mismatch"
    status = 422
    title = "This Idempotency-Key or seq was used for another request"


class OffsetExpiredError(RefusedError):
    code, status, title = "offset_expired", 410, "The offset is below the log start"


class OffsetOutOfRangeError(RefusedError):
    code, status, title = "offset_out_of_range", 416, "The offset is beyond the log end"


class RecordTooLargeError(RefusedError):
    code, status, title = "record_too_large", 413, "A record is too large"


class RequestTooLargeError(RefusedError):
    code, status, title = "request_too_large", 413, "The request is too large"


class UnsupportedMediaTypeError(RefusedError):
    code, status, title = "unsupported_media_type", 415, "The media type is not supported here"


class HeadersTooLargeError(RefusedError):
    code, status, title = "headers_too_large", 431, "The request headers are too large"


# --- temporary states of the appliance ---


class UnavailableError(SebError):
    """Nothing happened. The same request may succeed after `retry_after_s`."""

    status = 503
    retryable = True
    side_effects: SideEffects = "none"
    retry_after_s: int = 1


class OverloadedError(UnavailableError):
    code, title = "overloaded", "The appliance is overloaded"


class ShareExceededError(UnavailableError):
    """An API key has reached its part of a shared resource. `share`: the resource's name in
    `broker/shares.py`; `held` and `limit`: in its unit."""

    code, status, title = (
        "share_exceeded",
        429,
        "The API key has reached its share of a shared resource",
    )


class QuotaExceededError(UnavailableError):
    """The API key has used its quota per second; `retry_after_s` says when it has more."""

    code, status, title = "quota_exceeded", 429, "The API key has exceeded its quota"

    def __init__(self, detail: str, *, retry_after_s: int = 1, **data: object) -> None:
        super().__init__(detail, **data)
        self.retry_after_s = retry_after_s


class ApiKeyChangedError(UnavailableError):
    """The API key changed during the request. A retry is authorized again."""

    code, title = "api_key_changed", "The API key was changed during the request"


class StoreUnavailableError(UnavailableError):
    """The object store does not answer, or denies access."""

    code, title = "store_unavailable", "The object store is not available"


class NotReadyError(UnavailableError):
    """The answer of /readyz while reads or writes are refused, and of what needs more of the
    journal than a standby has read."""

    code, title = "not_ready", "The appliance is not ready"


class FollowerTooSlowError(UnavailableError):
    code, title = "follower_too_slow", "The follower read too slowly"


class ShuttingDownError(UnavailableError):
    code, title = "shutting_down", "The appliance is stopping"


class FencedError(SebError):
    """Another writer has taken over. In fencing mode A our entry can never be stored: side effects
    "none". In mode B it may be part of the new writer's log: "unknown" (docs/FORMAT.md)."""

    code, status, title = "fenced", 503, "Another appliance has taken over this bucket"
    retryable = True
    retry_after_s: int = 5

    def __init__(self, detail: str, *, side_effects: SideEffects = "none", **data: object) -> None:
        super().__init__(detail, **data)
        self.side_effects = side_effects


class OutcomeUnknownError(SebError):
    """The deadline passed during the PUT of the entry: it may still be stored."""

    code = "outcome_unknown"
    status = 504
    title = "Not acknowledged in time; the records may or may not be stored"
    retryable = False


class CorruptObjectError(SebError):
    """Bytes in the bucket or the cache fail a check. They are neither served nor skipped."""

    code, status, title = "corrupt_object", 500, "A stored object is damaged"
    retryable = False
    side_effects: SideEffects = "none"


class InternalError(SebError):
    """A bug. The detail is logged and never shown to a caller."""


# --- answers of an object store: raised in storage/, handled by the journal and the readers ---


class StoreError(SebError):
    """A request to the object store did not succeed. `key` names the object."""

    code, status, title = "store_unavailable", 503, "The object store answered with an error"
    retryable = True

    def __init__(self, detail: str, *, key: str = "", **data: object) -> None:
        super().__init__(detail, **data)
        self.key = key


class ObjectMissingError(StoreError):
    """404 for the object: no such key."""


class ObjectExistsError(StoreError):
    """412: the key of a create-only PUT exists, perhaps from our own unanswered attempt."""


class StoreConflictError(StoreError):
    """409: a race with another request on the same key; retry."""


class StoreUncertainError(StoreError):
    """Timeout, reset, 5xx or 429: the store may have executed the request, or still may."""


class StoreDeniedError(StoreError):
    """401, 403 or no such bucket: an operator must act."""


class StoreClockSkewError(StoreError):
    """403 RequestTimeTooSkewed. `clock_offset_s` = store's clock minus ours, in seconds."""

    def __init__(self, detail: str, *, clock_offset_s: float, key: str = "") -> None:
        super().__init__(detail, key=key)
        self.clock_offset_s = clock_offset_s


class StoreUnsupportedError(StoreError):
    """501: the store does not support this request (create-only PUT on Swift, B2)."""


# --- reasons why `seb serve` cannot start or go on, each with its exit code ---


class StartError(SebError):
    """The appliance cannot start or go on. `detail` is printed on the terminal."""

    exit_code: ClassVar[int] = 1


class BucketInUseError(StartError):
    """The bucket belongs to another appliance; `--take-over` would fence it."""

    exit_code = 73


class StoreUnusableError(StartError):
    """The store fails its probe, or the journal is damaged."""

    exit_code = 74


class StoreAwayError(StoreUnusableError):
    """The store did not answer during the start. A later start may succeed."""

    exit_code = 69


class FencedStartError(StartError):
    """Another appliance took over while this one started."""

    exit_code = 75


class ConfigurationError(StartError):
    """A setting, a file or an argument is wrong."""

    exit_code = 78


class DiskError(ConfigurationError):
    """The disk of the data directory is full or fails. A later start may succeed."""

    exit_code = 1


class NewerReleaseError(ConfigurationError):
    """A newer release wrote this state file or snapshot."""
