"""A quota on bytes out holds a stream back: it pauses, and goes on when there is more."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.appliance import RunningAppliance

pytestmark = pytest.mark.asyncio(loop_scope="module")

PER_SECOND = 60_000
RECORDS, RECORD_BYTES = 300, 1_000
STREAMS = {
    "one topic": "/v1/topics/quota/records?format=sse",
    "many topics": "/v1/records?topics=quota&format=sse",
    "Durable Streams": "/v1/stream/quota?offset=-1&live=sse",
}


async def key_of(seb: RunningAppliance, **quotas: int) -> tuple[str, str]:
    """Path and token of a new API key that may read."""
    members = {"name": "k", "grants": [{"operation": "consume"}], "quotas": quotas}
    made = (await seb.client.post("/v1/api-keys", json=members)).json()
    return f"/v1/api-keys/{made['api_key_id']}", made["secret"]


async def filled(seb: RunningAppliance) -> None:
    """A topic with 300 kB."""
    if (await seb.client.get("/v1/topics/quota")).status_code == 404:
        await seb.client.put("/v1/stream/quota", headers={"content-type": "text/plain"})
        records = [{"value": "x" * RECORD_BYTES}] * RECORDS
        made = await seb.client.post("/v1/topics/quota/records", json={"records": records})
        assert made.status_code == 201


async def received(seb: RunningAppliance, token: str, path: str, most: int) -> tuple[int, float]:
    """Bytes of a stream, and the seconds until there were `most`."""
    loop = asyncio.get_running_loop()
    begun_s, size = loop.time(), 0
    async with seb.client_with(token) as client, client.stream("GET", path) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for part in answer.aiter_raw():
            assert b"event: error" not in part
            size += len(part)
            if size >= most:
                break
    return size, loop.time() - begun_s


@pytest.mark.parametrize("path", STREAMS.values(), ids=STREAMS)
async def test_a_stream_of_a_key_with_a_quota_keeps_to_it(seb: RunningAppliance, path: str) -> None:
    await filled(seb)
    _, token = await key_of(seb, bytes_out_per_second=PER_SECOND)
    size, seconds = await received(seb, token, path, 200_000)
    part_bytes = 50_000  # of 32 KiB of records, as JSON
    assert size - part_bytes <= PER_SECOND * (1 + seconds)


async def test_an_arrow_stream_keeps_to_the_quota(
    seb: RunningAppliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from seb_appliance.api.routes.records import ranges as range_answers

    monkeypatch.setattr(range_answers, "PART", replace(range_answers.PART, max_records=30))
    await filled(seb)
    _, token = await key_of(seb, bytes_out_per_second=PER_SECOND)
    path = "/v1/topics/quota/records?format=arrow"
    size, seconds = await received(seb, token, path, RECORDS * RECORD_BYTES)
    assert size - 40_000 <= PER_SECOND * (1 + seconds)


async def test_a_stream_that_pauses_hears_pings_and_of_a_changed_key(
    seb: RunningAppliance,
) -> None:
    await filled(seb)
    path, token = await key_of(seb, bytes_out_per_second=100)
    followers = seb.appliance.broker.followers
    async with (
        seb.client_with(token) as client,
        client.stream("GET", STREAMS["one topic"]) as answer,
    ):
        parts = answer.aiter_raw()
        size = 0
        while size < 32_000:
            size += len(await anext(parts))
        followers._ring()
        assert b": ping" in await anext(parts)
        quotas = {"quotas": {"bytes_out_per_second": None}}
        assert (await seb.client.patch(path, json=quotas)).status_code == 200
        followers._ring()
        while size < RECORDS * RECORD_BYTES:
            size += len(await anext(parts))
