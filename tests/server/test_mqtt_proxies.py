"""Client certificates by haproxy and nginx, by TCP and by WebSocket, into `seb serve`."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from tests.server.test_mqtt_clients import run
from tests.support.process import Bucket, SebProcess
from tests.support.servers.s3_server import die_with_parent, free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.neighbours,
    pytest.mark.asyncio,
    pytest.mark.skipif(importlib.util.find_spec("paho") is None, reason="paho is not installed"),
]
MODULES = Path("/usr/lib/nginx/modules")
HAPROXY = """
defaults
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend mqtts
    mode tcp
    bind 127.0.0.1:{tcp} ssl crt {folder}/server.pem ca-file {folder}/ca.crt verify optional
    default_backend mqtt
backend mqtt
    mode tcp
    server seb 127.0.0.1:{mqtt} send-proxy-v2-ssl-cn
frontend wss
    mode http
    bind 127.0.0.1:{web} ssl crt {folder}/server.pem ca-file {folder}/ca.crt verify optional
    option forwardfor
    http-request set-header Client-Subject %[ssl_c_s_dn(cn)]
    default_backend http
backend http
    mode http
    server seb 127.0.0.1:{http}
"""
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
{load}
events {{}}
stream {{
    server {{
        listen 127.0.0.1:{tcp} ssl;
        ssl_certificate {folder}/server.pem;
        ssl_certificate_key {folder}/server.pem;
        proxy_pass 127.0.0.1:{mqtt};
        proxy_protocol on;
        proxy_timeout 2h;
    }}
}}
http {{
    access_log off;
    server {{
        listen 127.0.0.1:{web} ssl;
        ssl_certificate {folder}/server.pem;
        ssl_certificate_key {folder}/server.pem;
        ssl_client_certificate {folder}/ca.crt;
        ssl_verify_client optional;
        location /mqtt {{
            proxy_pass http://127.0.0.1:{http};
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header Client-Subject $ssl_client_s_dn;
            proxy_read_timeout 2h;
        }}
    }}
}}
"""
# Prints the reason code of CONNACK; publishes if it may.
CLIENT = """
import sys, paho.mqtt.client as mqtt
port, transport, authority, certificate, password, payload = sys.argv[1:]
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "c", protocol=5, transport=transport)
client.tls_set(authority, certificate or None, certificate or None)
if password:
    client.username_pw_set("x", password)
client.on_connect_fail = lambda *_: sys.exit("no connection")
def connected(client, _, __, code, ___):
    print(code.value)
    if code.value:
        client.disconnect()
    else:
        client.publish("by/proxy", payload, 1)
client.on_connect = connected
client.on_publish = lambda client, *_: client.disconnect()
client.connect("localhost", int(port))
client.loop_forever(retry_first_connection=False)
"""


@dataclass
class Proxied:
    """`tcp` and `web`: the ports of the proxy."""

    process: SebProcess
    folder: Path
    tcp: int
    web: int

    async def publish(
        self, transport: str, payload: str, certificate: str = "", password: str = ""
    ) -> int:
        port = self.tcp if transport == "tcp" else self.web
        file = str(self.folder / certificate) if certificate else ""
        given = (str(port), transport, str(self.folder / "ca.crt"), file, password, payload)
        return int((await run(sys.executable, "-c", CLIENT, *given)).split()[0])

    async def stored(self) -> list[str]:
        headers = {"authorization": f"Bearer {self.process.admin_key}"}
        url = f"http://127.0.0.1:{self.process.port}/v1/topics/mqtt/records"
        async with httpx2.AsyncClient(headers=headers) as client:
            answer = await client.get(url, params={"offset": 0})
        return [one["value"] for one in answer.json()["records"]]


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def issue(folder: Path, name: str, subject: str, more: str = "") -> None:
    """A certificate of our authority: `name`.pem, with its key."""
    key = ("-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key")
    openssl(folder, "req", *key, "-subj", subject, "-out", f"{name}.csr")
    (folder / "more").write_text(more)
    by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1", "-extfile", "more")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *by, "-out", f"{name}.crt")
    parts = [(folder / f"{name}{end}").read_text() for end in (".crt", ".key")]
    (folder / f"{name}.pem").write_text("".join(parts))


@contextmanager
def proxy(command: list[str]) -> Iterator[None]:
    with subprocess.Popen(command, preexec_fn=die_with_parent) as running:
        try:
            yield
        finally:
            running.kill()


async def accepting(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


async def started(tmp_path: Path) -> tuple[Proxied, dict[str, object]]:
    mqtt, ports = free_port(), {"tcp": free_port(), "web": free_port()}
    flags = ["--mqtt-port", str(mqtt), "--mqtt-websocket", "--trusted-proxies", "127.0.0.1"]
    flags += ["--mqtt-proxy-protocol", "certificate", "--mqtt-certificate-header", "Client-Subject"]
    process = SebProcess(Bucket.directory(tmp_path / "bucket"), tmp_path / "data", flags)
    await process.ready()
    key = ("-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key")
    openssl(tmp_path, "req", "-x509", "-days", "1", *key, "-subj", "/CN=ca", "-out", "ca.crt")
    issue(tmp_path, "server", "/CN=localhost", "subjectAltName=DNS:localhost")
    issue(tmp_path, "device", f"/O=Acme, CN=other/CN={process.admin_key.split('_')[1]}")
    issue(tmp_path, "stranger", "/CN=7ckd4wpx")
    given = {"mqtt": mqtt, "http": process.port, "folder": tmp_path, **ports}
    return Proxied(process, tmp_path, **ports), given


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
async def test_haproxy_passes_certificates_by_tcp_and_by_websocket(tmp_path):
    proxied, given = await started(tmp_path)
    config = tmp_path / "haproxy.cfg"
    config.write_text(HAPROXY.format(**given))
    try:
        with proxy(["haproxy", "-f", str(config)]):
            await accepting(proxied.web)
            for way in ("tcp", "websockets"):
                assert await proxied.publish(way, f"{way} certified", "device.pem") == 0
                assert await proxied.publish(way, "no", "stranger.pem") == 0x86
                assert await proxied.publish(way, "no") == 0x87
                key = proxied.process.admin_key
                assert await proxied.publish(way, f"{way} by key", password=key) == 0
        expected = [
            f"{way} {by}" for way in ("tcp", "websockets") for by in ("certified", "by key")
        ]
        assert await proxied.stored() == expected
    finally:
        proxied.process.kill()


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
@pytest.mark.skipif(not (MODULES / "ngx_stream_module.so").exists(), reason="nginx has no stream")
async def test_nginx_passes_certificates_by_websocket_and_addresses_by_tcp(tmp_path):
    proxied, given = await started(tmp_path)
    config = tmp_path / "nginx.conf"
    load = f"load_module {MODULES / 'ngx_stream_module.so'};"
    config.write_text(NGINX.format(load=load, **given))
    key = proxied.process.admin_key
    try:
        with proxy(["nginx", "-c", str(config), "-p", str(tmp_path)]):
            await accepting(proxied.web)
            assert await proxied.publish("websockets", "certified", "device.pem") == 0
            assert await proxied.publish("websockets", "no", "stranger.pem") == 0x86
            assert await proxied.publish("websockets", "no") == 0x87
            assert await proxied.publish("tcp", "by key", password=key) == 0
            assert await proxied.publish("tcp", "no", "device.pem") == 0x87  # no certificate asked
        assert await proxied.stored() == ["certified", "by key"]
    finally:
        proxied.process.kill()
