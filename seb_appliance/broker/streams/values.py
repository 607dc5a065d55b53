"""What the Durable Streams protocol asks of a topic, and is told: frozen values."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.formats.durable_streams import StreamState

# What a topic is that nobody made a stream.
PLAIN: Final = StreamState("application/octet-stream")


def media_type_of(content_type: str) -> str:
    """In lower case, without parameters: what two content types are compared by."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    """Whether each record is a JSON value, and a read gives a list of them."""
    return media_type_of(content_type) == "application/json"


@dataclass(frozen=True, slots=True)
class StreamView:
    """A topic as a stream, as of the last applied entry."""

    topic: str
    topic_id: int
    state: StreamState
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class WantedFork:
    """The topic to fork, where (None: at its end), and how much of what follows there comes along:
    so many records of a JSON stream, so many bytes of the next record of another."""

    topic: str
    offset: int | None
    sub_offset: int


@dataclass(frozen=True, slots=True)
class WantedStream:
    """A stream to be. What is None is left to the parent of a fork; without one, `content_type` is
    bytes then."""

    content_type: str | None = None
    ttl_s: int | None = None
    expires_us: int | None = None
    closed: bool = False
    fork: WantedFork | None = None

    @property
    def state(self) -> StreamState:
        """Of a stream that is no fork."""
        return StreamState(
            self.content_type or PLAIN.content_type, self.ttl_s, self.expires_us, self.closed
        )

    def is_like(self, there: StreamState) -> bool:
        """Whether a stream is there as it is wanted. What a fork was not asked for may be as it
        is, for it has it from its parent."""
        return self._is_alike(there) and self.closed == there.closed and self._forks(there)

    def _is_alike(self, there: StreamState) -> bool:
        inherits = self.fork is not None and self.ttl_s is None and self.expires_us is None
        if not inherits and (self.ttl_s, self.expires_us) != (there.ttl_s, there.expires_us):
            return False
        if self.content_type is None and self.fork is not None:
            return True
        return media_type_of(self.state.content_type) == media_type_of(there.content_type)

    def _forks(self, there: StreamState) -> bool:
        if self.fork is None or there.fork_of is None:
            return self.fork is None and there.fork_of is None
        return (
            self.fork.topic == there.fork_of.topic
            and self.fork.offset in (None, there.fork_of.offset)
            and self.fork.sub_offset == there.fork_of.sub_offset
        )


@dataclass(frozen=True, slots=True)
class StreamAppend:
    """What goes into a stream: `values` (none only where it is to `close`), and on which terms.
    `content_type` None: nothing is said about it."""

    values: list[bytes]
    content_type: str | None = None
    producer: ProducerStamp | None = None
    seq: str | None = None
    close: bool = False


@dataclass(frozen=True, slots=True)
class StreamAppended:
    """An acknowledged append. `next_offset`: behind its last record. `newest_seq`: the producer's,
    if there was one. `replayed`: it was done before."""

    next_offset: int
    closed: bool
    newest_seq: int | None = None
    replayed: bool = False


# When Durable Streams expire: at a time, or so long after they were last used.
#
# Uses stay in memory, so that a heartbeat costs no PUT. A restart counts as one: a stream may then
# live longer than it was asked to, and never shorter. So it does when the wall clock jumps: the
# log's clock decides. The writer alone hears of uses: at a standby no
# stream goes for want of them.


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
