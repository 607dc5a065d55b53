"""The stored state of a topic that is a stream of the Durable Streams protocol."""

from __future__ import annotations

import msgspec

from seb_appliance.formats.numbers import FarTime, Whole


class ClosedBy(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The request of an idempotent producer that closed a stream."""

    producer_id: str
    epoch: Whole
    seq: Whole


class StreamFork(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The parent's topic, the requested offset (or the parent's end), and how much after it was
    included."""

    topic: str
    offset: Whole
    sub_offset: Whole


class StreamState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A stream expires after `ttl_s` seconds without a read or append, or at `expires_us`. A closed
    one accepts no records. `last_seq` is the largest Stream-Seq."""

    content_type: str
    ttl_s: Whole | None = None
    expires_us: FarTime | None = None
    closed: bool = False
    closed_by: ClosedBy | None = None
    last_seq: str | None = None
    fork_of: StreamFork | None = None

    @property
    def expires(self) -> bool:
        return self.ttl_s is not None or self.expires_us is not None
