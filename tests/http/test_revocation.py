"""What was on its way when an API key lost its rights: reads that wait, and bodies that come."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
import pytest_asyncio

from tests.http.bad_input import nothing_happens
from tests.support.appliance import running_appliance
from tests.support.raw_http import RawConnection

pytestmark = pytest.mark.asyncio(loop_scope="module")

READ = [{"operation": "consume", "topics": "t"}]
ALL = [{"operation": name, "topics": "**"} for name in ("consume", "produce", "manage")]
# What happens to the key meanwhile, and what a request is told that was let in before.
CHANGES = {
    "disabled": ({"disabled": True}, {401}),
    "lost its grant": ({"grants": [{"operation": "produce", "topics": "others"}]}, {403, 503}),
    "renamed": ({"name": "renamed"}, {200, 201, 204}),
}
WAITING = {
    "a topic": "/v1/topics/t/records?offset={end}&wait=20s",
    "a record key": "/v1/topics/t/records?offset={end}&wait=20s&key=k",
    "a group": "/v1/groups/g/topics/t/records?wait=20s&default=latest",
    "many topics": "/v1/records?topics=t&offset=latest&wait=20s&format=json",
    "a stream": "/v1/stream/t?offset={token}&live=long-poll",
    "the Go broker's": "/records?topic-name=t&offset={end}&timeout=20s",
}
BODIES = {
    "records": ("POST", "/v1/topics/t/records", b'{"records": [{"value": 1}]}'),
    "a transaction": ("POST", "/v1/transactions", b'{"produce": {"t": [{"value": 1}]}}'),
    "a stream": ("POST", "/v1/stream/t", b'{"value": 1}'),
    "a commit": ("PUT", "/v1/groups/g/offsets", b'{"offsets": {"t": 0}}'),
    "a lease": ("POST", "/v1/groups/g/lease", b'{"holder": "h", "ttl_ms": 1000}'),
    "settings": ("PATCH", "/v1/topics/t", b'{"linger_ms": 7}'),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[True, False])
async def lanes(tmp_path_factory, request):
    """An appliance with the fast lane, and one without."""
    data = tmp_path_factory.mktemp("seb")
    async with running_appliance(data, fast_lane=request.param) as running:
        headers = {"content-type": "application/json"}
        await running.client.put("/v1/stream/t", headers=headers)
        yield running


async def key_with(seb, grants):
    answer = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})
    return answer.json()


async def changed(seb, key, change):
    url = f"/v1/api-keys/{key['api_key_id']}"
    assert (await seb.client.patch(url, json=change)).status_code == 200


async def waits(seb, reading):
    """Until the read does."""
    broker = seb.appliance.broker
    while not (broker.waiting_readers or broker.followers.count):
        assert not reading.done(), reading.result().text
        await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", WAITING)
async def test_a_read_that_waits_looks_at_its_key_again(lanes, where, change):
    key = await key_with(lanes, READ)
    end = (await lanes.client.get("/v1/topics/t")).json()["log_end_offset"]
    url = WAITING[where].format(end=end, token=f"{end:016d}_{0:016d}")
    accept = {"accept": "multipart/form-data"} if where.startswith("the Go") else {}
    async with lanes.client_with(key["secret"]) as client:
        reading = asyncio.create_task(client.get(url, headers=accept))
        await waits(lanes, reading)
        await changed(lanes, key, CHANGES[change][0])
        record = {"records": [{"key": "k", "value": "secret"}]}
        await lanes.client.post("/v1/topics/t/records", json=record)
        answer = await reading
        assert answer.status_code in CHANGES[change][1], answer.text
        assert ("secret" in answer.text) == answer.is_success
        if not answer.is_success:  # and if it asks once more
            again = (await client.get(url, headers=accept)).status_code
            assert again in (CHANGES[change][1] - {503})


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("what", BODIES)
async def test_a_body_is_refused_at_its_end(lanes, what, change):
    method, path, body = BODIES[what]
    key = await key_with(lanes, ALL)
    connection = await RawConnection.open(lanes.port)
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key['secret']}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    await connection.send(head.encode() + body[:5])
    await arrives(lanes)
    await changed(lanes, key, CHANGES[change][0])
    is_good = change == "renamed"
    async with contextlib.nullcontext() if is_good else nothing_happens(lanes):
        await connection.send(body[5:])
        answer = await connection.answer()
    assert answer.status in CHANGES[change][1], answer
    assert is_good or json.loads(answer.body)["side_effects"] == "none"
    await connection.close()


async def arrives(seb):
    """Until a body does."""
    while not seb.appliance.broker.pending.used:
        await asyncio.sleep(0)
