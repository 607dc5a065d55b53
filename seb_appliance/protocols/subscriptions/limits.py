"""Limits of subscriptions: of the requests that the appliance sends."""

from __future__ import annotations

from typing import Final

from seb_appliance.limits import KIB, MIB

AT_ONCE_MAX: Final = 512  # requests on their way; the first one of a subscription is free
BODIES_BYTES_MAX: Final = 64 * MIB  # of all of them
CONCURRENCY_MAX: Final = 64  # requests of one subscription at one time
RATE_MAX: Final = 10_000  # requests of one subscription in a second
TIMEOUT_MS_MIN: Final = 1_000
TIMEOUT_MS_MAX: Final = 60_000
CONNECT_S: Final = 5.0  # for each address of a receiver
IDLE_CONNECTIONS_MAX: Final = 256  # to receivers, of all subscriptions
IDLE_S: Final = 10.0  # an idle connection is kept open
CONNECTION_AGE_S_MAX: Final = 300.0  # then the receiver's name is resolved again
ADDRESSES_MAX: Final = 4  # of a receiver that are tried
DISABLE_AFTER_MS_MIN: Final = 3_600_000
DISABLE_AFTER_MS_MAX: Final = 30 * 86_400_000
HEADERS_MAX: Final = 20  # that the owner of a subscription adds
HEADER_LENGTH_MAX: Final = 4_000
ANSWER_HEAD_BYTES_MAX: Final = 16 * KIB
ANSWER_BODY_BYTES_MAX: Final = 16 * KIB  # read; the connection is closed behind it
ANSWER_CHARACTERS_KEPT: Final = 200  # in the log of deliveries
LOG_KEPT: Final = 100  # deliveries of each subscription, in memory
RETRY_AFTER_S_MAX: Final = 3_600.0  # a longer Retry-After counts as this
REST_S_MAX: Final = 60.0  # between attempts while a receiver fails
STOP_S: Final = 5.0  # for requests on their way when the appliance stops
