"""Error codes of the Kafka protocol, and which of them an error of the broker becomes."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from seb_appliance.errors import OverloadedError, SebError, SequenceGapError, ShareExceededError

NO_ROOM: Final = (OverloadedError, ShareExceededError)  # now; wait for it


class ErrorCode(IntEnum):
    """As Kafka numbers them: those that are answered here."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    TRANSACTION_ABORTABLE = 120


class KafkaError(Exception):
    """A refusal of a part of a request, with the code that says so."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


# By the code of an error of the broker.
BY_CODE: Final = {
    "topic_not_found": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "topic_held": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "topic_replaced": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "bad_name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    "unauthenticated": ErrorCode.SASL_AUTHENTICATION_FAILED,
    "forbidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "record_too_large": ErrorCode.MESSAGE_TOO_LARGE,
    "request_too_large": ErrorCode.MESSAGE_TOO_LARGE,
    "bad_batch": ErrorCode.INVALID_RECORD,
    "bad_parameter": ErrorCode.INVALID_TIMESTAMP,
    "offset_expired": ErrorCode.OFFSET_OUT_OF_RANGE,
    "offset_out_of_range": ErrorCode.OFFSET_OUT_OF_RANGE,
    "commit_beyond_end": ErrorCode.OFFSET_OUT_OF_RANGE,
    "sequence_gap": ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    "idempotency_mismatch": ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    "stale_epoch": ErrorCode.INVALID_PRODUCER_EPOCH,
    "overloaded": ErrorCode.REQUEST_TIMED_OUT,
    "share_exceeded": ErrorCode.REQUEST_TIMED_OUT,
    "quota_exceeded": ErrorCode.REQUEST_TIMED_OUT,
    "shutting_down": ErrorCode.REQUEST_TIMED_OUT,
    "not_ready": ErrorCode.REQUEST_TIMED_OUT,
    "api_key_changed": ErrorCode.REQUEST_TIMED_OUT,
    "outcome_unknown": ErrorCode.REQUEST_TIMED_OUT,
    "store_unavailable": ErrorCode.KAFKA_STORAGE_ERROR,
    "corrupt_object": ErrorCode.KAFKA_STORAGE_ERROR,
    "fenced": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "standby": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "topic_differs": ErrorCode.TOPIC_ALREADY_EXISTS,
    "name_held": ErrorCode.TOPIC_ALREADY_EXISTS,
    "stream_closed": ErrorCode.INVALID_RECORD,
    "stale_generation": ErrorCode.ILLEGAL_GENERATION,
    "lease_held": ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    "group_not_found": ErrorCode.GROUP_ID_NOT_FOUND,
    "bad_request": ErrorCode.INVALID_REQUEST,
    "internal": ErrorCode.UNKNOWN_SERVER_ERROR,
}


def code_of(error: SebError, *, of_group: bool = False) -> ErrorCode:
    """The code for an error of the broker. `of_group`: a name and a grant are those of a group."""
    if isinstance(error, SequenceGapError) and error.data.get("expected") == 0:
        # 45 would be fatal to a producer that may go on with a sequence of its own.
        return ErrorCode.UNKNOWN_PRODUCER_ID
    code = BY_CODE.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
    if of_group and code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if of_group and code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return ErrorCode.INVALID_GROUP_ID
    return code
