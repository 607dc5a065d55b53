"""Limits of MQTT."""

from __future__ import annotations

from typing import Final

from seb_appliance.limits import KIB, MIB

CONNECT_BYTES_MAX: Final = 128 * KIB
PACKET_BYTES_MAX: Final = MIB
PROPERTIES_MAX: Final = 200  # of one packet
FILTERS_MAX: Final = 1_000  # of one packet
CLIENT_ID_BYTES_MAX: Final = 256
TOPIC_BYTES_MAX: Final = KIB  # of a topic or a filter
LEVELS_MAX: Final = 32
ROUTES_MAX: Final = 100  # in the setting
TOPICS_MAX: Final = 1_000  # with messages; clients make no more by routes
TEXT_CHARACTERS_MAX: Final = 16_000  # of a header that is sent as a text
TOPICS_KNOWN_MAX: Final = 100  # of a connection, whose grants are remembered
ALIASES_MAX: Final = 100  # of a connection
IN_FLIGHT_MAX: Final = 1_000  # unacknowledged messages of a connection, each way
IN_FLIGHT_BYTES_MAX: Final = 4 * MIB  # of a connection, read and not stored yet
KEEP_ALIVE_S_MAX: Final = 3_600
SUBSCRIPTIONS_MAX: Final = 10_000
SHARES_MAX: Final = 1_000  # groups of clients that share a subscription; each reads the log
SESSION_EXPIRY_S_MAX: Final = 30 * 24 * 3_600  # a longer one is lowered
SESSION_BYTES_MAX: Final = 64 * KIB  # of the subscriptions of a session
SESSIONS_BYTES_MAX: Final = 64 * MIB
WILLS_BYTES_MAX: Final = 64 * MIB
SESSION_SWEEP_S: Final = 60  # between two looks for sessions that have expired
COMMIT_S: Final = 1  # from an acknowledgement to the commit
RETAINED_MAX: Final = 200_000  # messages
RETAINED_BYTES_MAX: Final = 64 * MIB
RETAINED_LOOKUPS_MAX: Final = 1_000  # of a connection, that wait
