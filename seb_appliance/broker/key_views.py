"""Views of the latest records that are being paged through.

A view shows its topic as of one offset, though records arrive meanwhile: as long as it is in use,
what they supersede is kept for it in the index. Ten minutes after its last use it ends.
"""

from __future__ import annotations

from seb_appliance import limits
from seb_appliance.clock import Clock
from seb_appliance.errors import BadParameterError, OverloadedError


class KeyViews:
    """By topic id, the offsets as of which views are in use, and until when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[int, dict[int, float]] = {}
        self._ended: set[int] = set()  # topics for which rows may be kept that nobody needs
        self.ends = 0  # how often views were ended, because an index began anew

    def begin(self, topic_id: int, as_of: int) -> None:
        """Raises OverloadedError when too many are in use."""
        self._expire()
        if sum(map(len, self._until_s.values())) >= limits.KEY_VIEWS_MAX:
            raise OverloadedError(f"{limits.KEY_VIEWS_MAX} views are being paged through already.")
        self._use(topic_id, as_of)

    def go_on(self, topic_id: int, as_of: int) -> None:
        """Raises BadParameterError when the view has ended."""
        self._expire()
        if as_of not in self._until_s.get(topic_id, ()):
            raise BadParameterError(
                "The cursor is of a view that has ended (a view ends 10 minutes after its last "
                "use, and when the appliance restarts): begin the view again."
            )
        self._use(topic_id, as_of)

    def is_in_use(self, topic_id: int, as_of: int) -> bool:
        return as_of in self._until_s.get(topic_id, ())

    def kept_below(self) -> dict[int, int]:
        """By topic id: what is superseded at a smaller offset has to be kept."""
        self._expire()
        return {topic_id: max(in_use) for topic_id, in_use in self._until_s.items()}

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
        if self._until_s.pop(topic_id, None):
            self._ended.add(topic_id)

    def end_all(self) -> None:
        self.ends += 1
        self._until_s.clear()
        self._ended.clear()

    def _use(self, topic_id: int, as_of: int) -> None:
        until_s = self._clock.monotonic_s() + limits.KEY_VIEW_IDLE_S
        self._until_s.setdefault(topic_id, {})[as_of] = until_s
        self._ended.discard(topic_id)

    def _expire(self) -> None:
        now_s = self._clock.monotonic_s()
        for topic_id, in_use in list(self._until_s.items()):
            for as_of in [as_of for as_of, until_s in in_use.items() if until_s <= now_s]:
                del in_use[as_of]
            if not in_use:
                del self._until_s[topic_id]
                self._ended.add(topic_id)
