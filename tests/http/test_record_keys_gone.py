"""Record keys of what is gone: trimmed, or deleted while others ask and produce."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from itertools import count

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

BINARY = [b"\xff\xfe/", b"\xff\xff", b"\xff\xff\0", b"\xfe", b"\0\xff", b""]


async def make(seb, topic: str) -> None:
    answer = await seb.client.put(f"/v1/topics/{topic}", json={"key_index": "history"})
    assert answer.status_code == 201


async def put(seb, topic: str, key: bytes, value: str) -> int:
    """Produce one record; the status of the answer."""
    record = {"key_base64": base64.b64encode(key).decode(), "value": value}
    answer = await seb.client.post(f"/v1/topics/{topic}/records", json={"records": [record]})
    return answer.status_code


@pytest.mark.parametrize("prefix", [b"", b"\xff", b"\xff\xff", b"\xff\xfe/", b"\0", b"\xfd"])
async def test_a_prefix_of_binary_bytes_finds_the_record_keys_that_begin_so(seb, prefix):
    topic = f"binary.{prefix.hex() or 'none'}"
    await make(seb, topic)
    for key in BINARY:
        await put(seb, topic, key, "v")
    question = {"prefix_base64": base64.b64encode(prefix).decode(), "fresh": True}
    answer = await seb.client.post(f"/v1/topics/{topic}/keys", json=question)
    found = [
        base64.b64decode(row["key_base64"]) if "key_base64" in row else row["key"].encode()
        for row in answer.json()["keys"]
    ]
    assert found == sorted(key for key in BINARY if key.startswith(prefix))


async def test_a_trim_takes_its_rows_out_of_the_index_without_a_further_record(seb):
    await make(seb, "trimmed")
    for n in range(10):
        await put(seb, "trimmed", b"k%d" % n, "v")
    listed = await seb.client.get("/v1/topics/trimmed/keys?fresh=true")
    topic_id = listed.json()["topic_id"]
    await seb.client.post("/v1/topics/trimmed/trim", json={"before": 7})
    keys = (await seb.client.get("/v1/topics/trimmed/keys?fresh=true")).json()["keys"]
    assert [row["key"] for row in keys] == ["k7", "k8", "k9"]
    await make(seb, "behind")
    await put(seb, "behind", b"k", "v")
    await seb.client.get("/v1/topics/behind/keys?fresh=true")  # taken in behind what came before
    connection = sqlite3.connect(seb.appliance.settings.data / "keyindex.sqlite")
    question = "SELECT count(*), min(offset) FROM history WHERE topic_id = ?"
    assert connection.execute(question, (topic_id,)).fetchone() == (3, 7)
    connection.close()


async def test_a_topic_is_deleted_and_made_anew_while_others_ask_and_produce(seb):
    """Nobody gets a 500, and nothing of an old topic shows in a later one."""
    over, statuses = asyncio.Event(), set()

    async def asking(path: str) -> None:
        while not over.is_set():
            answer = await seb.client.get(f"/v1/topics/churned{path}")
            if answer.status_code == 503:  # the index of an old topic ended under the question
                assert "being rebuilt" in answer.json()["detail"]
            else:
                statuses.add(answer.status_code)

    async def producing() -> None:
        for n in count():
            if over.is_set():
                return
            statuses.add(await put(seb, "churned", b"others", str(n)))

    await make(seb, "churned")
    paths = ["/keys?fresh=true", "/keys/latest?key=others", "/keys/history?key=others", "/records"]
    others = [asyncio.create_task(asking(path)) for path in paths]
    others.append(asyncio.create_task(producing()))
    for generation in range(8):
        await put(seb, "churned", b"own-%d" % generation, "v")
        question = "/v1/topics/churned/keys?prefix=own&fresh=true"
        while (answer := await seb.client.get(question)).status_code == 503:
            assert "being rebuilt" in answer.json()["detail"]
        keys = answer.json()["keys"]
        assert [row["key"] for row in keys] == [f"own-{generation}"]
        await seb.client.delete("/v1/topics/churned")
        # The producer may have made it already, as topics are made by producing to them.
        answer = await seb.client.put("/v1/topics/churned", json={})
        assert answer.status_code in (200, 201)
        await seb.client.patch("/v1/topics/churned", json={"key_index": "history"})
    over.set()
    await asyncio.gather(*others)
    assert statuses <= {200, 201, 404, 409}, statuses
