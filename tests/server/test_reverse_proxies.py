"""nginx and Caddy in front of `seb serve`, with the files of docs/INSTALL.md word by word; only
ports and the folder of the certificate are others."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from jinja2 import Environment

from tests.server.serving import Serving, serving
from tests.server.test_mqtt_proxies import issue, openssl
from tests.support.load import Connection
from tests.support.process import ROOT
from tests.support.servers.s3_server import die_with_parent, free_port, processes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.neighbours,
    pytest.mark.asyncio,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]
HOST = "seb.example.org"
CLIENT = "127.0.0.9"
PASSWORD = "correct horse battery"
NGINX = """
daemon off;
{user}
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{site}
}}
"""
CADDY = """
{{
    admin off
    http_port {spare}
    https_port {port}
}}
{site}
"""
SOON_S = 20.0
END_LOST = 18  # curl: of an answer whose head has arrived
LONGEST_WAIT_S = 60


def documented(first_line: str) -> str:
    """The block of docs/INSTALL.md that begins with this line."""
    text = (ROOT / "docs" / "INSTALL.md").read_text()
    found = re.search(rf"^    {re.escape(first_line)}\n(?:(?:    .*)?\n)+", text, re.MULTILINE)
    assert found is not None, first_line
    return textwrap.dedent(found[0])


@dataclass
class Proxied:
    """`port`: of the proxy. `seb`: the appliance behind it."""

    seb: Serving
    folder: Path
    port: int

    def command(self, path: str, *more: str, key: str | None = None) -> list[str]:
        """curl, by HTTP/2."""
        command = ["curl", "--silent", "--show-error", "--http2", "--interface", CLIENT]
        command += ["--cacert", str(self.folder / "ca.crt"), "--globoff"]
        command += ["--resolve", f"{HOST}:{self.port}:127.0.0.1"]
        if key := self.admin_key if key is None else key:
            command += ["--header", f"Authorization: Bearer {key}"]
        return [*command, *more, f"https://{HOST}:{self.port}{path}"]

    async def curl(self, path: str, *more: str, key: str | None = None) -> tuple[int, str, bytes]:
        """Status, version of HTTP, body."""
        written = ("--write-out", r"\n%{http_code} %{http_version}")
        process = await asyncio.create_subprocess_exec(
            *self.command(path, *written, *more, key=key),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        out, complaint = await process.communicate()
        body, _, last = out.rpartition(b"\n")
        status, version = last.decode().split()
        assert process.returncode in {0, END_LOST}, (last, complaint)
        assert process.returncode == 0 or int(status) >= 400, (last, complaint)
        return int(status), version, body

    async def json(self, path: str, *more: str) -> dict[str, object]:
        status, version, body = await self.curl(path, *more)
        assert (status // 100, version) == (2, "2"), (status, version, body)
        return json.loads(body)

    @asynccontextmanager
    async def live(self, path: str, *more: str) -> AsyncIterator[asyncio.StreamReader]:
        """A stream that is being read; its client is killed at the end."""
        process = await asyncio.create_subprocess_exec(
            *self.command(path, "--no-buffer", *more),
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @property
    def admin_key(self) -> str:
        return (self.seb.data / "admin.key").read_text().strip()

    async def metric(self, name: str) -> float:
        """Asked of the appliance itself."""
        connection = Connection(self.seb.port, self.admin_key)
        text = (await connection.request("GET", "/metrics")).body.decode()
        connection.close()
        return float(next(row.split()[1] for row in text.splitlines() if row.startswith(name)))

    async def until(self, name: str, value: float) -> None:
        async with asyncio.timeout(SOON_S):
            while await self.metric(name) != value:
                await asyncio.sleep(0.05)

    async def produce(self, topic: str, value: str) -> None:
        await self.json(f"/v1/topics/{topic}/records", "--data-binary", value)


def nginx(folder: Path, port: int, seb_port: int) -> list[str]:
    site = documented("upstream seb {")
    site = site.replace("listen 443 ", f"listen 127.0.0.1:{port} ")
    site = site.replace("127.0.0.1:51313", f"127.0.0.1:{seb_port}").replace("/etc/ssl", str(folder))
    user = "user root;" if os.geteuid() == 0 else ""  # its workers need the folder of the test
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, site=site, user=user))
    return ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)]


def caddy(folder: Path, port: int, seb_port: int) -> list[str]:
    site = documented(f"{HOST} {{")
    site = site.replace("127.0.0.1:51313", f"127.0.0.1:{seb_port}").replace("/etc/ssl", str(folder))
    return run_caddy(folder, CADDY.format(port=port, spare=free_port(), site=site))


def caddy_of_the_role(folder: Path, port: int, seb_port: int) -> list[str]:
    """Its template, as Ansible fills it in."""
    template = ROOT / "ansible" / "roles" / "seb_appliance" / "templates" / "Caddyfile.j2"
    given = {
        "domain": HOST,
        "port": seb_port,
        "http_port": free_port(),
        "https_port": port,
        "tls": "files",
        "tls_certificate": folder / f"{HOST}.pem",
        "tls_key": folder / f"{HOST}.key",
        "tls_client_ca": "",
        "settings": {},
    }
    variables = {f"seb_appliance_{name}": value for name, value in given.items()}
    text = Environment(trim_blocks=True).from_string(template.read_text())
    return run_caddy(folder, text.render(ansible_managed="", **variables))


def run_caddy(folder: Path, text: str) -> list[str]:
    file = folder / "Caddyfile"
    file.write_text(text)
    command = ["env", f"HOME={folder}", f"XDG_DATA_HOME={folder}", f"XDG_CONFIG_HOME={folder}"]
    return [*command, "caddy", "run", "--adapter", "caddyfile", "--config", str(file)]


@pytest.fixture(params=[nginx, caddy, caddy_of_the_role], scope="module")
def proxied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxied]:
    command: Callable[[Path, int, int], list[str]] = request.param
    program = command.__name__.partition("_")[0]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (tests/support/servers/install.sh)")
    folder = tmp_path_factory.mktemp(program)
    key = ("-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key")
    openssl(folder, "req", "-x509", "-days", "1", *key, "-subj", "/CN=ca", "-out", "ca.crt")
    issue(folder, HOST, f"/CN={HOST}", f"subjectAltName=DNS:{HOST}")
    with serving(folder, "--trusted-proxies", "127.0.0.1") as seb, processes(folder) as started:
        port = free_port()
        started.start(program, command(folder, port, seb.port))
        started.wait_for_http(port)
        yield Proxied(seb, folder, port)


def give_password(data: Path) -> None:
    command = [sys.executable, "-m", "seb_appliance", "admin", "set-password", "--stdin"]
    subprocess.run([*command, "--data", data], input=PASSWORD.encode(), check=True, cwd=ROOT)


async def until_line(reader: asyncio.StreamReader, text: bytes) -> None:
    async with asyncio.timeout(SOON_S):
        while text not in (line := await reader.readline()):
            assert line, "the stream ended"


async def test_bodies_of_many_megabytes_pass_in_both_directions(proxied: Proxied) -> None:
    lines = b"".join(b'{"value":"%06d%s"}\n' % (i, b"x" * 1500) for i in range(9_000))
    assert 13_000_000 < len(lines) < 16 * 2**20
    (proxied.folder / "large").write_bytes(lines)
    body = ("--header", "Content-Type: application/x-ndjson", "--data-binary")
    path = "/v1/topics/large/records"
    told = await proxied.json(path, *body, f"@{proxied.folder}/large")
    assert (told["offset"], told["count"]) == (0, 9_000)
    asked = f"{path}?offset=0&max_records=10000&max_bytes=16MiB"
    records = (await proxied.json(asked))["records"]
    assert isinstance(records, list)
    assert [record["value"][:6] for record in records] == [f"{i:06d}" for i in range(9_000)]


async def test_a_body_that_is_refused_gets_the_answer_of_the_appliance(proxied: Proxied) -> None:
    """It does not become the proxy's own 413 or 502, although nobody reads the body. By Caddy 2.6
    the text of the answer may be lost when curl stops sending."""
    (proxied.folder / "larger").write_bytes(b"x" * 40_000_000)
    body = ("--data-binary", f"@{proxied.folder}/larger")
    for key, wanted in ((None, 413), ("seb_wrong", 401)):
        status, _, answer = await proxied.curl("/v1/topics/large/records", *body, key=key)
        assert status == wanted
        assert not answer or "code" in json.loads(answer)


async def test_records_pass_at_once_and_the_longest_waits_are_not_cut(proxied: Proxied) -> None:
    """Streams are silent for longer than a proxy waits by default."""
    await proxied.produce("live", "first")
    wait = f"/v1/topics/live/records?offset=latest&wait={LONGEST_WAIT_S}s"
    await proxied.produce("silent", "x")
    silent = asyncio.create_task(proxied.json(wait.replace("live", "silent")))
    streams = ("/v1/topics/live/records?format=sse&offset=0", "/v1/records?topics=live")
    async with proxied.live(streams[0]) as one, proxied.live(streams[1]) as many:
        for reader in (one, many):
            await until_line(reader, b"first")
        polling = asyncio.create_task(proxied.json(wait))
        await proxied.until("seb_waiting_readers", 2)
        await proxied.produce("live", "second")
        for reader in (one, many):
            await until_line(reader, b"second")
        assert "second" in str(await polling)
        assert (await silent)["records"] == []
        await proxied.produce("live", "third")
        for reader in (one, many):
            await until_line(reader, b"third")


async def test_a_durable_stream_passes_at_once(proxied: Proxied) -> None:
    path, text = "/v1/stream/feed", ("--header", "Content-Type: text/plain")
    assert (await proxied.curl(path, *text, "--request", "PUT"))[0] == 201
    async with proxied.live(f"{path}?offset=-1&live=sse") as reader:
        await until_line(reader, b"event: control")
        assert (await proxied.curl(path, *text, "--data", "first"))[0] in {200, 204}
        await until_line(reader, b"first")


async def test_who_leaves_is_not_waited_for(proxied: Proxied) -> None:
    await proxied.produce("live", "first")
    path = "/v1/topics/live/records"
    async with (
        proxied.live(f"{path}?format=sse&offset=latest"),
        proxied.live(f"{path}?offset=latest&wait={LONGEST_WAIT_S}s"),
    ):
        await proxied.until("seb_waiting_readers", 1)
        await proxied.until("seb_followers", 1)
    await proxied.until("seb_waiting_readers", 0)
    await proxied.until("seb_followers", 0)


async def test_the_audit_has_the_address_of_the_client_and_metrics_stay_here(
    proxied: Proxied,
) -> None:
    invented = ("--header", "X-Forwarded-For: 6.6.6.6", "--request", "PUT")
    await proxied.json("/v1/topics/made", *invented)
    audit = str(await proxied.json("/v1/audit"))
    assert CLIENT in audit
    assert "6.6.6.6" not in audit
    assert (await proxied.curl("/metrics", key=""))[0] == 403


async def test_the_admin_page_works_with_its_cookie(proxied: Proxied) -> None:
    await asyncio.to_thread(give_password, proxied.seb.data)
    await proxied.produce("orders", "first")
    jar, origin = proxied.folder / "cookies", f"https://{HOST}:{proxied.port}"
    cookies = ("--cookie", str(jar), "--cookie-jar", str(jar), "--header", f"Origin: {origin}")
    form = ("--data-urlencode", "name=admin", "--data-urlencode", f"password={PASSWORD}")
    status, _, body = await proxied.curl("/ui/login", *cookies, *form, key="")
    assert status == 303, body
    assert "\tTRUE\t" in next(row for row in jar.read_text().splitlines() if "#Http" in row)
    status, _, page = await proxied.curl("/ui/topics", *cookies, key="")
    assert status == 200
    assert b"orders" in page
    rows = proxied.live("/ui/topics/orders/live/rows", "--cookie", str(jar))
    async with rows as reader:
        await proxied.until("seb_followers", 1)
        await proxied.produce("orders", "second")
        await until_line(reader, b"second")
    sent = ("--data-urlencode", "name=orders")
    status, _, body = await proxied.curl("/ui/topics/orders/delete", *cookies, *sent, key="")
    assert status == 303, body
    assert (await proxied.curl("/v1/topics/orders"))[0] == 404
