"""Limits of the syslog port."""

from __future__ import annotations

from typing import Final

from seb_appliance.limits import KIB, MIB

BYTES_MAX: Final = 64 * KIB  # of one syslog record
CONNECTIONS_MAX: Final = 500
CONNECTIONS_PER_ADDRESS_MAX: Final = 50
WAITING_BYTES_MAX: Final = 4 * MIB  # of a connection, read and not stored yet
HANDSHAKE_S_MAX: Final = 10  # from a connection to the end of its TLS handshake
UNFINISHED_S_MAX: Final = 60  # for the rest of a message
IDLE_S_MAX: Final = 3_600
