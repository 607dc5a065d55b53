"""Every error: its code, its HTTP status and what a caller may do next.

`retryable`: the same request may succeed later. `side_effects`: "none" guarantees that nothing
happened, "unknown" means that the request may have taken effect or still may. The codes are stable;
docs/ERRORS.md lists them.
"""

from __future__ import annotations

import copy
from typing import ClassVar, Literal, Self

SideEffects = Literal["none", "unknown"]


class SebError(Exception):
    """Base of all errors. `detail` is one sentence that says what to do; `data` becomes members of
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
        """A copy without a traceback, since one failure is raised in many callers."""
        return copy.copy(self).with_traceback(None)


# --- what a client sent ---


class RefusedError(SebError):
    """The request was refused and changed nothing; sent again unchanged it is refused again."""

    status = 400
    retryable = False
    side_effects: SideEffects = "none"


class BadRequestError(RefusedError):
    code, title = "bad_request", "Bad request"


class BadJsonError(RefusedError):
    code, title = "bad_json", "Not the JSON that is expected here"


class BadBatchError(RefusedError):
    """Bytes that are not a valid record batch, or a decoder's limit was passed."""

    code, title = "bad_batch", "Not a valid record batch"


class BadCloudEventError(RefusedError):
    code, title = "bad_cloud_event", "Not a CloudEvent of version 1.0"


class BadParameterError(RefusedError):
    code, title = "bad_parameter", "A query parameter or header is wrong"


class BadNameError(RefusedError):
    code, title = "bad_name", "Not a name"


class UnauthenticatedError(RefusedError):
    code, status, title = "unauthenticated", 401, "No valid API key"


class ForbiddenError(RefusedError):
    code, status, title = "forbidden", 403, "The API key has no grant for this"


class NotFoundError(RefusedError):
    code, status, title = "not_found", 404, "No such resource"


class TopicNotFoundError(NotFoundError):
    code, title = "topic_not_found", "No such topic"


class TopicHeldError(TopicNotFoundError):
    """The topic was deleted while it had forks: its name stays taken until the last of them goes,
    and they still read what they share with it."""

    code, status, title = "topic_held", 410, "The topic was deleted, and has forks"


class GroupNotFoundError(NotFoundError):
    code, title = "group_not_found", "No such consumer group"


class ApiKeyNotFoundError(NotFoundError):
    code, title = "api_key_not_found", "No such API key"


class RecordNotFoundError(NotFoundError):
    code, title = "record_not_found", "No such record"


class RecordKeyNotFoundError(NotFoundError):
    """No record has this record key, or the newest one is a tombstone; `indexed_offset` tells up to
    which offset that is known."""

    code, title = "record_key_not_found", "No live record has this record key"


class MethodNotAllowedError(RefusedError):
    code, status, title = "method_not_allowed", 405, "Method not allowed here"


class TransferCodingError(RefusedError):
    code, status, title = "transfer_coding_unsupported", 501, "Transfer coding not supported"


class NotAcceptableError(RefusedError):
    code, status, title = "not_acceptable", 406, "None of the accepted media types can be served"


class RequestTimeoutError(RefusedError):
    code, status, title = "request_timeout", 408, "The request did not arrive in time"
    retryable = True


class TopicDiffersError(RefusedError):
    code, status, title = "topic_differs", 409, "The topic exists with other settings"


class TopicReplacedError(RefusedError):
    """The topic that is meant was deleted, and another one has its name."""

    code, status, title = "topic_replaced", 409, "Another topic has this name now"


class StreamConflictError(RefusedError):
    code, status, title = "stream_conflict", 409, "The stream is not what the request takes it for"


class StreamClosedError(RefusedError):
    """Of the Durable Streams protocol; `log_end_offset` tells where the stream ended."""

    code, status, title = "stream_closed", 409, "The stream is closed"


class NameHeldError(RefusedError):
    code, status, title = "name_held", 409, "The name is that of a deleted topic with forks"


class ForkRefusedError(RefusedError):
    """The fork would be one too many, or too deep; `limit` says which number of them there may
    be. Or it would begin within what compaction went over: `base_offset` and `next_offset` (or
    any offset outside them) are possible."""

    code, status, title = "fork_refused", 409, "The topic cannot be forked"


class LastAdminKeyError(RefusedError):
    code, status, title = "last_admin_key", 409, "The last admin key cannot be taken away"


class CommitBeyondEndError(RefusedError):
    code, title = "commit_beyond_end", "The offset is beyond the log end"


class OffsetConflictError(RefusedError):
    """A compare-and-set found something else; `committed` tells what is there."""

    code, status, title = "offset_conflict", 409, "The committed offset is not the expected one"


class CommitBackwardError(RefusedError):
    code, status, title = "commit_backward", 409, "The commit would move an offset back"


class StaleGenerationError(RefusedError):
    code, status, title = "stale_generation", 409, "The lease of this consumer is not in force"


class LeaseHeldError(RefusedError):
    code, status, title = "lease_held", 409, "Somebody else holds the lease of this group"


class KeyIndexOffError(RefusedError):
    """The topic's setting `key_index` is `none`, or `latest` where `history` is needed."""

    code, status, title = "key_index_off", 409, "The topic's record keys are not indexed"


class StandbyError(RefusedError):
    """`epoch` and `writer` name who writes (its address is not in the bucket)."""

    code, status, title = "standby", 409, "This appliance follows another one, and takes no writes"


class StaleEpochError(RefusedError):
    code, status, title = "stale_epoch", 403, "A newer epoch of this producer is in force"


class SequenceGapError(RefusedError):
    """`expected` and `received` tell which seq was missed."""

    code, status, title = "sequence_gap", 409, "The producer's seq does not follow its last one"


class CompactionRefusedError(RefusedError):
    code = "compaction_refused"
    status = 409
    title = "This cannot be compacted elsewhere, or not be put in force"


class CompactionNotFoundError(RefusedError):
    code, status, title = "compaction_not_found", 404, "No such compaction is under way"


class ImportRefusedError(RefusedError):
    """An old log cannot be imported, or not to its end; nothing of what is wrong with it was."""

    code, title = "import_refused", "Not a log that can be imported"


class ExportRefusedError(RefusedError):
    """Something that the format cannot hold, or a place that holds something else."""

    code, title = "export_refused", "Not what this format can hold"


class PreconditionFailedError(RefusedError):
    """`log_end_offset` tells where the log ends."""

    code = "precondition_failed"
    status = 412
    title = "The log does not end where it was expected to"


class IdempotencyMismatchError(RefusedError):
    code = "idempotency_mismatch"
    status = 422
    title = "Another request was made with this Idempotency-Key or seq"


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


# --- what the appliance cannot do now ---


class UnavailableError(SebError):
    """Nothing happened; the same request may succeed later (`retry_after_s`)."""

    status = 503
    retryable = True
    side_effects: SideEffects = "none"
    retry_after_s: int = 1


class OverloadedError(UnavailableError):
    code, title = "overloaded", "Too much is waiting for the bucket"


class ShareExceededError(UnavailableError):
    """One API key holds its share of something that all API keys use together. `share`: its name
    in `broker/shares.py`; `held` and `limit`: in its unit."""

    code, status, title = "share_exceeded", 429, "The API key holds its share of a common resource"


class QuotaExceededError(UnavailableError):
    """The API key used up what it may use a second; `retry_after_s` says when there is more."""

    code, status, title = "quota_exceeded", 429, "The API key's quota is used up"

    def __init__(self, detail: str, *, retry_after_s: int = 1, **data: object) -> None:
        super().__init__(detail, **data)
        self.retry_after_s = retry_after_s


class ApiKeyChangedError(UnavailableError):
    """The API key lost a grant while the request was under way; the next try is judged anew."""

    code, title = "api_key_changed", "The API key was changed while the request was under way"


class StoreUnavailableError(UnavailableError):
    """The object store does not answer, or refuses us."""

    code, title = "store_unavailable", "The object store is not available"


class NotReadyError(UnavailableError):
    """The answer of /readyz while reads or writes are refused."""

    code, title = "not_ready", "The appliance is not ready"


class FollowerTooSlowError(UnavailableError):
    code, title = "follower_too_slow", "The follower took nothing for too long"


class ShuttingDownError(UnavailableError):
    code, title = "shutting_down", "The appliance is stopping"


class FencedError(SebError):
    """Another writer has taken over. In fencing mode A ours can never land: side effects "none";
    in mode B the entry may be part of the new writer's log: "unknown" (fencing, docs/FORMAT.md)."""

    code, status, title = "fenced", 503, "Another appliance has taken over this bucket"
    retryable = True
    retry_after_s: int = 5

    def __init__(self, detail: str, *, side_effects: SideEffects = "none", **data: object) -> None:
        super().__init__(detail, **data)
        self.side_effects = side_effects


class OutcomeUnknownError(SebError):
    """The caller's deadline passed while its entry was on its way: it may be stored yet."""

    code = "outcome_unknown"
    status = 504
    title = "Not acknowledged in time; the records may or may not be stored"
    retryable = False


class CorruptObjectError(SebError):
    """Bytes in the bucket or in the cache fail a check. They are never served nor skipped."""

    code, status, title = "corrupt_object", 500, "A stored object is damaged"
    retryable = False
    side_effects: SideEffects = "none"


class InternalError(SebError):
    """A bug. The detail is logged and never shown to a caller."""


# --- answers of an object store (storage/ raises them, the journal and the readers handle them) ---


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
    """412: a create-only PUT found the key taken (perhaps by our own lost attempt)."""


class StoreConflictError(StoreError):
    """409: a race with another request on the same key; try the same again."""


class StoreUncertainError(StoreError):
    """Time-out, reset, 5xx, 429 and the like: it may have been carried out, or may yet be."""


class StoreDeniedError(StoreError):
    """401, 403, no such bucket: an operator is needed; trying again at once does not help."""


class StoreClockSkewError(StoreError):
    """403 RequestTimeTooSkewed. `clock_offset_s` = store's clock minus ours, in seconds."""

    def __init__(self, detail: str, *, clock_offset_s: float, key: str = "") -> None:
        super().__init__(detail, key=key)
        self.clock_offset_s = clock_offset_s


class StoreUnsupportedError(StoreError):
    """501: the store does not know this kind of request (create-only PUT on Swift, B2)."""


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
    """The store did not answer during the whole start. No action is needed: a later start may
    reach it."""

    exit_code = 69


class FencedStartError(StartError):
    """Another appliance took over while this one started."""

    exit_code = 75


class ConfigurationError(StartError):
    """A setting, a file or an argument is wrong."""

    exit_code = 78


class NewerReleaseError(ConfigurationError):
    """A state file, or a snapshot of one, that a newer release than this one wrote."""
