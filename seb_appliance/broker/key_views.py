"""Views of the latest records that are being paged through.

A view shows its topic as of one offset, though records arrive meanwhile: as long as it is in use,
what they supersede is kept for it in the index. Ten minutes after its last use it ends.
"""

from __future__ import annotations

from seb_appliance import limits
from seb_appliance.broker.shares import AllShares
from seb_appliance.clock import Clock
from seb_appliance.errors import BadParameterError


class KeyViews:
    """By topic id, the offsets as of which views are in use, until when, and who began them."""

    def __init__(self, clock: Clock, shares: AllShares) -> None:
        self._clock = clock
        self._shares = shares.declare(
            "key_views", limits.KEY_VIEWS_MAX, "views that are being paged through"
        )
        self._in_use: dict[int, dict[int, tuple[float, str]]] = {}
        self._ended: set[int] = set()  # topics for which rows may be kept that nobody needs
        self.ends = 0  # how often views were ended, because an index began anew

    def begin(self, topic_id: int, as_of: int, owner: str) -> None:
        """Raises ShareExceededError and OverloadedError when too many are in use."""
        self._expire()
        if not self.is_in_use(topic_id, as_of):
            self._shares.take(owner, 1)
            self._in_use.setdefault(topic_id, {})[as_of] = (0.0, owner)
        self._use(topic_id, as_of)

    def go_on(self, topic_id: int, as_of: int) -> None:
        """Raises BadParameterError when the view has ended."""
        self._expire()
        if not self.is_in_use(topic_id, as_of):
            raise BadParameterError(
                "The cursor is of a view that has ended (a view ends 10 minutes after its last "
                "use, and when the appliance restarts): begin the view again."
            )
        self._use(topic_id, as_of)

    def is_in_use(self, topic_id: int, as_of: int) -> bool:
        return as_of in self._in_use.get(topic_id, ())

    def kept_below(self) -> dict[int, int]:
        """By topic id: what is superseded at a smaller offset has to be kept."""
        self._expire()
        return {topic_id: max(in_use) for topic_id, in_use in self._in_use.items()}

    def ended(self, topic_id: int) -> bool:
        """Whether the last view of the topic has ended since this was asked."""
        self._expire()
        if topic_id not in self._ended:
            return False
        self._ended.discard(topic_id)
        return True

    def end(self, topic_id: int) -> None:
        """End the views of a topic, whose index begins anew."""
        self.ends += 1
        ended = self._in_use.pop(topic_id, None)
        if ended:
            self._ended.add(topic_id)
            for _, owner in ended.values():
                self._shares.give_back(owner, 1)

    def end_all(self) -> None:
        for topic_id in list(self._in_use):
            self.end(topic_id)
        self.ends += 1
        self._ended.clear()

    def _use(self, topic_id: int, as_of: int) -> None:
        until_s = self._clock.monotonic_s() + limits.KEY_VIEW_IDLE_S
        in_use = self._in_use[topic_id]
        in_use[as_of] = (until_s, in_use[as_of][1])
        self._ended.discard(topic_id)

    def _expire(self) -> None:
        now_s = self._clock.monotonic_s()
        for topic_id, in_use in list(self._in_use.items()):
            for as_of, (until_s, owner) in list(in_use.items()):
                if until_s <= now_s:
                    del in_use[as_of]
                    self._shares.give_back(owner, 1)
            if not in_use:
                del self._in_use[topic_id]
                self._ended.add(topic_id)
