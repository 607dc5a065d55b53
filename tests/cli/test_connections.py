"""`seb connections …`"""

from __future__ import annotations

from seb_appliance.broker.status import PortStatus
from seb_appliance.protocols.sockets.connected import Connected, Stalled, connections_of
from tests.cli.conftest import Seb


class Port:
    """With one client."""

    status = PortStatus("MQTT", 1)

    def __init__(self) -> None:
        self.open = [Connected(17, "MQTT 5", "lamp", "key", "192.0.2.7", 1_800_000, 1, 1_044, 3, 0)]

    def connected(self) -> list[Connected]:
        return self.open

    def disconnect(self, number: int) -> bool:
        was, self.open = len(self.open), [one for one in self.open if one.number != number]
        return len(self.open) < was


def test_connections_are_listed_and_closed(seb: Seb) -> None:
    assert "no client is connected or has a session" in seb.good("connections").out
    connections_of(seb.appliance.appliance.beside).add(Port())
    (row,) = seb.good("connections", "list").rows
    assert (row[0], row[1], row[-3], row[-2]) == ("17", "lamp", "1,044", "3")
    assert seb.good("connections", "list", "--json").json["connections"][0]["waiting"] == 0
    assert "There is no connection or session 18" in seb.refused("connections", "close", "18")
    assert seb.good("connections", "close", "17", "--json").json == {"closed": 17}
    assert "no client is connected or has a session" in seb.good("connections").out


def test_a_stalled_producer_is_named_with_its_topic_and_counted_in_the_status(seb: Seb) -> None:
    port = Port()
    port.status = PortStatus("Kafka", 1, stalled=1)
    port.open = [port.open[0]._replace(stalled=Stalled("orders", 5, 0.98))]
    connections_of(seb.appliance.appliance.beside).add(port)
    assert "5 wait 1.0 s for the window of orders" in seb.good("connections").out
    shown = seb.good("connections", "--json").json["connections"][0]["stalled"]
    assert shown == {"topic": "orders", "in_flight": 5, "window_ms": 980}
    assert "1 Kafka (1 stalled, see seb connections)" in seb.good("status").out
