"""What is stored of a topic that is a stream of the Durable Streams protocol."""

from __future__ import annotations

import msgspec

from seb_appliance.formats.numbers import FarTime, Whole


class ClosedBy(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The request of an idempotent producer that closed a stream."""

    producer_id: str
    epoch: Whole
    seq: Whole


class StreamFork(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a stream is a fork of: the parent's topic, the offset that was named, or the end that it
    had, and how much of what follows there came along."""

    topic: str
    offset: Whole
    sub_offset: Whole


class StreamState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What makes a topic such a stream. It is gone after `ttl_s` seconds
    without a read or append, or at `expires_us`; a closed one takes no records, whoever sends them;
    `last_seq` is the largest Stream-Seq."""

    content_type: str
    ttl_s: Whole | None = None
    expires_us: FarTime | None = None
    closed: bool = False
    closed_by: ClosedBy | None = None
    last_seq: str | None = None
    fork_of: StreamFork | None = None

    @property
    def expires(self) -> bool:
        """Whether its time may be up one day."""
        return self.ttl_s is not None or self.expires_us is not None
