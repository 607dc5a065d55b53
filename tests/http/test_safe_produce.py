"""Retrying over HTTP: Idempotency-Key, producers' seqs, appends at an expected position."""

from __future__ import annotations

import asyncio
import gzip

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")


def once(key: str, **more: str) -> dict[str, str]:
    return {"idempotency-key": key, **more}


def producer(seq: int, epoch: int = 0, name: str = "p") -> dict[str, str]:
    return {"producer-id": name, "producer-epoch": str(epoch), "producer-seq": str(seq)}


async def post(seb, topic, headers, content=b"v", client=None, query=""):
    path = f"/v1/topics/{topic}/records{query}"
    return await (client or seb.client).post(path, content=content, headers=headers)


async def values(seb, topic):
    answer = await seb.client.get(f"/v1/topics/{topic}/records")
    return [record["value"] for record in answer.json()["records"]]


# --- Idempotency-Key ---


async def test_a_repeat_gets_the_same_answer_and_says_so(seb):
    first = await post(seb, "once", once("a"))
    again = await post(seb, "once", once("a"))
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["seb-durability"] == "memory"
    assert await values(seb, "once") == ["v"]


async def test_repeats_sent_at_once_store_one_record(seb):
    answers = await asyncio.gather(*(post(seb, "burst", once("k")) for _ in range(20)))
    assert {answer.content for answer in answers} == {answers[0].content}
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 19
    assert await values(seb, "burst") == ["v"]


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b"w", {}),
        (b"v", {"seb-key": "k"}),
        (b"v", {"seb-timestamp": "2026-01-01T00:00:00Z"}),
        (b"v", {"seb-header-a": "b"}),
        (b"v", {"content-type": "text/plain"}),
        (b"", {}),
    ],
)
async def test_another_request_under_the_same_key_is_refused(seb, content, headers):
    await post(seb, "mismatch", once("k"))
    answer = await post(seb, "mismatch", once("k", **headers), content)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_mismatch")
    assert answer.json()["side_effects"] == "none"
    assert await values(seb, "mismatch") == ["v"]


async def test_the_same_body_is_the_same_however_it_travels(seb):
    first = await post(seb, "travels", once("k"))
    packed = await post(
        seb, "travels", once("k", **{"content-encoding": "gzip"}), gzip.compress(b"v")
    )
    patient = await post(seb, "travels", once("k", **{"seb-timeout": "5s"}))
    assert packed.content == patient.content == first.content


async def test_a_large_body_is_told_from_another(seb):
    body = b"x" * 1_000_000
    await post(seb, "large", once("k"), body)
    assert (await post(seb, "large", once("k"), body)).headers["idempotency-replayed"] == "true"
    assert (await post(seb, "large", once("k"), body[:-1] + b"y")).status_code == 422


async def test_a_key_counts_for_one_topic_and_one_api_key(seb):
    made = await seb.client.post(
        "/v1/api-keys", json={"name": "other", "grants": [{"operation": "admin"}]}
    )
    await post(seb, "mine", once("k"))
    assert "idempotency-replayed" not in (await post(seb, "yours", once("k"))).headers
    async with seb.client_with(made.json()["secret"]) as other:
        answer = await post(seb, "mine", once("k"), client=other)
    assert answer.status_code == 201
    assert "idempotency-replayed" not in answer.headers
    assert await values(seb, "mine") == ["v", "v"]


async def test_a_request_that_was_refused_may_be_sent_again(seb):
    await seb.client.put("/v1/topics/tight", json={"max_record_bytes": 1})
    assert (await post(seb, "tight", once("k"), b"vv")).status_code == 413
    await seb.client.patch("/v1/topics/tight", json={"max_record_bytes": 2})
    answer = await post(seb, "tight", once("k"), b"vv")
    assert answer.status_code == 201
    assert "idempotency-replayed" not in answer.headers


@pytest.mark.parametrize("key", ["k", "x" * 255, '"quoted"', "!~", "a:b/c=d"])
async def test_any_visible_text_is_a_key(seb, key):
    assert (await post(seb, "keys", once(key))).status_code == 201
    assert (await post(seb, "keys", once(key))).headers["idempotency-replayed"] == "true"


# --- producers ---


async def test_a_duplicate_is_answered_with_200_and_the_first_offsets(seb):
    first = await post(seb, "seqs", producer(0))
    await post(seb, "seqs", producer(1))
    again = await post(seb, "seqs", producer(0))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.content == first.content
    assert await values(seb, "seqs") == ["v", "v"]


async def test_a_producer_of_another_api_key_uses_up_no_seqs_and_ends_no_epoch(seb):
    body = {"name": "other", "grants": [{"operation": "produce"}]}
    made = await seb.client.post("/v1/api-keys", json=body)
    await seb.client.put("/v1/topics/shared", json={})
    async with seb.client_with(made.json()["secret"]) as other:
        for epoch in (0, 7):
            for seq in range(7):
                await post(seb, "shared", producer(seq, epoch), b"theirs", other)
            answer = await post(seb, "shared", producer(epoch // 7), b"mine")
            assert answer.status_code == 201
    assert await values(seb, "shared") == (["theirs"] * 7 + ["mine"]) * 2


async def test_the_offsets_of_an_older_duplicate_are_null(seb):
    for seq in range(6):
        await post(seb, "older", producer(seq))
    answer = await post(seb, "older", producer(0))
    assert answer.status_code == 200
    told = answer.json()
    assert told.pop("topic_id") > 0
    assert told == {
        "topic": "older",
        "offset": None,
        "count": None,
        "last_offset": None,
        "timestamp": None,
    }


async def test_a_repeat_is_compared_by_its_checksum(seb):
    for number, status in (("7", 201), ("7", 200), ("8", 422)):
        answer = await post(seb, "checked", {**producer(0), "producer-checksum": number})
        assert answer.status_code == status
    assert answer.json()["code"] == "idempotency_mismatch"
    alone = await post(seb, "checked", {"producer-checksum": "7"})
    assert (alone.status_code, alone.json()["code"]) == (400, "bad_parameter")
    assert len(await values(seb, "checked")) == 1


async def test_a_gap_tells_what_is_expected_and_what_came(seb):
    await post(seb, "gaps", producer(0))
    answer = await post(seb, "gaps", producer(7))
    assert (answer.status_code, answer.json()["code"]) == (409, "sequence_gap")
    assert (answer.json()["expected"], answer.json()["received"]) == (1, 7)


async def test_an_older_epoch_is_forbidden(seb):
    await post(seb, "epochs", producer(0, epoch=2**53 - 1))
    answer = await post(seb, "epochs", producer(1, epoch=4))
    assert (answer.status_code, answer.json()["code"]) == (403, "stale_epoch")
    assert answer.json()["current_epoch"] == 2**53 - 1


async def test_seqs_in_flight_together_are_taken_in_order(seb):
    answers = await asyncio.gather(
        *(post(seb, "pipeline", producer(seq), b"%d" % seq) for seq in range(20))
    )
    taken = [answer for answer in answers if answer.status_code == 201]
    assert taken
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert await values(seb, "pipeline") == [str(n) for n in range(len(taken))]


# --- an expected position ---


@pytest.mark.parametrize("how", ["query", "header"])
async def test_an_append_at_the_expected_position(seb, how):
    async def append(offset):
        if how == "query":
            return await post(seb, f"cas.{how}", {}, query=f"?expected_offset={offset}")
        return await post(seb, f"cas.{how}", {"if-match": f'"{offset}"'})

    assert [(await append(n)).status_code for n in range(3)] == [201, 201, 201]
    refused = await append(1)
    assert (refused.status_code, refused.json()["code"]) == (412, "precondition_failed")
    assert refused.json()["log_end_offset"] == 3


async def test_of_many_at_one_position_one_wins(seb):
    answers = await asyncio.gather(
        *(post(seb, "race", {"if-match": '"0"'}, b"%d" % n) for n in range(20))
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [201] + [412] * 19
    assert len(await values(seb, "race")) == 1
