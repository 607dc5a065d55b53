"""The requests of one connection, read one after the other."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Final

from seb_appliance import limits
from seb_appliance.protocols.kafka.requests import Request
from seb_appliance.protocols.kafka.wire.codec import read_request
from seb_appliance.protocols.kafka.wire.long_requests import steps_of_request
from seb_appliance.protocols.kafka.wire.repeats import Repeats
from seb_appliance.protocols.kafka.wire.types import BadMessageError, Frame, read_uvarint

HEAD: Final = struct.Struct(">hhih")  # API, version, correlation id, length of the client id
_CLIENT_ID_CHARACTERS: Final = 255  # are kept; a member id begins with it
_LONG_FROM_BYTES: Final = 4 * limits.KIB  # what is shorter is read in less than a millisecond


class RequestReader:
    def __init__(self) -> None:
        self._repeats = Repeats()

    def read(
        self, request: Request, frame: Frame, client_id_bytes: int
    ) -> Generator[None, None, None]:
        """Sets the body of the request, and the client id of its caller. Raises BadMessageError."""
        key, version = request.api.key, request.version
        at = HEAD.size + max(0, client_id_bytes)
        if client_id_bytes >= 0:
            client_id = frame[HEAD.size : at].decode("utf-8", "replace")
            request.caller.client_id = client_id[:_CLIENT_ID_CHARACTERS]
        if request.api.is_flexible(version):
            at = _skip_tags(frame, at)
        if len(frame) < _LONG_FROM_BYTES:
            request.body = read_request(key, version, frame, at)
        else:
            request.body = yield from steps_of_request(key, version, frame, at)
        self._repeats.keep(key, version, frame, at, request.body)

    def forget(self) -> None:
        """What was read, which takes up to 100 KB."""
        self._repeats = Repeats()

    def knows(self, request: Request, frame: Frame) -> bool:
        """Sets the body of a request that is repeated, as `read` would. Raises BadMessageError."""
        body = self._repeats.find(request.api.key, frame)
        if body is None:
            return False
        request.body, request.is_repeated = body, True
        return True


def _skip_tags(frame: Frame, at: int) -> int:
    """The tagged fields of a header; there are none that we need."""
    try:
        count, at = read_uvarint(frame, at)
        for _ in range(frame.count(count, at)):
            _, at = read_uvarint(frame, at)
            length, at = read_uvarint(frame, at)
            at += length
    except IndexError as error:
        raise BadMessageError("a header ends too early") from error
    return at
