"""gzip and zstd in steps of bounded size, behind one small interface."""

from __future__ import annotations

import zlib
from typing import Final

from backports import zstd

from seb_appliance import limits
from seb_appliance.errors import BadRequestError

STEP_BYTES: Final = limits.MIB
_WINDOW_LOG_MAX: Final = 24  # a frame may make the decoder allocate 16 MiB, as much as a request
_GZIP_WBITS: Final = 31  # gzip only: neither raw deflate nor zlib


class GzipMember:
    """One gzip member. `step` gives at most STEP_BYTES more; BadRequestError for bad input."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(wbits=_GZIP_WBITS)

    @property
    def ended(self) -> bool:
        return self._inflater.eof

    @property
    def rest(self) -> bytes:
        """What follows the member's end."""
        return self._inflater.unused_data

    def step(self, data: bytes) -> bytes:
        """`data`: all of the input at the first step, nothing afterwards."""
        given = self._inflater.unconsumed_tail or data
        try:
            part = self._inflater.decompress(given, STEP_BYTES)
        except zlib.error as error:
            raise BadRequestError(f"The body is not gzip: {error}.") from error
        if not part and not self.ended:
            raise BadRequestError("The body is gzip that was cut short.")
        return part


class ZstdFrame:
    """One zstd frame, likewise."""

    def __init__(self) -> None:
        options = {int(zstd.DecompressionParameter.window_log_max): _WINDOW_LOG_MAX}
        self._inflater = zstd.ZstdDecompressor(options=options)

    @property
    def ended(self) -> bool:
        return self._inflater.eof

    @property
    def rest(self) -> bytes:
        return self._inflater.unused_data

    def step(self, data: bytes) -> bytes:
        try:
            part = self._inflater.decompress(data, max_length=STEP_BYTES)
        except zstd.ZstdError as error:
            raise BadRequestError(f"The body is not zstd: {error}.") from error
        if not part and not self.ended:
            raise BadRequestError("The body is zstd that was cut short.")
        return part
