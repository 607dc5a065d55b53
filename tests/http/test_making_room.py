"""When all connections are open that may be, those make room that the appliance waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.api.server import http_protocol as making_room
from seb_appliance.broker.access.audit import AT_THE_MACHINE
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.raw_http import RawConnection, exchange

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def asking(seb: RunningAppliance, line: bytes, *headers: bytes) -> bytes:
    key = b"Authorization: Bearer " + seb.admin_key.encode()
    return b"\r\n".join([line + b" HTTP/1.1", b"Host: x", key, *headers, b"", b""])


async def opened(seb: RunningAppliance, sent: bytes = b"") -> RawConnection:
    connection = await RawConnection.open(seb.port)
    await connection.send(sent)
    return connection


async def newcomer(seb: RunningAppliance) -> RawConnection:
    """Asks, is answered, and stays."""
    connection = await opened(seb, GET)
    assert (await connection.answer()).status == 200
    return connection


async def until_waited_for(seb: RunningAppliance, kinds: list[int | None]) -> None:
    """Until the connections are waited for so, in the order in which they make room."""
    async with asyncio.timeout(20):
        while True:
            found = [one.waited_for for one in seb.server.server_state.connections]
            ranks = sorted(rank for rank in found if rank is not None)
            if [kind for kind, _ in ranks] + [None] * found.count(None) == kinds:
                return
            await asyncio.sleep(0)


@pytest.mark.parametrize("fast_lane", [True, False])
async def test_who_is_waited_for_longest_makes_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast_lane: bool
) -> None:
    monkeypatch.setattr(making_room, "AT_ONCE", 1)
    async with running_appliance(tmp_path / "seb", fast_lane=fast_lane) as seb:
        once = b"Connection: close"
        produce = asking(seb, b"POST /v1/topics/t/records", once, b"Content-Length: 1") + b"x"
        assert (await exchange(seb.port, produce)).status == 201
        await until_waited_for(seb, [])
        reading = await opened(seb, asking(seb, b"GET /v1/topics/t/records?offset=1&wait=60s"))
        idle = await newcomer(seb)
        append = asking(seb, b"POST /v1/topics/t/records", b"Content-Length: 9")
        body = await opened(seb, append + b"half")
        head = await opened(seb, GET[:-2])
        silent = await opened(seb)
        await until_waited_for(seb, [0, 0, 1, 2, None])
        monkeypatch.setattr(limits, "CONNECTIONS_MAX", 5)
        come = []
        for slow in (head, silent, body, idle):
            come.append(await newcomer(seb))
            assert await slow.ended()
        assert seb.appliance.broker.pending.used == 0
        assert (await exchange(seb.port, produce)).status == 201
        answer = await reading.answer()
        assert (answer.status, answer.problem["records"][0]["value"]) == (200, "x")
        for connection in (reading, idle, body, head, silent, *come):
            await connection.close()


async def test_who_is_being_answered_makes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_appliance(tmp_path / "seb") as seb:
        await seb.appliance.broker.topics.create("t", TopicSettings(), AT_THE_MACHINE)
        reading = await opened(seb, asking(seb, b"GET /v1/topics/t/records?offset=0&wait=60s"))
        await until_waited_for(seb, [None])
        monkeypatch.setattr(limits, "CONNECTIONS_MAX", 1)
        answer = await exchange(seb.port, GET)
        assert (answer.status, answer.code, answer.closed) == (503, "overloaded", True)
        await until_waited_for(seb, [None])
        await reading.close()
