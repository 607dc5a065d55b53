"""The way to the store: through a forward proxy, and by TLS with an authority of one's own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.server.test_mqtt_proxies import issue, openssl
from tests.support.bucket_server import BucketServer
from tests.support.checker import check
from tests.support.forward_proxy import STORE, ForwardProxy
from tests.support.load import read_topic
from tests.support.process import Bucket, SebProcess
from tests.support.producer import Doors, Load

pytestmark = pytest.mark.slow
EAGER = ("--tidy-bytes", "1KiB", "--tidy-young", "0ms", "--garbage-grace", "0ms")


def tls(folder: Path) -> ssl.SSLContext:
    """Of the store, by an authority in `ca.crt` that nobody knows by itself."""
    key = ("-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key")
    openssl(folder, "req", "-x509", "-days", "1", *key, "-subj", "/CN=ca", "-out", "ca.crt")
    issue(folder, "store", f"/CN={STORE}", f"subjectAltName=DNS:{STORE},IP:127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "store.pem")
    return context


def bucket_of(server: BucketServer, endpoint: str, **environment: str) -> Bucket:
    bucket = Bucket.s3(server.options, server.port, s3_endpoint=endpoint, linger="10ms")
    return Bucket(bucket.address, {**bucket.environment, **environment})


@asynccontextmanager
async def started(bucket: Bucket, folder: Path) -> AsyncIterator[SebProcess]:
    seb = SebProcess(bucket, folder / "data", ("--ack-timeout", "2s", *EAGER))
    try:
        await seb.ready()
        yield seb
    finally:
        seb.kill()


async def stored_and_tidied(seb: SebProcess, server: BucketServer, proxy: ForwardProxy) -> None:
    """What is acknowledged while the proxy is cut off once is there afterwards; the child process
    of the tidier has found the same way."""
    load = Load(Doors(seb.admin_key, [seb.port]), ("orders",))
    load.start(4)
    await load.until_acked(20)
    proxy.cut()
    proxy.is_open = True
    await load.until_acked(20)
    async with asyncio.timeout(60):
        while not any(key.startswith(("segments/", "_seb/segments/")) for key in server.objects):
            await asyncio.sleep(0.05)
    await load.stop()
    log = await read_topic(seb.port, seb.admin_key, "orders")
    check(load.calls, log)


async def test_requests_pass_a_forward_proxy(tmp_path: Path) -> None:
    async with BucketServer() as server, ForwardProxy(server.port) as proxy:
        bucket = bucket_of(server, f"http://{STORE}:9000", HTTP_PROXY=proxy.url)
        async with started(bucket, tmp_path) as seb:
            await stored_and_tidied(seb, server, proxy)
        assert all(f" http://{STORE}:9000/" in line for line in proxy.asked)


async def test_tls_with_an_authority_of_ones_own_passes_a_forward_proxy(tmp_path: Path) -> None:
    context = tls(tmp_path)
    async with BucketServer(tls=context) as server, ForwardProxy(server.port) as proxy:
        bucket = bucket_of(
            server,
            f"https://{STORE}",
            HTTPS_PROXY=proxy.url,
            AWS_CA_BUNDLE=str(tmp_path / "ca.crt"),
        )
        async with started(bucket, tmp_path) as seb:
            await stored_and_tidied(seb, server, proxy)
        assert {line.split()[0] for line in proxy.asked} == {"CONNECT"}


async def test_a_store_in_no_proxy_is_asked_directly(tmp_path: Path) -> None:
    async with BucketServer(tls=tls(tmp_path)) as server, ForwardProxy(server.port) as proxy:
        bucket = bucket_of(
            server,
            f"https://127.0.0.1:{server.port}",
            HTTPS_PROXY=proxy.url,
            NO_PROXY="127.0.0.1",
            AWS_CA_BUNDLE=str(tmp_path / "ca.crt"),
        )
        async with started(bucket, tmp_path) as seb:
            load = Load(Doors(seb.admin_key, [seb.port]), ("orders",))
            load.start(1)
            await load.until_acked(3)
            await load.stop()
        assert proxy.asked == []
