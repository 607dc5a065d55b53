"""Names of deliveries that workers get: nobody can make one up, or use one for another delivery."""

from __future__ import annotations

import hmac
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2s
from typing import Final

from seb_appliance.broker.queues.by_place import Place

_DELIVERY: Final = struct.Struct(">QQQ")  # topic id, offset, lease
_MAC_BYTES: Final = 15
_LENGTH: Final = (_DELIVERY.size + _MAC_BYTES) * 4 // 3


class DeliveryTokens:
    """The secret is drawn on first use after a start: what was given out before is unknown, as its
    lease is."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes

    @cached_property
    def _secret(self) -> bytes:
        return self._random_bytes(32)

    def token(self, queue: bytes, place: Place, lease: int) -> str:
        """`lease` is never given twice, so that it also tells the attempt."""
        delivery = _DELIVERY.pack(*place, lease)
        return urlsafe_b64encode(delivery + self._mac(queue, delivery)).decode()

    def read(self, queue: bytes, token: str) -> tuple[Place, int] | None:
        """The place and the lease; None for what is not a token of this queue."""
        if len(token) != _LENGTH or not token.isascii():
            return None
        try:
            decoded = urlsafe_b64decode(token)
        except ValueError:
            return None
        delivery = decoded[: _DELIVERY.size]
        expected = self._mac(queue, delivery)
        if not hmac.compare_digest(decoded[_DELIVERY.size :], expected):
            return None
        topic_id, offset, lease = _DELIVERY.unpack(delivery)
        return Place(topic_id, offset), lease

    def _mac(self, queue: bytes, delivery: bytes) -> bytes:
        # The queue's name comes last, since the length of what is before it is fixed.
        # BLAKE2 has a key of its own, and takes a quarter of the time of an HMAC.
        return blake2s(delivery + queue, digest_size=_MAC_BYTES, key=self._secret).digest()
