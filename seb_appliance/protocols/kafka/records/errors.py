"""Why records of a Kafka client are refused."""

from __future__ import annotations

from typing import Final

from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError

CORRUPT_MESSAGE: Final = ErrorCode.CORRUPT_MESSAGE
MESSAGE_TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE
UNSUPPORTED_FOR_MESSAGE_FORMAT: Final = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
UNSUPPORTED_COMPRESSION_TYPE: Final = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
INVALID_RECORD: Final = ErrorCode.INVALID_RECORD


class RecordsError(KafkaError):
    """Nothing was stored."""
