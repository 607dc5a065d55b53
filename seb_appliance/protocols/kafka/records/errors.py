"""Why records of a Kafka client are refused."""

from __future__ import annotations

from typing import Final

# Codes of the Kafka protocol, with its names.
DAMAGED: Final = 2  # CORRUPT_MESSAGE
TOO_LARGE: Final = 10  # MESSAGE_TOO_LARGE
OLD_FORMAT: Final = 43  # UNSUPPORTED_FOR_MESSAGE_FORMAT
UNKNOWN_CODEC: Final = 76  # UNSUPPORTED_COMPRESSION_TYPE
INVALID: Final = 87  # INVALID_RECORD


class RecordsError(Exception):
    """`code`: of the Kafka protocol. `text`: a sentence for the client. Nothing was stored."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
