"""Decompression of the records of a batch, bounded by the room that there is for them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Final

from seb_appliance import zstd
from seb_appliance.formats.columns import Bytes
from seb_appliance.limits import KIB
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError

_GZIP_WBITS: Final = 31
_ZSTD_WINDOW_LOG_MAX: Final = 24  # a frame may make the decoder allocate 16 MiB
_LZ4_RATIO_MAX: Final = 255  # a byte of a block stands for no more
_LZ4_FULL: Final = "failed to write whole buffer"
# Java's framing of snappy blocks; other clients send one bare block.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEAD_BYTES: Final = 16
_XERIAL_BLOCK_BYTES: Final = struct.Struct(">i")
_XERIAL_BLOCKS_FREE: Final = 64  # however small; the others have on average
_XERIAL_BLOCK_BYTES_MIN: Final = KIB  # the smallest block size that can be set


def inflate(codec: int, stored: Bytes, max_bytes: int) -> Bytes:
    """`stored` without its compression. It allocates about `max_bytes` at most, and is thread-safe.

    Raises KafkaError: MESSAGE_TOO_LARGE if it has more than `max_bytes`, INVALID_RECORD if it does
    not decode, UNSUPPORTED_COMPRESSION_TYPE.
    """
    try:
        decode = _DECODERS[codec]
    except KeyError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Compression type {codec} is not known."
        ) from None
    try:
        return decode(stored, max_bytes)
    except (zlib.error, zstd.ZstdError, ValueError) as error:
        raise _undecodable(str(error)) from error


def _gunzip(stored: Bytes, max_bytes: int) -> Bytes:
    inflater = zlib.decompressobj(_GZIP_WBITS)
    body = inflater.decompress(stored, max_bytes + 1)
    return _whole(body, max_bytes, inflater.eof, bool(inflater.unused_data))


def _unzstd(stored: Bytes, max_bytes: int) -> Bytes:
    options = {int(zstd.DecompressionParameter.window_log_max): _ZSTD_WINDOW_LOG_MAX}
    inflater = zstd.ZstdDecompressor(options=options)
    body = inflater.decompress(stored, max_bytes + 1)
    return _whole(body, max_bytes, inflater.eof, bool(inflater.unused_data))


def _whole(body: bytes, max_bytes: int, is_ended: bool, is_followed: bool) -> bytes:
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    if not is_ended:
        raise _undecodable("the data ends too early")
    if is_followed:
        raise _undecodable("bytes follow the compressed data")
    return body


def _unsnappy(stored: Bytes, max_bytes: int) -> Bytes:
    if stored[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        return _unsnappy_blocks(stored, max_bytes)
    return _unsnappy_block(stored, max_bytes)


def _unsnappy_blocks(stored: Bytes, max_bytes: int) -> bytes:
    if len(stored) < _XERIAL_HEAD_BYTES:
        raise _undecodable("the data ends too early")
    blocks: list[Bytes] = []
    blocks_max = _XERIAL_BLOCKS_FREE + max_bytes // _XERIAL_BLOCK_BYTES_MIN
    left_bytes = max_bytes
    at = _XERIAL_HEAD_BYTES
    while at < len(stored):
        if len(stored) - at < _XERIAL_BLOCK_BYTES.size:
            raise _undecodable("the data ends too early")
        (length,) = _XERIAL_BLOCK_BYTES.unpack_from(stored, at)
        at += _XERIAL_BLOCK_BYTES.size
        if not 0 <= length <= len(stored) - at:
            raise _undecodable(f"a block of {length} bytes, {len(stored) - at} are there")
        if len(blocks) == blocks_max:
            raise _undecodable(f"more than {blocks_max} blocks")
        try:
            blocks.append(_unsnappy_block(stored[at : at + length], left_bytes))
        except KafkaError as error:
            raise (
                _too_large(max_bytes) if error.code == ErrorCode.MESSAGE_TOO_LARGE else error
            ) from None
        left_bytes -= len(blocks[-1])
        at += length
    return b"".join(blocks)


def _unsnappy_block(stored: Bytes, max_bytes: int) -> Bytes:
    cramjam = _cramjam()
    try:
        size_bytes = cramjam.snappy.decompress_raw_len(stored)
        if size_bytes > max_bytes:
            raise _too_large(max_bytes)
        body = bytearray(size_bytes)
        if size_bytes and cramjam.snappy.decompress_raw_into(stored, body) != size_bytes:
            raise _undecodable("a snappy block has another length than it says")
    except cramjam.DecompressionError as error:
        raise _undecodable(str(error)) from error
    return memoryview(body)


def _unlz4(stored: Bytes, max_bytes: int) -> Bytes:
    cramjam = _cramjam()
    room_bytes = min(max_bytes, len(stored) * _LZ4_RATIO_MAX)
    body = bytearray(room_bytes + 1)  # pages of it that stay untouched take no memory
    try:
        size_bytes = cramjam.lz4.decompress_into(stored, body)
    except cramjam.DecompressionError as error:
        if _LZ4_FULL in str(error):
            raise _too_large(max_bytes) from error
        raise _undecodable(str(error)) from error
    if size_bytes > max_bytes:
        raise _too_large(max_bytes)
    return memoryview(body)[:size_bytes]


def _cramjam() -> ModuleType:
    """Raises KafkaError where it is not installed: gzip and zstd need nothing more."""
    try:
        import cramjam  # only where clients use these two
    except ImportError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            "This appliance lacks the decoders of snappy and lz4.",
        ) from None
    return cramjam


def _undecodable(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"The compressed records do not decode: {why}.")


def _too_large(max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"The records inflate to more than {max_bytes} bytes."
    )


_DECODERS: Final[dict[int, Callable[[Bytes, int], Bytes]]] = {
    1: _gunzip,
    2: _unsnappy,
    3: _unlz4,
    4: _unzstd,
}
