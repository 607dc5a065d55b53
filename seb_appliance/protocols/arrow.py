"""Records as Arrow streams: a range of a topic as columns.

Arrow's readers notice themselves when a stream lacks its end.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from typing import Final

from seb_appliance.api.encoding.answers import ARROW
from seb_appliance.api.encoding.formats import AnswerFormat, Encoding
from seb_appliance.broker.values import ReadResult
from seb_appliance.errors import BadParameterError, NotAcceptableError

_NOT_ARROW: Final = ("wait", "max_bytes", "values")
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow stream


def _check() -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise NotAcceptableError(
            "Arrow needs the package pyarrow, which is not installed on the appliance (pip "
            "install 'seb-appliance[arrow]'). JSON, CSV and record batches do not need it."
        )


async def arrow_encoding(query: dict[str, str]) -> Encoding:
    """`query`: without what is the default. Raises BadParameterError."""
    for name in _NOT_ARROW:
        if name in query:
            raise BadParameterError(
                f"{name} cannot be used with an Arrow stream, which ends at the current log end "
                "and has values as bytes."
            )
    return Encoding(_parts, await asyncio.to_thread(_schema), _END, in_thread=True)


def _schema() -> bytes:
    from seb_appliance.formats import arrow  # here: pyarrow may not be there

    return arrow.encoded_schema()


def _parts(result: ReadResult) -> Iterator[bytes]:
    from seb_appliance.formats import arrow

    if result.slices:
        pieces = [(piece.batch, piece.begin, piece.end) for piece in result.slices]
        yield arrow.encoded_batch(result.topic, pieces)


FORMATS: Final = (AnswerFormat(media_type=ARROW, whole=arrow_encoding, check=_check),)
