"""Records are taken and acknowledged alike by the fast lane and by the application."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.both_lanes import Both, Case, both_lanes
from tests.support.lanes import Lane, masked

_TYPE = ("Content-Type: application/json",)
_VARYING = re.compile(rb'"(?:delivery|first_delivered|timestamp)":"[^"]*"')


def case(verb: str, body: bytes, key: str | None = None) -> Case:
    return Case(verb, path=f"/v1/queues/q/{verb}", headers=_TYPE, body=body, key=key)


async def asked(
    both: Both, verb: str, bodies: tuple[bytes, bytes], key: str = "admin"
) -> list[bytes]:
    """What each lane answers to its own body."""
    said = []
    for (name, seb), body in zip((("fast", both.fast), ("slow", both.slow)), bodies, strict=True):
        lane = Lane(seb)
        said.append(await lane.answers(case(verb, body, key).request(both.keys[name])))
        lane.leave()
    first, second = (
        _VARYING.sub(b"", re.sub(rb"(?i)content-length: \d+", b"", masked(one))) for one in said
    )
    assert first == second
    return [one.partition(b"\r\n\r\n")[2] for one in said]


def deliveries(answers: list[bytes]) -> list[list[str]]:
    return [[one["delivery"] for one in json.loads(answer)["records"]] for answer in answers]


async def produced(both: Both, *values: str) -> None:
    for seb in (both.fast, both.slow):
        records = [{"key": "k", "value": value, "headers": {"h": "1"}} for value in values]
        await seb.client.post("/v1/topics/jobs/records", json={"records": records})


async def queue(both: Both) -> None:
    for seb in (both.fast, both.slow):
        await seb.client.put("/v1/queues/q", json={"topics": ["jobs"]})


async def test_both_lanes_hand_out_and_acknowledge_alike(tmp_path: Path) -> None:
    async with both_lanes(tmp_path) as both:
        await queue(both)
        await produced(both, "one", "two", "three", "four")
        # The first request of a queue wakes it, in the application.
        first = deliveries(await asked(both, "take", (b'{"max": 1}',) * 2))
        before = both.fast.server.plain_answers.answered
        second = deliveries(await asked(both, "take", (b'{"max": 1, "values": "base64"}',) * 2))
        third = deliveries(await asked(both, "take", (b'{"max": 2, "lease_ms": 9000}',) * 2))
        assert [len(one[0]) for one in (first, second, third)] == [1, 1, 2]
        fast, slow = (
            json.dumps({"deliveries": a + b}).encode() for a, b in zip(first, second, strict=True)
        )
        answers = await asked(both, "ack", (fast, slow))
        assert json.loads(answers[0]) == {"results": ["ok", "ok"]}
        assert both.fast.server.plain_answers.answered - before == 3
        assert both.slow.server.plain_answers.answered == 0
        again = await asked(both, "ack", (fast, slow))
        assert json.loads(again[0]) == {"results": ["settled", "settled"]}
        for seb in (both.fast, both.slow):
            (topic,) = (await seb.client.get("/v1/queues/q")).json()["topics"]
            assert (topic["waiting"], topic["acked"]) == (2, 2)


@pytest.mark.parametrize(
    ("verb", "body", "key"),
    [
        ("take", b'{"max": 0}', "admin"),
        ("take", b'{"max": 1', "admin"),
        ("take", b"", "admin"),
        ("take", b'{"more": 1}', "admin"),
        ("take", b'{"max": 1000}', "admin"),
        ("take", b"{}", "producer"),
        ("take", b"{}", "none"),
        ("take", b"{}", "limited"),
        ("ack", b'{"deliveries": []}', "admin"),
        ("ack", b'{"deliveries": ["x"]}', "admin"),
        ("ack", b'{"deliveries": ["x"]}', "producer"),
    ],
)
async def test_both_lanes_refuse_alike(tmp_path: Path, verb: str, body: bytes, key: str) -> None:
    async with both_lanes(tmp_path) as both:
        await queue(both)
        await produced(both, "one")
        await asked(both, verb, (body, body), key)
        await asked(both, verb, (body, body), key)


async def test_what_comes_in_pieces_is_taken_alike(tmp_path: Path) -> None:
    async with both_lanes(tmp_path) as both:
        await queue(both)
        await produced(both, *(str(n) for n in range(20)))
        one = case("take", b'{"max": 1}')
        for cut in (-1, -5, 30, 200):
            for name, seb in (("fast", both.fast), ("slow", both.slow)):
                request = one.request(both.keys[name])
                lane = Lane(seb)
                said = await lane.answers(request[:cut], request[cut:])
                assert said.startswith(b"HTTP/1.1 200"), said
                assert len(json.loads(said.partition(b"\r\n\r\n")[2])["records"]) == 1
                lane.leave()
