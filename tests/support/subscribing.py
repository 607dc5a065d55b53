"""What tests of subscriptions do over HTTP with a running appliance."""

from __future__ import annotations

import asyncio

QUICK = {"retry": {"min_ms": 1, "max_ms": 1}, "max_deliveries": 20}


async def subscribe(seb, name, url, queue=None, status=201, **settings):
    if queue is not None:
        made = await seb.client.put(
            f"/v1/queues/{name}", json={"topics": [f"of-{name}"], **QUICK, **queue}
        )
        assert made.status_code == 201, made.text
    wanted = {"topics": [f"of-{name}"], "url": url, **settings}
    found = await seb.client.put(f"/v1/subscriptions/{name}", json=wanted)
    assert found.status_code == status, found.text
    return found.json()


async def produce(seb, name, *values, **headers):
    for value in values:
        sent = await seb.client.post(
            f"/v1/topics/of-{name}/records", content=value, headers=headers
        )
        assert sent.status_code == 201, sent.text


async def show(seb, name):
    return (await seb.client.get(f"/v1/subscriptions/{name}")).json()


async def log(seb, name):
    found = await seb.client.get(f"/v1/subscriptions/{name}/deliveries")
    return found.json()["deliveries"][::-1]


async def until(condition):
    async with asyncio.timeout(20):
        while not (found := await condition()):
            await asyncio.sleep(0)
        return found


async def acked(seb, name, count):
    async def look():
        (topic,) = (await seb.client.get(f"/v1/queues/{name}")).json()["topics"]
        return topic["acked"] == count and topic["waiting"] == 0

    await until(look)


async def in_state(seb, name, state):
    async def look():
        found = await show(seb, name)
        return found if found["state"] == state else None

    return await until(look)
