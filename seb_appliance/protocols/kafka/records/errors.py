"""Why records of a Kafka client are refused."""

from __future__ import annotations

from typing import Final

# Codes of the Kafka protocol.
CORRUPT_MESSAGE: Final = 2
MESSAGE_TOO_LARGE: Final = 10
UNSUPPORTED_FOR_MESSAGE_FORMAT: Final = 43
UNSUPPORTED_COMPRESSION_TYPE: Final = 76
INVALID_RECORD: Final = 87


class RecordsError(Exception):
    """`code`: of the Kafka protocol. `text`: a sentence for the client. Nothing was stored."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
