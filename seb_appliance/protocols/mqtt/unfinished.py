"""Messages without their last acknowledgement, by packet id."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeVar

from seb_appliance.broker.shares import Reservation

_T = TypeVar("_T")
_BYTES: Final = 160  # about what one takes in memory
_FREE: Final = 16  # of them count for nobody: whoever has so many hears of room by their end


class Place(NamedTuple):
    """Of a record."""

    topic_id: int
    offset: int


class Giver(Protocol):
    """A shared subscription."""

    def done(self, place: Place) -> None: ...

    def give_back(self, place: Place) -> None: ...

    def has_room(self, outgoing: Any) -> None: ...


class Sent:
    """A message without its last acknowledgement. `place` None: it is a retained message.
    `is_received`: QoS 2, after PUBREC. `share`: what it belongs to, if not to the session."""

    __slots__ = ("is_received", "place", "qos", "share")

    def __init__(self, qos: int, place: Place | None, share: Giver | None = None) -> None:
        self.qos = qos
        self.place = place
        self.share = share
        self.is_received = False


class Unfinished(dict[int, _T]):
    """In their order. All but the first ones count in `room` (None: nowhere)."""

    room: Reservation | None = None

    def may_grow(self) -> bool:
        """Whether there is memory for one more."""
        if self.room is None:
            return True
        more = (len(self) + 1 - _FREE) * _BYTES - self.room.held
        return more <= 0 or self.room.try_grow(more)

    def drop(self, packet_id: int) -> _T | None:
        found = self.pop(packet_id, None)
        if self.room is not None:
            self.room.shrink_to(max(0, len(self) - _FREE) * _BYTES)
        return found

    def close(self) -> None:
        """The session is over."""
        if self.room is not None:
            self.room.release()
            self.room = None
