"""IPv6: HTTP, the command line, MQTT, Kafka and the store, on ::1 and on all addresses."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.bucket_server import BucketServer
from tests.support.load import Connection
from tests.support.process import ROOT, Bucket, SebProcess
from tests.support.servers.s3_server import free_port


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6"),
]
PUBLISH = """
import sys, paho.mqtt.publish as publish
host, port, key = sys.argv[1:]
by = {"username": "x", "password": key}
publish.single("by/mqtt", "hello", qos=1, hostname=host, port=int(port), auth=by)
"""
PRODUCE = """
import sys, confluent_kafka
host, port, key = sys.argv[1:]
to = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
producer = confluent_kafka.Producer({
    "bootstrap.servers": to, "message.timeout.ms": 30000, "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN", "sasl.username": "x", "sasl.password": key})
def told(error, _):
    if error is not None:
        sys.exit(str(error))
producer.produce("by-kafka", "hello", callback=told)
sys.exit(producer.flush(30))
"""


@dataclass
class Listening:
    seb: SebProcess
    mqtt_port: int
    kafka_port: int

    async def ask(
        self, host: str, method: str, path: str, key: str | None = None
    ) -> tuple[int, bytes]:
        connection = Connection(self.seb.port, self.seb.admin_key if key is None else key, host)
        answer = await connection.request(method, path)
        connection.close()
        return answer.status, answer.body

    async def store_by_all_ports(self, host: str) -> None:
        assert (await self.ask(host, "POST", "/v1/topics/by-http/records"))[0] == 201
        await run(sys.executable, "-c", PUBLISH, host, str(self.mqtt_port), self.seb.admin_key)
        await run(sys.executable, "-c", PRODUCE, host, str(self.kafka_port), self.seb.admin_key)

    async def stored(self) -> dict[str, int]:
        ends = {}
        for topic in ("by-http", "mqtt", "by-kafka"):
            _, body = await self.ask("::1", "GET", f"/v1/topics/{topic}/records?offset=0")
            ends[topic] = json.loads(body)["log_end_offset"]
        return ends


@asynccontextmanager
async def listening(
    host: str, bucket: Bucket, folder: Path, *flags: str
) -> AsyncIterator[Listening]:
    mqtt_port, kafka_port = free_port(), free_port()
    ports = ("--mqtt-port", str(mqtt_port), "--kafka-port", str(kafka_port))
    more = tuple(flag.format(kafka_port=kafka_port) for flag in flags)
    seb = SebProcess(bucket, folder / "data", (*ports, *more), host=host)
    try:
        if host == "::":
            seb.host = "::1"  # where it is asked whether it is ready
        await seb.ready()
        yield Listening(seb, mqtt_port, kafka_port)
    finally:
        seb.kill()


async def run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )
    out, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    return out.decode()


@pytest.mark.skipif(importlib.util.find_spec("paho") is None, reason="paho is not installed")
async def test_every_port_and_the_store_on_the_loopback_address(tmp_path: Path) -> None:
    async with BucketServer(host="::1") as server:
        bucket = Bucket.s3(server.options, server.port, s3_endpoint=f"http://[::1]:{server.port}")
        async with listening("::1", bucket, tmp_path) as here:
            await here.store_by_all_ports("::1")
            assert await here.stored() == {"by-http": 1, "mqtt": 1, "by-kafka": 1}
            url = f"http://[::1]:{here.seb.port}"
            assert url in here.seb.shown
            command = (
                sys.executable,
                "-m",
                "seb_appliance",
                "consume",
                "by-kafka",
                "--offset",
                "0",
            )
            to = ("--url", url, "--key-file", str(here.seb.data / "admin.key"))
            assert await run(*command, *to) == "hello\n"
            taken = SebProcess(
                bucket, tmp_path / "other", ("--port", str(here.seb.port)), host="::1"
            )
            assert await taken.ended() == 1
            assert f"cannot listen on [::1]:{here.seb.port}" in taken.shown


@pytest.mark.skipif(importlib.util.find_spec("paho") is None, reason="paho is not installed")
async def test_all_addresses_are_those_of_both_kinds(tmp_path: Path) -> None:
    """Of HTTP, MQTT and Kafka alike. A client by IPv4 is known by its IPv4 address."""
    bucket = Bucket.directory(tmp_path / "bucket")
    by_name = ("--kafka-advertise", "localhost:{kafka_port}")
    async with listening("::", bucket, tmp_path, *by_name) as here:
        for host in ("::1", "127.0.0.1"):
            await here.store_by_all_ports(host)
            assert (await here.ask(host, "GET", "/metrics", key=""))[0] == 200
        assert await here.stored() == {"by-http": 2, "mqtt": 2, "by-kafka": 2}
        assert (await here.ask("127.0.0.1", "PUT", "/v1/topics/made"))[0] == 201
        _, audit = await here.ask("::1", "GET", "/v1/audit")
        made = next(one for one in json.loads(audit)["audit"] if one["subject"] == "made")
        assert made["address"] == "127.0.0.1"
