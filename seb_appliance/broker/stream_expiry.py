"""When Durable Streams expire: at a time, or so long after they were last used.

Uses stay in memory, so that a heartbeat costs no PUT. A restart counts as one: a stream may then
live longer than it was asked to, and never shorter. So it does when the wall clock jumps: the
log's clock decides. The writer alone hears of uses: at a standby no
stream goes for want of them.
"""

from __future__ import annotations

from collections.abc import Container

from seb_appliance.broker.log_clock import LogClock
from seb_appliance.formats.durable_streams import StreamState


class StreamExpiry:
    def __init__(self, clock: LogClock) -> None:
        self.knows_uses = False  # from `Streams.start` on
        self._clock = clock
        self._used_s: dict[int, float] = {}  # by topic id, of those that have a time to live

    def touch(self, topic_id: int, state: StreamState) -> None:
        """It was read or appended to."""
        if state.ttl_s is not None and self.knows_uses:
            self._used_s[topic_id] = self._clock.monotonic_s()

    def is_over(self, topic_id: int, state: StreamState, *, in_use: bool = False) -> bool:
        """Whether the stream's time is up. `in_use`: it is used right now."""
        if state.expires_us is not None and self._clock.wall_us() >= state.expires_us:
            return True
        if state.ttl_s is None or in_use or not self.knows_uses:
            return False
        now_s = self._clock.monotonic_s()
        # One that was not heard of since the start is used now.
        return now_s - self._used_s.setdefault(topic_id, now_s) >= state.ttl_s

    def forget(self, living: Container[int]) -> None:
        """All but the topics that are there."""
        self._used_s = {i: used_s for i, used_s in self._used_s.items() if i in living}
