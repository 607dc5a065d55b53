"""Record keys and headers of new records, within their limits."""

from __future__ import annotations

import msgspec

from seb_appliance import limits
from seb_appliance.errors import RecordTooLargeError


def check_key(key: bytes) -> bytes:
    """`key` itself. Raises RecordTooLargeError."""
    if len(key) > limits.RECORD_KEY_BYTES_MAX:
        raise RecordTooLargeError(
            f"A record key has {len(key)} bytes; at most {limits.RECORD_KEY_BYTES_MAX} are allowed."
        )
    return key


def pack_headers(headers: dict[str, bytes]) -> bytes:
    """Record headers as they are stored: a msgpack map, nothing at all for none.

    Raises RecordTooLargeError.
    """
    if not headers:
        return b""
    packed = msgspec.msgpack.encode(headers)
    check_headers(len(headers), len(packed))
    return packed


def check_headers(count: int, size_bytes: int) -> None:
    """Of one record, as stored. Raises RecordTooLargeError."""
    if count > limits.RECORD_HEADERS_MAX or size_bytes > limits.RECORD_HEADERS_BYTES_MAX:
        raise RecordTooLargeError(
            f"A record has {count} headers of {size_bytes} bytes; at most "
            f"{limits.RECORD_HEADERS_MAX} of {limits.RECORD_HEADERS_BYTES_MAX} are allowed."
        )
