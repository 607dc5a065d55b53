"""Clients of others, and kill -9, against `seb serve --mqtt-port`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import shutil
import subprocess
import sys
from itertools import product

import httpx2
import pytest

from seb_appliance.protocols.mqtt import codec
from tests.support.mqtt_client import Client
from tests.support.mqtt_packets import connect
from tests.support.process import Bucket, SebProcess
from tests.support.servers.s3_server import free_port

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]
PUBLISHERS = 4
MESSAGES = 300  # of each publisher before the kill


class Served:
    def __init__(self, tmp_path) -> None:
        self.bucket, self.data = Bucket.directory(tmp_path / "bucket"), tmp_path / "data"
        self.mqtt_port = free_port()

    async def start(self) -> SebProcess:
        flags = ["--mqtt-port", str(self.mqtt_port), "--mqtt-websocket"]
        process = SebProcess(self.bucket, self.data, flags)
        await process.ready()
        return process


async def values(process):
    """Of all records of the topic."""
    found, offset = [], 0
    headers = {"authorization": f"Bearer {process.admin_key}"}
    url = f"http://127.0.0.1:{process.port}/v1/topics/mqtt/records"
    async with httpx2.AsyncClient(headers=headers, verify=False) as client:
        while True:
            answer = (await client.get(url, params={"offset": offset})).json()
            if not answer["records"]:
                return found
            found += [one["value"] for one in answer["records"]]
            offset = answer["next_offset"]


async def publish_until_killed(served, key, name, acknowledged, enough, most=60_000):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.mqtt_port)
    client = Client(reader, writer, 5)
    client.send(connect(key, client_id=name))
    await client.packet()
    try:
        for number in range(1, most + 1):
            client.publish(name, b"%s %d" % (name.encode(), number), packet_id=number)
            first, body = await client.packet()
            if first != 0x40:
                return
            acknowledged.append(f"{name} {int.from_bytes(body[:2], 'big')}")
            if number == MESSAGES:
                enough.release()
    except ConnectionError:
        return
    finally:
        writer.close()


async def test_nothing_that_was_acknowledged_is_lost_by_kill_9(tmp_path):
    served = Served(tmp_path)
    process = await served.start()
    acknowledged, enough = [], asyncio.Semaphore(0)
    publishers = [
        asyncio.create_task(
            publish_until_killed(served, process.admin_key, f"p{i}", acknowledged, enough)
        )
        for i in range(PUBLISHERS)
    ]
    async with asyncio.timeout(60):
        for _ in publishers:
            await enough.acquire()
    process.kill()
    await asyncio.gather(*publishers)
    again = await served.start()
    try:
        assert len(acknowledged) >= PUBLISHERS * MESSAGES
        assert set(acknowledged) <= set(await values(again))
    finally:
        again.kill()


async def receive(served, key, found, wanted=None, name="keeper", topic_filter="#"):
    """As a client with a session, until the connection ends, or all that is `wanted` came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.mqtt_port)
    client = Client(reader, writer, 5)
    try:
        client.send(connect(key, client_id=name, clean_start=False, session_expiry=3_600))
        _, body = await client.packet()
        if bool(body[0]) == (wanted is None):
            pytest.fail("the session is there, or not, against expectation")
        if wanted is None:
            await client.subscribe(topic_filter)
        while wanted is None or not wanted <= set(found):
            message = await client.message()
            found.append(message.payload.decode())
            client.send(codec.write_ack(codec.PUBACK, message.packet_id, 5))
    except (AssertionError, ConnectionError):
        assert wanted is None
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.neighbours
async def test_a_session_misses_nothing_by_kill_9(tmp_path):
    served = Served(tmp_path)
    process = await served.start()
    acknowledged, found, enough = [], [], asyncio.Semaphore(0)
    key = process.admin_key
    receiver = asyncio.create_task(receive(served, key, found))
    while not found:  # it has subscribed
        await publish_until_killed(served, key, "begin", [], enough, most=20)
    publisher = publish_until_killed(served, key, "p", acknowledged, enough)
    publishing = asyncio.create_task(publisher)
    async with asyncio.timeout(60):
        await enough.acquire()
    process.kill()
    await asyncio.gather(receiver, publishing)
    again = await served.start()
    try:
        before = len(found)
        await receive(served, key, found, set(acknowledged))
        assert len(found) - before < 4 * MESSAGES  # what was not committed, and what was missed
    finally:
        again.kill()


@pytest.mark.neighbours
async def test_a_group_of_sessions_misses_nothing_by_kill_9(tmp_path):
    served = Served(tmp_path)
    process = await served.start()
    acknowledged, found, enough = [], [], asyncio.Semaphore(0)
    key = process.admin_key

    def receivers(wanted=None):
        return [
            asyncio.create_task(receive(served, key, found, wanted, f"keeper{i}", "$share/g/#"))
            for i in range(2)
        ]

    receiving = receivers()
    while not found:  # somebody has subscribed
        await publish_until_killed(served, key, "begin", [], enough, most=20)
    publishing = asyncio.create_task(publish_until_killed(served, key, "p", acknowledged, enough))
    async with asyncio.timeout(60):
        await enough.acquire()
    process.kill()
    await asyncio.gather(*receiving, publishing)
    again = await served.start()
    try:
        before = len(found)
        receiving = receivers(set(acknowledged))
        async with asyncio.timeout(60):
            await asyncio.wait(receiving, return_when=asyncio.FIRST_COMPLETED)
        assert set(acknowledged) <= set(found)
        assert len(found) - before < 4 * MESSAGES
        for task in receiving:
            task.cancel()
        await asyncio.gather(*receiving, return_exceptions=True)
    finally:
        again.kill()


SUBSCRIBE_AND_PUBLISH = """
import sys, paho.mqtt.client as mqtt
port, key, version, transport = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
api = mqtt.CallbackAPIVersion.VERSION2
client = mqtt.Client(api, "paho", protocol=version, transport=transport)
client.username_pw_set("anybody", key)
got = []
def subscribed(client, *_):
    for qos in (0, 1, 2):
        client.publish(f"paho/{qos}", f"{version}-{qos}", qos)
def received(client, _, message):
    got.append((message.topic, message.qos))
    if len(got) == 3:
        client.disconnect()
client.on_connect = lambda client, *_: client.subscribe("paho/+", 2)
client.on_subscribe, client.on_message = subscribed, received
client.connect("127.0.0.1", port)
client.loop_forever()
assert got == [("paho/0", 0), ("paho/1", 1), ("paho/2", 2)], got
"""

AIOMQTT = """
import asyncio, sys, aiomqtt
async def main():
    version = aiomqtt.ProtocolVersion.V5
    async with aiomqtt.Client("127.0.0.1", int(sys.argv[1]), username="x", password=sys.argv[2],
                              protocol=version) as client:
        await client.subscribe("aio/#", qos=1)
        await client.publish("aio/a", "1", qos=2)
        async for message in client.messages:
            assert message.payload == b"1"
            return
asyncio.run(main())
"""


async def run(*command):
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(importlib.util.find_spec("paho") is None, reason="paho-mqtt is not installed")
@pytest.mark.skipif(importlib.util.find_spec("aiomqtt") is None, reason="aiomqtt is not installed")
async def test_paho_and_aiomqtt_publish_and_subscribe(tmp_path):
    served = Served(tmp_path)
    process = await served.start()
    port, key = str(served.mqtt_port), process.admin_key
    ways = {"tcp": port, "websockets": str(process.port)}
    try:
        for version, transport in product(("4", "5"), ways):
            given = (ways[transport], key, version, transport)
            await run(sys.executable, "-c", SUBSCRIBE_AND_PUBLISH, *given)
        await run(sys.executable, "-c", AIOMQTT, port, key)
        found = await values(process)
        expected = [f"{v}-{q}" for v in (4, 5) for q in (0, 1, 2) for _ in ways]
        assert sorted(found) == sorted(["1", *expected])
    finally:
        process.kill()


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto_pub is not installed")
@pytest.mark.parametrize("version", ["311", "5"])
async def test_mosquittos_clients_publish_subscribe_and_ask(tmp_path, version):
    served = Served(tmp_path)
    process = await served.start()
    key = process.admin_key
    common = ("-h", "127.0.0.1", "-p", str(served.mqtt_port), "-V", version, "-u", "x", "-P", key)
    try:
        for qos in ("0", "1", "2"):
            await run("mosquitto_pub", *common, "-t", f"m/{qos}", "-m", qos, "-q", qos, "-r")
        told = await run("mosquitto_sub", *common, "-t", "m/#", "-q", "2", "-C", "3", "-F", "%t %p")
        assert sorted(told.split("\n")) == ["", "m/0 0", "m/1 1", "m/2 2"]
        if version == "5":
            assert await asked(served, key, common) == "answer to question\n"
    finally:
        process.kill()


async def asked(served, key, common):
    """What mosquitto_rr prints; a client of ours answers it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.mqtt_port)
    client = Client(reader, writer, 5)
    client.send(connect(key, client_id="answers"))
    await client.packet()
    await client.subscribe("ask")
    asking = asyncio.create_task(
        run("mosquitto_rr", *common, "-t", "ask", "-e", "told", "-m", "question", "-q", "1")
    )
    question = await client.message()
    client.publish(question.properties["response_topic"], b"answer to " + question.payload)
    found = await asking
    writer.close()
    return found
