"""Limits of the ports of MQTT and Kafka."""

from __future__ import annotations

from typing import Final

from seb_appliance.limits import KIB, MIB

CONNECT_S_MAX: Final = 10  # from the connection to an API key
UNFINISHED_S_MAX: Final = 60  # for the rest of a packet or a request
NO_ROOM_S_MAX: Final = 30  # for memory and room in the window
STARVING_MAX: Final = 128  # connections of a protocol that wait for memory
UNSENT_BYTES_MAX: Final = 256 * KIB  # of a connection, written and not sent
ALL_UNSENT_BYTES_MAX: Final = 64 * MIB  # of all connections of a protocol
CLOSE_S_MAX: Final = 5  # for a client to take what it was sent last
CONNECTIONS_SHOWN_MAX: Final = 1_000  # of the clients of ports, in one answer
REFUSALS_LOGGED_MAX: Final = 100  # of a port, in a minute
PROXY_BYTES_MAX: Final = 4 * KIB  # of the PROXY protocol, version 2
PROXY_S_MAX: Final = 10  # from the connection of a proxy to its whole header
