"""The fault proxy as a process, as the crash tests use it."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace

import pytest

from seb_appliance.errors import StoreUncertainError
from seb_appliance.storage.stores.s3 import S3Store
from tests.support.faultproxy import control
from tests.support.servers.s3_server import S3Server


async def test_the_proxy_obeys_its_control_port(moto_server: S3Server) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.faultproxy"),
        *("0", str(moto_server.port), "0"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    ports = json.loads(await process.stdout.readline())
    url = f"http://127.0.0.1:{ports['port']}"
    store = S3Store(replace(moto_server.new_bucket(), endpoint_url=url))
    try:
        rule = {"action": "flip", "method": "GET", "match": "/flipped", "count": 1}
        assert (
            await asyncio.to_thread(control, ports["control"], f"rule {json.dumps(rule)}") == "ok"
        )
        await store.put("flipped", b"a")
        assert await store.get("flipped") == b"`"
        assert await store.get("flipped") == b"a"
        rule = {"action": "lie412", "method": "PUT", "skip": 1}
        assert (
            await asyncio.to_thread(control, ports["control"], f"rule {json.dumps(rule)}") == "ok"
        )
        await store.put("skipped", b"a")
        with pytest.raises(StoreUncertainError):
            await store.put("lied about", b"a")
        assert await asyncio.to_thread(control, ports["control"], "clear") == "ok"
        assert await store.get("lied about") == b"a"
        assert await asyncio.to_thread(control, ports["control"], "stats") == {
            "requests": {"PUT": 3, "GET": 3},
            "faults": {"flip": 1, "lie412": 1},
        }
    finally:
        await store.close()
        process.kill()
        await process.wait()
