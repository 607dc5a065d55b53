"""What Home Assistant's MQTT integration and its devices do, with the client library that it uses:
discovery, birth and will, and the reconnections of both when the appliance is killed."""

from __future__ import annotations

import json
import queue
import signal
from pathlib import Path

import pytest

from tests.server.serving import Serving, serving
from tests.support.servers.s3_server import free_port

mqtt = pytest.importorskip("paho.mqtt.client")
pytestmark = [pytest.mark.slow, pytest.mark.neighbours]
STATUS = "homeassistant/status"
CONFIG = "homeassistant/sensor/kitchen/config"
STATE, COMMAND = "kitchen/temp", "kitchen/command"
SOON_S = 30


class Peer:
    """A client of paho's, whose loop runs in a thread. `messages`: what has come, as (topic, text,
    retained)."""

    def __init__(self, port: int, key: str, name: str, *filters: tuple[str, int], **how: object):
        api = mqtt.CallbackAPIVersion.VERSION2
        will = how.pop("will")
        self.client = mqtt.Client(api, name, **how)
        self.client.username_pw_set("anybody", key)
        self.client.will_set(*will)
        self.client.reconnect_delay_set(1, 1)
        self.messages: queue.Queue[tuple[str, str, bool]] = queue.Queue()
        self.ready: queue.Queue[bool] = queue.Queue()  # whether the session was there
        self.filters = list(filters)
        self.was_present = False
        self.client.on_connect = self._connected
        self.client.on_subscribe = lambda *_: self.ready.put(self.was_present)
        self.client.on_message = self._received
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def _connected(self, client, _, flags, code, __):
        assert not code.is_failure, code
        self.was_present = flags.session_present
        client.subscribe(self.filters)

    def _received(self, _, __, message):
        self.messages.put((message.topic, message.payload.decode(), message.retain))

    def told(self) -> tuple[str, str, bool]:
        """The next message."""
        return self.messages.get(timeout=SOON_S)

    def publish(self, topic: str, text: str, *, retain: bool = False) -> None:
        """Returns when it is acknowledged."""
        self.client.publish(topic, text, 1, retain).wait_for_publish(SOON_S)

    def die(self) -> None:
        """Without DISCONNECT, and not to return."""
        self.client.loop_stop()
        self.client.socket().close()


def hub(port: int, key: str, protocol: int) -> Peer:
    """As Home Assistant: no session, filters for discovery, QoS 0 for birth and will."""
    filters = ("homeassistant/+/+/config", 0), ("homeassistant/+/+/+/config", 0)
    made = Peer(port, key, f"hub-{protocol}", *filters, protocol=protocol, will=(STATUS, "offline"))
    assert made.ready.get(timeout=SOON_S) is False
    return made


def device(port: int, key: str) -> Peer:
    """With a session, which gets the commands that it missed."""
    filters = (STATUS, 1), (COMMAND, 1)
    how = {"clean_session": False, "will": ("kitchen/status", "offline", 1, True)}
    return Peer(port, key, "device", *filters, protocol=mqtt.MQTTv311, **how)


def key_of(served: Serving) -> str:
    return (served.data / "admin.key").read_text().strip()


@pytest.mark.parametrize("protocol", [4, 5])
def test_discovery_and_states_outlive_the_appliance_and_each_client(tmp_path: Path, protocol: int):
    port, flags = free_port(), ("--mqtt-port", str(free_port()))
    mqtt_port = int(flags[1])
    with serving(tmp_path, *flags, port=port) as served:
        key = key_of(served)
        sensor = device(mqtt_port, key)
        assert sensor.ready.get(timeout=SOON_S) is False
        found = json.dumps({"name": "temp", "unique_id": "k1", "state_topic": STATE, "qos": 1})
        sensor.publish(CONFIG, found, retain=True)
        home = hub(mqtt_port, key, protocol)
        assert home.told() == (CONFIG, found, True)  # discovered, although it came later
        home.filters.append((STATE, 1))
        home.client.subscribe(STATE, 1)
        home.ready.get(timeout=SOON_S)
        home.client.publish(STATUS, "online")  # its birth
        assert sensor.told() == (STATUS, "online", False)
        sensor.publish(STATE, "21.5")
        assert home.told() == (STATE, "21.5", False)
        served.stop(signal.SIGKILL)
    with serving(tmp_path, *flags, port=port):
        assert home.ready.get(timeout=SOON_S) is False  # both return by themselves
        assert sensor.ready.get(timeout=SOON_S) is True
        assert home.told() == (CONFIG, found, True)  # the machine has it from the bucket
        sensor.publish(STATE, "22")
        assert home.told() == (STATE, "22", False)
        sensor.die()
        home.publish(COMMAND, "missed")
        sensor = device(mqtt_port, key)
        assert sensor.ready.get(timeout=SOON_S) is True
        assert sensor.told() == (COMMAND, "missed", False)
        home.die()
        assert sensor.told() == (STATUS, "offline", False)
        sensor.client.disconnect()
        sensor.client.loop_stop()
