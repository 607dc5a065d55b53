"""Limits of the Kafka protocol. The port's number of connections and what settings bound are in the
common limits."""

from __future__ import annotations

from typing import Final

from seb_appliance.limits import KIB, MIB

FIRST_REQUEST_BYTES_MAX: Final = 8 * KIB  # before an API key has come
REQUEST_BYTES_MAX: Final = MIB  # of all but Produce
PRODUCE_BYTES_MAX: Final = 16 * MIB + 64 * KIB
TRANSACTION_MS_MAX: Final = 900_000  # from its first records to its end
TRANSACTIONAL_ID_CHARACTERS_MAX: Final = 256
FETCH_WAIT_MS_MAX: Final = 60_000  # a longer wait is lowered
TRANSACTIONS_MAX: Final = 10_000  # transactional ids
IN_FLIGHT_MAX: Final = 32  # requests of a connection that are not answered
IDLE_S_MAX: Final = 3_600
REPEATS_KEPT_S: Final = 60  # of an idle connection; looked at once a minute
WAITING_BYTES_MAX: Final = 128 * MIB  # in memory, of requests that wait
FETCH_BYTES_MAX: Final = 8 * MIB  # of the records in an answer
FETCH_PARTITIONS_MAX: Final = 2_000
MESSAGE_ELEMENTS_MAX: Final = 10_000  # of all arrays of a request
GROUPS_MAX: Final = 10_000  # that have members
GROUP_MEMBERS_MAX: Final = 1_000
MEMBERS_BYTES_MAX: Final = 64 * MIB  # of all groups
MEMBER_BYTES: Final = 2 * KIB  # memory of a member beside its metadata, measured
GROUP_PROTOCOLS_MAX: Final = 10  # ways of assigning that a member supports
METADATA_BYTES_MAX: Final = 64 * KIB  # of a member, for each of them
ASSIGNMENT_BYTES_MAX: Final = 256 * KIB  # of a member
ASSIGNED_SHOWN_MAX: Final = 2_000  # topics and partitions of a member, read in some 4 ms
SESSION_MS_MIN: Final = 6_000
SESSION_MS_MAX: Final = 1_800_000
REBALANCE_MS_MAX: Final = 24 * 3_600_000  # a longer rebalance timeout is lowered
REBALANCE_DELAYS_MAX: Final = 10  # and no longer than so many times that after the first one
NEW_MEMBER_S_MAX: Final = 300  # for its first generation to begin
