"""Limits of the Durable Streams protocol."""

from __future__ import annotations

from typing import Final

from seb_appliance.limits import MIB

PATH_CHARACTERS_MAX: Final = 512  # as sent; the limit of topic names is lower
READ_BYTES: Final = 1 * MIB  # of records in one answer; a soft limit
READ_RECORDS: Final = 10_000
POLL_S: Final = 20  # duration of a long poll
LIVE_S: Final = 60  # duration of a live stream; caches in between need an end
SEQ_CHARACTERS_MAX: Final = 256
CONTENT_TYPE_CHARACTERS_MAX: Final = 256
LEASE_MS_MIN: Final = 1_000  # of a subscription of streams
LEASE_MS_MAX: Final = 600_000
TOPICS_MAX: Final = 500_000  # that all subscriptions of streams follow; about 0.4 KB each
WAKE_PAUSE_S_MIN: Final = 1.0  # after a wake that failed; doubles
WAKE_PAUSE_S_MAX: Final = 60.0
CURSOR_INTERVAL_S: Final = 20
CURSOR_JITTER_S_MAX: Final = 3_600
