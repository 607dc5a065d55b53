"""Syslog over real sockets, into a running appliance."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import shutil
import socket
import ssl
import subprocess

import pytest

from seb_appliance.errors import ConfigurationError, OverloadedError
from seb_appliance.protocols.sockets.listening import Tls, tls_context
from seb_appliance.protocols.syslog import limits as syslog_limits
from seb_appliance.protocols.syslog.listening import Syslog
from seb_appliance.protocols.syslog.messages import AT_ONCE
from tests.support.appliance import running_appliance
from tests.support.certificates import make_certificate

pytestmark = pytest.mark.asyncio(loop_scope="module")
HERE = (ipaddress.ip_network("127.0.0.0/8"),)


@contextlib.asynccontextmanager
async def listening(seb, topic, **options):
    options = {"senders": HERE} | options
    syslog = Syslog(seb.appliance.broker, ("127.0.0.1", 0), topic, **options)
    await syslog.start()
    try:
        yield syslog
    finally:
        await syslog.stop()


async def send(syslog, data, tls=None):
    _, writer = await asyncio.open_connection("127.0.0.1", syslog.port, ssl=tls)
    writer.write(data)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def records(seb, topic, count):
    """As soon as there are so many."""
    async with asyncio.timeout(10):
        while True:
            answer = await seb.client.get(f"/v1/topics/{topic}/records")
            found = answer.json().get("records", [])
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


def counts(syslog):
    return {sample.labels.get("outcome", sample.name): sample.value for sample in syslog.samples()}


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_messages_over_tcp_become_records_in_their_order(seb):
    async with listening(seb, "logs.tcp") as syslog:
        first, second = (
            b"<13>1 2026-11-23T10:00:00Z web1 app 7 - - one",
            b"<14>1 - web1 app - - - two",
        )
        await send(syslog, b"%b\n%d %bthree" % (first, len(second), second))
        found = await records(seb, "logs.tcp", 3)
        assert [one["value"].split()[-1] for one in found] == ["one", "two", "three"]
        assert found[0]["timestamp"] == "2026-11-23T10:00:00.000000Z"
        assert found[0]["headers"] == {
            "facility": "1", "severity": "5", "hostname": "web1", "app_name": "app", "procid": "7",
        }  # fmt: skip
        assert "headers" not in found[2] or not found[2]["headers"]
        await until(lambda: counts(syslog)["stored"] == 3)


async def test_messages_over_udp_become_records(seb):
    async with listening(seb, "logs.udp") as syslog:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(50):
                sender.sendto(b"<13>message %d\n" % number, ("127.0.0.1", syslog.port))
        found = await records(seb, "logs.udp", 50)
        assert [one["value"] for one in found] == [f"<13>message {i}" for i in range(50)]


@pytest.mark.skipif(shutil.which("logger") is None, reason="logger is not installed")
@pytest.mark.parametrize("how", ["-T", "-d"])
async def test_logger_can_send(seb, how):
    topic = f"logs.logger{how}"
    async with listening(seb, topic) as syslog:
        command = ["logger", "-n", "127.0.0.1", "-P", str(syslog.port), how, "--rfc5424", "hello"]
        await asyncio.to_thread(subprocess.run, command, check=True)
        (found,) = await records(seb, topic, 1)
        assert found["value"].endswith("hello")
        assert {"facility", "severity", "hostname", "app_name"} <= found["headers"].keys()


async def test_many_short_messages_are_stored_some_at_a_time(seb, monkeypatch):
    """Others have their turn on the event loop in between."""
    sizes = []
    store = Syslog._store

    async def counting(self, messages, *given):
        sizes.append(len(messages))
        return await store(self, messages, *given)

    monkeypatch.setattr(Syslog, "_store", counting)
    async with listening(seb, "logs.short") as syslog:
        await send(syslog, b"a\n" * 8000)
        await until(lambda: counts(syslog)["stored"] == 8000)
        for _ in range(2000):
            syslog._received(b"a", "127.0.0.1")
        await until(lambda: counts(syslog)["stored"] == 10_000)
    assert max(sizes) == AT_ONCE


async def test_what_comes_before_a_bad_frame_is_stored(seb):
    async with listening(seb, "logs.before") as syslog:
        await send(syslog, b"<13>good\n9999999 x")
        assert [one["value"] for one in await records(seb, "logs.before", 1)] == ["<13>good"]
        await until(lambda: counts(syslog)["seb_syslog_refusals_total"] == 1)


async def test_a_sender_that_is_not_listed_is_refused(seb):
    elsewhere = (ipaddress.ip_network("192.0.2.0/24"),)
    async with listening(seb, "logs.strange", senders=elsewhere) as syslog:
        with contextlib.suppress(ConnectionError):
            await send(syslog, b"<13>x\n")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"<13>x", ("127.0.0.1", syslog.port))
        await until(lambda: counts(syslog)["seb_syslog_refusals_total"] == 2)
        assert await records(seb, "logs.strange", 0) == []


async def test_a_hostile_sender_is_cut_off_and_a_good_one_is_served(seb):
    async with listening(seb, "logs.hostile") as syslog:
        for hostile in (
            b"9999999 x",
            b"1234567x",
            b"<1>" + b"x" * 2 * syslog_limits.BYTES_MAX,
        ):
            with contextlib.suppress(ConnectionError):
                await send(syslog, hostile)
        await send(syslog, b"<13>good\n")
        assert [one["value"] for one in await records(seb, "logs.hostile", 1)] == ["<13>good"]
        await until(lambda: counts(syslog)["seb_syslog_refusals_total"] == 3)


async def test_one_address_has_so_many_connections_and_no_more(seb, monkeypatch):
    monkeypatch.setattr(syslog_limits, "CONNECTIONS_PER_ADDRESS_MAX", 2)
    async with listening(seb, "logs.many") as syslog:
        opened = [await asyncio.open_connection("127.0.0.1", syslog.port) for _ in range(3)]
        assert await opened[2][0].read() == b""
        opened[0][1].write(b"<13>x\n")
        assert len(await records(seb, "logs.many", 1)) == 1
        for _, writer in opened:
            writer.close()


async def test_a_message_that_does_not_end_ends_the_connection(seb, monkeypatch):
    monkeypatch.setattr(syslog_limits, "UNFINISHED_S_MAX", 0.05)
    async with listening(seb, "logs.slow") as syslog:
        reader, writer = await asyncio.open_connection("127.0.0.1", syslog.port)
        writer.write(b"<13>unfinished")
        assert await reader.read() == b""
        writer.close()
        assert counts(syslog)["seb_syslog_refusals_total"] == 1


async def test_tcp_waits_while_there_is_no_room_and_udp_drops(seb, monkeypatch):
    appends = type(seb.appliance.broker.appends)
    real, is_full = appends.append, True

    async def append(self, *given, **named):
        if is_full:
            raise OverloadedError("there is no room")
        return await real(self, *given, **named)

    monkeypatch.setattr(appends, "append", append)
    async with listening(seb, "logs.full") as syslog:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"<13>dropped", ("127.0.0.1", syslog.port))
        await send(syslog, b"<13>kept\n")
        await until(lambda: counts(syslog)["dropped"] == 1)
        is_full = False
        assert [one["value"] for one in await records(seb, "logs.full", 1)] == ["<13>kept"]


async def test_a_new_certificate_is_used_from_the_next_connection_on(seb, tmp_path):
    file = tmp_path / "server.pem"
    make_certificate(file)
    tls = Tls(file, None, "mqtt_tls_certificate")

    async def shown() -> bytes | None:
        theirs = ssl.create_default_context()
        theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", syslog.port, ssl=theirs)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return found

    async with listening(seb, "logs.renewed", senders=(), tls=tls.context) as syslog:
        first = await shown()
        assert not tls.renew()
        whole = file.read_text()
        file.write_text(whole[: len(whole) // 2])  # it is being written
        with pytest.raises(ConfigurationError, match="mqtt_tls_certificate"):
            tls.renew()
        assert await shown() == first
        make_certificate(file)
        assert tls.renew()
        assert await shown() not in (None, first)


async def test_tls_takes_senders_with_a_certificate_alone(seb, tmp_path):
    for name in ("server", "client"):
        make_certificate(tmp_path / f"{name}.pem")
    tls = tls_context(tmp_path / "server.pem", tmp_path / "client.pem", "syslog_tls_certificate")
    theirs = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
    theirs.check_hostname = False
    async with listening(seb, "logs.tls", senders=(), tls=tls) as syslog:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await send(syslog, b"<13>without\n", theirs)
        theirs.load_cert_chain(tmp_path / "client.pem")
        await send(syslog, b"<13>with\n", theirs)
        assert [one["value"] for one in await records(seb, "logs.tls", 1)] == ["<13>with"]


async def test_a_tls_handshake_that_does_not_begin_ends_the_connection(seb, tmp_path, monkeypatch):
    make_certificate(tmp_path / "server.pem")
    tls = tls_context(tmp_path / "server.pem", tmp_path / "server.pem", "syslog_tls_certificate")
    monkeypatch.setattr(syslog_limits, "HANDSHAKE_S_MAX", 0.05)
    async with listening(seb, "logs.silent", senders=(), tls=tls) as syslog:
        reader, writer = await asyncio.open_connection("127.0.0.1", syslog.port)
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()


async def test_a_tls_handshake_that_does_not_begin_counts_as_a_connection(
    seb, tmp_path, monkeypatch
):
    monkeypatch.setattr(syslog_limits, "CONNECTIONS_PER_ADDRESS_MAX", 2)
    make_certificate(tmp_path / "server.pem")
    tls = tls_context(tmp_path / "server.pem", tmp_path / "server.pem", "syslog_tls_certificate")
    async with listening(seb, "logs.shaking", senders=(), tls=tls) as syslog:
        opened = [await asyncio.open_connection("127.0.0.1", syslog.port) for _ in range(3)]
        assert await opened[2][0].read() == b""
        assert counts(syslog)["seb_syslog_connections"] == 2
        for _, writer in opened:
            writer.close()


async def test_a_port_that_is_taken_is_told(seb):
    async with listening(seb, "logs.first") as syslog:
        second = Syslog(seb.appliance.broker, ("127.0.0.1", syslog.port), "logs.first")
        with pytest.raises(ConfigurationError, match="syslog_listen"):
            await second.start()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"syslog_listen": "nowhere"}, "HOST:PORT"),
        ({"syslog_listen": "127.0.0.1:0"}, "who may send"),
        ({"syslog_listen": "127.0.0.1:0", "syslog_networks": "here"}, "syslog_networks"),
        ({"syslog_listen": "127.0.0.1:0", "syslog_tls_certificate": "a"}, "go together"),
    ],
)
async def test_settings_that_let_nobody_or_everybody_send_are_refused(tmp_path, settings, words):
    with pytest.raises(ConfigurationError, match=words):
        async with running_appliance(tmp_path, **settings):
            pass
