"""What the tables of bad input share: refused with the documented code, nothing stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

RECORDS = "/v1/topics/target/records"
JSON = {"content-type": "application/json"}


@asynccontextmanager
async def nothing_happens(seb) -> AsyncIterator[None]:
    """Nothing is stored inside the block, and the next good request works."""
    await seb.client.put("/v1/topics/target")
    before = (await seb.client.get("/v1/topics")).json()["topics"]
    keys = await _api_keys(seb)
    actions = (await seb.client.get("/v1/audit")).json()
    yield
    assert (await seb.client.get("/v1/topics")).json()["topics"] == before
    assert await _api_keys(seb) == keys
    assert (await seb.client.get("/v1/audit")).json() == actions
    assert (await seb.client.get("/healthz")).status_code == 200
    assert seb.appliance.broker.pending.used == 0
    assert seb.appliance.broker.reading.used == 0


async def _api_keys(seb) -> list[dict]:
    """All of them, but for when they were last used."""
    listed = (await seb.client.get("/v1/api-keys")).json()["api_keys"]
    return [{name: key[name] for name in key if name != "last_used"} for key in listed]


async def refused(seb, method, path, status, code, **request):
    answer = await seb.client.request(method, path, **request)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.json()["side_effects"] == "none"
    return answer.json()
