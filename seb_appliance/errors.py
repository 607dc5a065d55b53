"""The error tree: every error knows its code, its HTTP status and what a caller may do next.

`retryable` says that the same request may succeed later. `side_effects` says whether anything may
have happened: "none" is a promise, "unknown" means that the effect may exist or may still come.
The codes are the ones of docs/ERRORS.md; they are stable.
"""

from __future__ import annotations

import copy
from typing import ClassVar, Literal, Self

SideEffects = Literal["none", "unknown"]


class SebError(Exception):
    """Base of all our errors. `detail` is one sentence that tells the reader what to do.

    Keyword data becomes members of the problem document (and of `self.data`).
    """

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
        """A copy without a traceback: one failure is told to many callers."""
        return copy.copy(self).with_traceback(None)


# --- what a client sent ---


class RefusedError(SebError):
    """The request was refused and changed nothing; sent again unchanged it is refused again."""

    status = 400
    retryable = False
    side_effects: SideEffects = "none"


class BadRequestError(RefusedError):
    code = "bad_request"
    title = "Bad request"


class BadJsonError(RefusedError):
    code = "bad_json"
    title = "Not the JSON that is expected here"


class BadBatchError(RefusedError):
    """Bytes that are not a valid record batch, or a decoder's limit was passed."""

    code = "bad_batch"
    title = "Not a valid record batch"


class BadCloudEventError(RefusedError):
    code = "bad_cloud_event"
    title = "Not a CloudEvent of version 1.0"


class BadParameterError(RefusedError):
    code = "bad_parameter"
    title = "A query parameter or header is wrong"


class BadNameError(RefusedError):
    code = "bad_name"
    title = "Not a name"


class UnauthenticatedError(RefusedError):
    code = "unauthenticated"
    status = 401
    title = "No valid API key"


class ForbiddenError(RefusedError):
    code = "forbidden"
    status = 403
    title = "The API key has no grant for this"


class NotFoundError(RefusedError):
    code = "not_found"
    status = 404
    title = "No such resource"


class TopicNotFoundError(NotFoundError):
    code = "topic_not_found"
    title = "No such topic"


class TopicHeldError(TopicNotFoundError):
    """The topic was deleted while it had forks: its name stays taken until the last of them goes,
    and they still read what they share with it."""

    code = "topic_held"
    status = 410
    title = "The topic was deleted, and has forks"


class GroupNotFoundError(NotFoundError):
    code = "group_not_found"
    title = "No such consumer group"


class ApiKeyNotFoundError(NotFoundError):
    code = "api_key_not_found"
    title = "No such API key"


class RecordNotFoundError(NotFoundError):
    code = "record_not_found"
    title = "No such record"


class RecordKeyNotFoundError(NotFoundError):
    """No record has this record key, or the newest one is a tombstone; `indexed_offset` tells up to
    which offset that is known."""

    code = "record_key_not_found"
    title = "No live record has this record key"


class MethodNotAllowedError(RefusedError):
    code = "method_not_allowed"
    status = 405
    title = "Method not allowed here"


class TransferCodingError(RefusedError):
    code = "transfer_coding_unsupported"
    status = 501
    title = "Transfer coding not supported"


class NotAcceptableError(RefusedError):
    code = "not_acceptable"
    status = 406
    title = "None of the accepted media types can be served"


class RequestTimeoutError(RefusedError):
    code = "request_timeout"
    status = 408
    title = "The request did not arrive in time"
    retryable = True


class TopicDiffersError(RefusedError):
    code = "topic_differs"
    status = 409
    title = "The topic exists with other settings"


class TopicReplacedError(RefusedError):
    """The topic that is meant was deleted, and another one has its name."""

    code = "topic_replaced"
    status = 409
    title = "Another topic has this name now"


class StreamConflictError(RefusedError):
    code = "stream_conflict"
    status = 409
    title = "The stream is not what the request takes it for"


class StreamClosedError(RefusedError):
    """Of the Durable Streams protocol; `log_end_offset` tells where the stream ended."""

    code = "stream_closed"
    status = 409
    title = "The stream is closed"


class NameHeldError(RefusedError):
    code = "name_held"
    status = 409
    title = "The name is that of a deleted topic with forks"


class ForkRefusedError(RefusedError):
    """The fork would be one too many, or too deep; `limit` says which number of them there may
    be. Or it would begin within what compaction went over: `base_offset` and `next_offset` (or
    any offset outside them) are possible."""

    code = "fork_refused"
    status = 409
    title = "The topic cannot be forked"


class LastAdminKeyError(RefusedError):
    code = "last_admin_key"
    status = 409
    title = "The last admin key cannot be taken away"


class CommitBeyondEndError(RefusedError):
    code = "commit_beyond_end"
    title = "The offset is beyond the log end"


class OffsetConflictError(RefusedError):
    """A compare-and-set found something else; `committed` tells what is there."""

    code = "offset_conflict"
    status = 409
    title = "The committed offset is not the expected one"


class CommitBackwardError(RefusedError):
    code = "commit_backward"
    status = 409
    title = "The commit would move an offset back"


class StaleGenerationError(RefusedError):
    code = "stale_generation"
    status = 409
    title = "The lease of this consumer is not in force"


class LeaseHeldError(RefusedError):
    code = "lease_held"
    status = 409
    title = "Somebody else holds the lease of this group"


class KeyIndexOffError(RefusedError):
    """The topic's setting `key_index` is `none`, or `latest` where `history` is needed."""

    code = "key_index_off"
    status = 409
    title = "The topic's record keys are not indexed"


class StandbyError(RefusedError):
    """`epoch` and `writer` name who writes (its address is not in the bucket)."""

    code = "standby"
    status = 409
    title = "This appliance follows another one, and takes no writes"


class StaleEpochError(RefusedError):
    code = "stale_epoch"
    status = 403
    title = "A newer epoch of this producer is in force"


class SequenceGapError(RefusedError):
    """`expected` and `received` tell which seq was missed."""

    code = "sequence_gap"
    status = 409
    title = "The producer's seq does not follow its last one"


class CompactionRefusedError(RefusedError):
    code = "compaction_refused"
    status = 409
    title = "This cannot be compacted elsewhere, or not be put in force"


class CompactionNotFoundError(RefusedError):
    code = "compaction_not_found"
    status = 404
    title = "No such compaction is under way"


class ImportRefusedError(RefusedError):
    """An old log cannot be imported, or not to its end; nothing of what is wrong with it was."""

    code = "import_refused"
    title = "Not a log that can be imported"


class ExportRefusedError(RefusedError):
    """Something that the format cannot hold, or a place that holds something else."""

    code = "export_refused"
    title = "Not what this format can hold"


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
    code = "offset_expired"
    status = 410
    title = "The offset is below the log start"


class OffsetOutOfRangeError(RefusedError):
    code = "offset_out_of_range"
    status = 416
    title = "The offset is beyond the log end"


class RecordTooLargeError(RefusedError):
    code = "record_too_large"
    status = 413
    title = "A record is too large"


class RequestTooLargeError(RefusedError):
    code = "request_too_large"
    status = 413
    title = "The request is too large"


class UnsupportedMediaTypeError(RefusedError):
    code = "unsupported_media_type"
    status = 415
    title = "The media type is not supported here"


class HeadersTooLargeError(RefusedError):
    code = "headers_too_large"
    status = 431
    title = "The request headers are too large"


# --- what the appliance cannot do now ---


class UnavailableError(SebError):
    """Nothing happened; the same request may succeed later (`retry_after_s`)."""

    status = 503
    retryable = True
    side_effects: SideEffects = "none"
    retry_after_s: int = 1


class OverloadedError(UnavailableError):
    code = "overloaded"
    title = "Too much is waiting for the bucket"


class ShareExceededError(UnavailableError):
    """One API key holds its share of something that all API keys use together. `share`: its name
    in `broker/shares.py`; `held` and `limit`: in its unit."""

    code = "share_exceeded"
    status = 429
    title = "The API key holds its share of a common resource"


class QuotaExceededError(UnavailableError):
    """The API key used up what it may use a second; `retry_after_s` says when there is more."""

    code = "quota_exceeded"
    status = 429
    title = "The API key's quota is used up"

    def __init__(self, detail: str, *, retry_after_s: int = 1, **data: object) -> None:
        super().__init__(detail, **data)
        self.retry_after_s = retry_after_s


class ApiKeyChangedError(UnavailableError):
    """The API key lost a grant while the request was under way; the next try is judged anew."""

    code = "api_key_changed"
    title = "The API key was changed while the request was under way"


class StoreUnavailableError(UnavailableError):
    """The object store does not answer, or refuses us."""

    code = "store_unavailable"
    title = "The object store is not available"


class NotReadyError(UnavailableError):
    """The answer of /readyz while reads or writes are refused."""

    code = "not_ready"
    title = "The appliance is not ready"


class FollowerTooSlowError(UnavailableError):
    code = "follower_too_slow"
    title = "The follower took nothing for too long"


class ShuttingDownError(UnavailableError):
    code = "shutting_down"
    title = "The appliance is stopping"


class FencedError(SebError):
    """Another writer has taken over. In fencing mode A ours can never land: side effects "none";
    in mode B the entry may be part of the new writer's log: "unknown" (fencing, docs/FORMAT.md)."""

    code = "fenced"
    status = 503
    title = "Another appliance has taken over this bucket"
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
    """Bytes in the bucket or in the cache fail a check. Never served, never stepped over."""

    code = "corrupt_object"
    status = 500
    title = "A stored object is damaged"
    retryable = False
    side_effects: SideEffects = "none"


class InternalError(SebError):
    """A bug of ours. The detail is kept for the log, never shown to a caller."""


# --- answers of an object store (storage/ raises them, the journal and the readers handle them) ---


class StoreError(SebError):
    """A request to the object store did not succeed. `key` names the object."""

    code = "store_unavailable"
    status = 503
    title = "The object store answered with an error"
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
