"""How many product files a plain append and a plain read pass through, from bytes in to bytes out.

Every file counts of which a function runs on the event loop until the answer is written, helpers
such as clocks and counters too. A long path is hard to read: lower a bound whenever that is
possible. A failure shows the list.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import seb_appliance
from tests.support.appliance import running_appliance
from tests.support.lanes import Lane

PRODUCT = str(Path(seb_appliance.__file__).parent) + "/"

APPEND = """POST /v1/topics/t/records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\
Content-Type: application/octet-stream\r\nContent-Length: 3\r\n\r\nabc"""
READ = """GET /v1/topics/t/records?offset=0&max_records=1 HTTP/1.1\r\nHost: x\r\n\
Authorization: Bearer {key}\r\n\
Accept: application/x-ndjson\r\n\r\n"""


class _Asked(Lane):
    """A connection that resolves `answered` with the first bytes of an answer."""

    answered: asyncio.Future[None]

    def write(self, data: Any) -> None:
        sys.setprofile(None)
        if not self.answered.done():
            self.answered.set_result(None)

    def writelines(self, parts: Any) -> None:
        self.write(parts)

    async def ask(self, request: bytes) -> None:
        self.answered = asyncio.get_running_loop().create_future()
        self.protocol.data_received(request)
        await self.answered


async def passed_through(request: str, folder: Path) -> dict[str, list[str]]:
    """The functions that ran in each file, for a request that was sent before."""
    functions: dict[str, list[str]] = {}

    def called(frame: FrameType, event: str, _argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PRODUCT):
            names = functions.setdefault(path.removeprefix(PRODUCT), [])
            if frame.f_code.co_name not in names:
                names.append(frame.f_code.co_name)

    async with running_appliance(folder, tidier=False) as seb:
        await seb.client.put("/v1/topics/t", json={})
        connection = _Asked(seb)
        for one in (APPEND, request, request):
            await connection.ask(one.format(key=seb.admin_key).encode())
            for _ in range(100):  # turns of the loop: what is left to do after the answer
                await asyncio.sleep(0)
            functions.clear()
            sys.setprofile(called)
            await connection.ask(one.format(key=seb.admin_key).encode())
        connection.leave()
    return functions


@pytest.mark.parametrize(("request_", "bound"), [(APPEND, 40), (READ, 20)], ids=["append", "read"])
async def test_a_plain_request_passes_through_few_files(
    request_: str, bound: int, tmp_path: Path
) -> None:
    functions = await passed_through(request_, tmp_path)
    shown = "\n".join(f"{path}: {', '.join(names)}" for path, names in functions.items())
    assert len(functions) <= bound, f"{len(functions)} files\n{shown}"
