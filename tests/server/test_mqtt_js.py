"""mqtt.js, the client of browsers, Zigbee2MQTT and Node-RED: in Node.js and in Chromium."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.senders.shippers import INSTALLED
from tests.server.serving import Serving, serving
from tests.server.test_mqtt_clients import publish_until_killed
from tests.support.servers.s3_server import free_port
from tests.ui.conftest import chromium  # noqa: F401 - a fixture

MODULE = INSTALLED / "node_modules/mqtt"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.neighbours,
    pytest.mark.skipif(not MODULE.exists(), reason="mqtt.js is not installed (install.sh)"),
]

# Everything that a client does in a minute; `seen` is what it got, in order.
SCRIPT = """
async (mqtt, url, key, protocolVersion) => {
  const options = {username: "x", password: key, protocolVersion, reconnectPeriod: 100};
  const connect = (more) => mqtt.connectAsync(url, {...options, ...more});
  const seen = [];
  setTimeout(() => { throw new Error(JSON.stringify(seen)); }, 20000);
  const topic = `js/${protocolVersion}`;
  const watch = await connect({clientId: `watch-${protocolVersion}`});
  const all = new Promise((done) => watch.on("message", (name, payload, packet) => {
    seen.push([name, payload.toString(), packet.qos, packet.retain]);
    if (seen.length === 5) done();
  }));
  const will = {topic: `${topic}/will`, payload: "gone", qos: 1};
  const mortal = await connect({clientId: `mortal-${protocolVersion}`, will});
  await mortal.publishAsync(`${topic}/kept`, "kept", {qos: 1, retain: true});
  await watch.subscribeAsync(`${topic}/#`, {qos: 2});
  while (seen.length < 1) await new Promise((next) => setTimeout(next, 10));
  for (const qos of [0, 1, 2]) await mortal.publishAsync(`${topic}/${qos}`, `m${qos}`, {qos});
  while (seen.length < 4) await new Promise((next) => setTimeout(next, 10));
  mortal.stream.destroy();
  mortal.end(true);
  await all;
  await watch.endAsync();
  return seen;
}
"""
NODE = (
    f"const mqtt = require({json.dumps(str(MODULE))});"
    "const [url, key, version] = process.argv.slice(1);"
    f"({SCRIPT})(mqtt, url, key, Number(version)).then((seen) => "
    "{ console.log(JSON.stringify(seen)); process.exit(0); });"
)
# With a session: it prints what it gets until it is killed.
KEEPER = (
    f"const mqtt = require({json.dumps(str(MODULE))});"
    "const [url, password] = process.argv.slice(1);"
    "const client = mqtt.connect(url, {username: 'x', password, clientId: 'keeper', clean: false,"
    " protocolVersion: 5, properties: {sessionExpiryInterval: 3600}, reconnectPeriod: 50});"
    "client.on('message', (_, payload) => console.log(payload.toString()));"
    "const ready = () => console.log('ready');"
    "client.once('connect', () => client.subscribe('kept/#', {qos: 1}, ready));"
    "client.on('error', () => {});"
)


def expected(version: int) -> list[list[Any]]:
    topic = f"js/{version}"
    return [
        [f"{topic}/kept", "kept", 1, True],
        *([f"{topic}/{qos}", f"m{qos}", qos, False] for qos in (0, 1, 2)),
        [f"{topic}/will", "gone", 1, False],
    ]


def key_of(seb: Serving) -> str:
    return (seb.data / "admin.key").read_text().strip()


def serve(folder: Path, mqtt_port: int, **given: Any) -> Any:
    return serving(folder, "--mqtt-port", str(mqtt_port), "--mqtt-websocket", **given)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("way", ["mqtt", "ws"])
def test_in_node_it_does_all_of_mqtt(tmp_path: Path, way: str, version: int) -> None:
    port = free_port()
    with serve(tmp_path, port) as seb:
        url = f"mqtt://127.0.0.1:{port}" if way == "mqtt" else f"ws://127.0.0.1:{seb.port}/mqtt"
        command = ["node", "-e", NODE, url, key_of(seb), str(version)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected(version)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
def test_its_session_misses_nothing_over_a_kill(tmp_path: Path) -> None:
    port = free_port()
    acknowledged: list[str] = []
    got: list[str] = []

    def lines(keeper: subprocess.Popen[str], until: Callable[[], bool]) -> None:
        assert keeper.stdout is not None
        while not until():
            got.append(keeper.stdout.readline().strip())

    async def publish(seb: Serving) -> None:
        class Served:
            mqtt_port = port

        enough = asyncio.Semaphore(0)
        publishing = asyncio.create_task(
            publish_until_killed(Served, key_of(seb), "kept/p", acknowledged, enough)
        )
        await enough.acquire()
        seb.process.kill()
        await publishing

    with serve(tmp_path, port) as seb:
        url = f"mqtt://127.0.0.1:{port}"
        keeper = subprocess.Popen(
            ["node", "-e", KEEPER, url, key_of(seb)], stdout=subprocess.PIPE, text=True
        )
        lines(keeper, lambda: "ready" in got)
        asyncio.run(asyncio.wait_for(publish(seb), 60))
    try:
        with serve(tmp_path, port, port=seb.port):
            lines(keeper, lambda: set(acknowledged) <= set(got))
    finally:
        keeper.kill()
        keeper.communicate()


def test_in_a_browser_it_does_all_of_mqtt(tmp_path: Path, chromium: Browser) -> None:  # noqa: F811
    with serve(tmp_path, free_port()) as seb:
        page = chromium.new_page()
        page.add_script_tag(path=MODULE / "dist/mqtt.min.js")
        url = f"ws://127.0.0.1:{seb.port}/mqtt"
        script = f"([url, key, version]) => ({SCRIPT})(window.mqtt, url, key, version)"
        for version in (4, 5):
            assert page.evaluate(script, [url, key_of(seb), version]) == expected(version)
        page.close()
