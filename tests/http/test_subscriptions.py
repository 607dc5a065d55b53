"""Subscriptions over HTTP, to real receivers: what is sent, when again, and what ends it."""

from __future__ import annotations

import asyncio
import email.utils
import json
import shutil
import time

import pytest
import pytest_asyncio
from standardwebhooks import Webhook

from seb_appliance.protocols.subscriptions.running import Subscriptions
from tests.support.appliance import hold_creates, running_appliance
from tests.support.documented import check_documented
from tests.support.receiver import OK, answer, receiving
from tests.support.subscribing import acked, in_state, log, produce, show, subscribe, until

LARGE = b"\1" * 300_000  # it is written in pieces
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory):
    local = {"push_networks": "127.0.0.0/8"}
    async with running_appliance(tmp_path_factory.mktemp("push"), **local) as running:
        running.client.event_hooks = {"response": [check_documented]}
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def receiver():
    async with receiving() as one:
        yield one


async def test_a_record_is_sent_signed_and_acknowledged(seb, receiver):
    made = await subscribe(seb, "first", receiver.url)
    await produce(seb, "first", b'{"total": 21}')
    (got,) = await receiver.arrived(1)
    await acked(seb, "first", 1)
    assert got.line == "POST /hook?a=b HTTP/1.1"
    assert got.body == b'{"total": 21}'
    assert got.headers["content-type"] == "application/json"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert (got.headers["seb-topic"], got.headers["seb-offset"]) == ("of-first", "0")
    assert Webhook(made["secret"]).verify(got.body, got.headers) == {"total": 21}
    (sent,) = await log(seb, "first")
    assert (sent["outcome"], sent["status"]) == ("delivered", 204)
    assert sent["id"] == got.headers["webhook-id"]


async def test_a_failed_request_is_sent_again_under_the_same_id(seb, receiver):
    receiver.answers.extend([answer(503, body=b"not today"), answer(404), b"SSH-2.0\r\n\r\n"])
    await subscribe(seb, "again", receiver.url, queue={})
    await produce(seb, "again", b"one")
    got = await receiver.arrived(4)
    await acked(seb, "again", 1)
    assert len({one.headers["webhook-id"] for one in got}) == 1
    assert [one.headers["seb-attempt"] for one in got] == ["1", "2", "3", "4"]
    sent = await log(seb, "again")
    assert [one["status"] for one in sent] == [503, 404, 0, 204]
    assert sent[0]["detail"] == "not today"
    await produce(seb, "again", b"two")
    assert (await receiver.arrived(5))[4].headers["webhook-id"] != got[0].headers["webhook-id"]


async def test_a_record_that_fails_too_often_becomes_a_dead_letter(seb, receiver):
    receiver.answers.extend([answer(500), answer(500)])
    queue = {"max_deliveries": 2, "dead_letter": "dead-pushes"}
    await subscribe(seb, "dying", receiver.url, queue=queue)
    await produce(seb, "dying", b"one")

    async def dead():
        found = await seb.client.get("/v1/topics/dead-pushes/records")
        return found.status_code == 200 and found.json()["records"]

    (letter,) = await until(dead)
    assert letter["headers"]["seb-dead-reason"] == "max_deliveries"


async def test_other_topics_of_a_queue_with_dead_letters_need_a_grant_for_these(seb):
    for topic in ("guarded", "others"):
        await seb.client.put(f"/v1/topics/{topic}", json={})
    queue = {"topics": ["guarded"], "dead_letter": "guarded-dead"}
    assert (await seb.client.put("/v1/queues/guarded", json=queue)).status_code == 201
    grants = [
        {"operation": operation, "topics": topic}
        for operation in ("manage", "consume")
        for topic in ("guarded", "others")
    ]
    made = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})
    async with seb.client_with(made.json()["secret"]) as client:
        for topics, status in ((["guarded", "others"], 403), (["guarded"], 201), (None, 200)):
            asked = {"url": "https://a.example/", **({"topics": topics} if topics else {})}
            got = await client.put("/v1/subscriptions/guarded", json=asked)
            assert got.status_code == status, got.text
    assert (await seb.client.delete("/v1/subscriptions/guarded")).status_code == 204


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_receiver_may_ask_for_a_pause_that_counts_against_no_record(
    seb, receiver, status, form
):
    name = f"pause-{status}-{form}"
    said = "3000" if form == "seconds" else email.utils.formatdate(time.time() + 3000, usegmt=True)
    receiver.answers.append(answer(status, f"Retry-After: {said}"))
    await subscribe(seb, name, receiver.url, queue={"max_deliveries": 1}, concurrency=1)
    await produce(seb, name, b"one")
    await receiver.arrived(1)

    async def put_off():
        return [one["outcome"] for one in await log(seb, name)] == ["put_off"]

    await until(put_off)
    worker = seb.appliance.beside[Subscriptions].worker(
        seb.appliance.beside[Subscriptions].find(name)
    )
    rests_s = worker._rests_until_s - seb.appliance.clock.monotonic_s()
    assert 2900 < rests_s <= 3001
    await seb.client.post(f"/v1/subscriptions/{name}/resume")  # the owner knows better
    got = await receiver.arrived(2)
    await acked(seb, name, 1)
    assert got[1].headers["seb-attempt"] == "1"


async def test_410_disables_a_subscription_until_it_is_resumed(seb, receiver):
    receiver.answers.append(answer(410))
    await subscribe(seb, "gone", receiver.url, queue={"max_deliveries": 1})
    await produce(seb, "gone", b"one")
    found = await in_state(seb, "gone", "disabled")
    assert "410" in found["why"]
    metrics = (await seb.client.get("/metrics")).text
    assert 'seb_subscriptions{state="disabled"} 1' in metrics
    await seb.client.post("/v1/subscriptions/gone/resume")
    await receiver.arrived(2)
    await acked(seb, "gone", 1)


async def test_a_paused_subscription_sends_nothing_but_a_test(seb, receiver):
    await subscribe(seb, "paused", receiver.url)
    paused = await seb.client.post("/v1/subscriptions/paused/pause")
    assert paused.json()["state"] == "paused"
    await produce(seb, "paused", b"one")
    tested = (await seb.client.post("/v1/subscriptions/paused/test")).json()
    assert (tested["outcome"], tested["status"]) == ("test", 204)
    assert [json.loads(one.body)["type"] for one in receiver.got] == ["seb.test"]
    changed = await seb.client.put("/v1/subscriptions/paused", json={"url": receiver.url})
    assert changed.json()["state"] == "paused"
    await seb.client.post("/v1/subscriptions/paused/resume")
    await receiver.arrived(2)
    await acked(seb, "paused", 1)


async def test_bodies_hold_events_or_records(seb, receiver):
    for shape in ("event", "events", "records"):
        batch = {} if shape == "event" else {"batch": 10}
        await produce(seb, shape, b'{"a": 1}', b"\xff", LARGE)
        await subscribe(seb, shape, receiver.url, body=shape, concurrency=1, **batch)
        await acked(seb, shape, 3)
    event, other, large, events, records = receiver.got
    assert event.headers["content-type"] == "application/cloudevents+json"
    first = json.loads(event.body)
    assert (first["source"], first["data"]) == ("/v1/topics/of-event", {"a": 1})
    assert json.loads(other.body)["data_base64"] == "/w=="
    assert events.headers["content-type"] == "application/cloudevents-batch+json"
    assert json.loads(large.body)["data"] == LARGE.decode()
    assert [len(one["id"]) > 0 for one in json.loads(events.body)] == [True] * 3
    assert json.loads(events.body)[2]["data"] == LARGE.decode()
    one, two, three = json.loads(records.body)["records"]
    assert (three["value"], three["topic"]) == (LARGE.decode(), "of-records")
    assert (one["topic"], one["offset"], one["value"], one["attempt"]) == (
        "of-records", 0, '{"a": 1}', 1,
    )  # fmt: skip
    assert two["value_base64"] == "/w=="


async def test_both_secrets_sign_while_one_is_replaced(seb, receiver):
    made = await subscribe(seb, "rotate", receiver.url)
    wanted = {"url": receiver.url, "keep_previous": True}
    newer = (await seb.client.put("/v1/subscriptions/rotate", json=wanted)).json()["secret"]
    await produce(seb, "rotate", b"{}")
    (got,) = await receiver.arrived(1)
    assert made["secret"] != newer
    for secret in (made["secret"], newer):
        Webhook(secret).verify(got.body, got.headers)
    wanted = {"url": receiver.url, "end_previous": True}
    assert (await seb.client.put("/v1/subscriptions/rotate", json=wanted)).json()["secrets"] == 1


async def test_headers_are_sent_and_never_shown_and_stay_with_their_host(seb, receiver):
    hidden = {"Authorization": "Bearer of-the-receiver"}
    made = await subscribe(seb, "headers", receiver.url, headers=hidden)
    assert made["headers"] == ["Authorization"]
    await produce(seb, "headers", b"one")
    (got,) = await receiver.arrived(1)
    assert got.headers["authorization"] == "Bearer of-the-receiver"
    audit = (await seb.client.get("/v1/audit")).text
    assert "of-the-receiver" not in json.dumps(await show(seb, "headers")) + audit
    assert made["secret"] not in audit
    elsewhere = {"url": f"http://127.0.0.1:{receiver.port + 1}/"}
    refused = await seb.client.put("/v1/subscriptions/headers", json=elsewhere)
    assert refused.status_code == 400
    assert "headers again" in refused.json()["detail"]


async def test_a_slow_receiver_delays_no_other(seb, receiver):
    async with receiving() as slow:
        slow.usual = None
        await subscribe(seb, "slow", slow.url, concurrency=2)
        await subscribe(seb, "quick", receiver.url)
        await produce(seb, "slow", *[b"x"] * 5)
        await slow.arrived(2)
        await produce(seb, "quick", *[b"x"] * 5)
        await acked(seb, "quick", 5)
        assert (len(slow.got), slow.most_at_once) == (2, 2)
        assert (await show(seb, "slow"))["on_its_way"] == 2
        slow.usual = OK
        slow.release.set()
        await acked(seb, "slow", 5)


async def test_records_are_sent_again_from_a_position_of_the_log(seb, receiver):
    await subscribe(seb, "replay", receiver.url, concurrency=1)
    await produce(seb, "replay", b"one", b"two", b"three")
    await acked(seb, "replay", 3)
    again = {"offset": "-2", "topic": "of-replay"}
    begun = await seb.client.post("/v1/subscriptions/replay/replay", json=again)
    assert begun.json() == {"offsets": {"of-replay": 1}}
    got = await receiver.arrived(5)
    assert [one.body for one in got[3:]] == [b"two", b"three"]
    assert got[1].headers["webhook-id"] == got[3].headers["webhook-id"]
    await acked(seb, "replay", 2)
    again = {"offset": "@2020-01-01T00:00:00Z"}
    await seb.client.post("/v1/subscriptions/replay/replay", json=again)
    assert len(await receiver.arrived(8)) == 8
    absent = {"offset": "earliest", "topic": "of-first"}
    refused = await seb.client.post("/v1/subscriptions/replay/replay", json=absent)
    assert refused.status_code == 404


async def test_an_address_that_is_not_public_is_never_connected_to(tmp_path, receiver):
    async with running_appliance(tmp_path / "strict") as strict:
        await subscribe(strict, "inside", receiver.url)
        tested = (await strict.client.post("/v1/subscriptions/inside/test")).json()
        assert tested["status"] == 0
        assert "neither public nor in push_networks" in tested["detail"]
        assert not receiver.got


async def test_what_was_set_outlives_a_restart(tmp_path, receiver):
    bucket = {"bucket": f"file:{tmp_path}/bucket", "push_networks": "127.0.0.1"}
    async with running_appliance(tmp_path / "local", **bucket) as before:
        made = await subscribe(before, "kept", receiver.url, headers={"X-Token": "t"})
        await before.client.post("/v1/subscriptions/kept/pause")
    async with running_appliance(tmp_path / "local", **bucket) as after:
        assert (await show(after, "kept"))["state"] == "paused"
        await produce(after, "kept", b"{}")
        await after.client.post("/v1/subscriptions/kept/resume")
        (got,) = await receiver.arrived(1)
        assert got.headers["x-token"] == "t"
        Webhook(made["secret"]).verify(got.body, got.headers)


async def test_a_subscription_ends_with_its_document_and_leaves_its_queue(seb, receiver):
    await subscribe(seb, "ended", receiver.url)
    assert (await seb.client.delete("/v1/subscriptions/ended")).status_code == 204
    assert (await seb.client.get("/v1/subscriptions/ended")).status_code == 404
    await produce(seb, "ended", b"mine")
    taken = await seb.client.post("/v1/queues/ended/take", json={"wait_ms": 5_000})
    assert [one["value"] for one in taken.json()["records"]] == ["mine"]
    assert not receiver.got


async def test_a_subscription_without_topics_needs_a_queue(seb):
    wanted = {"url": "https://shop.example/"}
    refused = await seb.client.put("/v1/subscriptions/no-queue", json=wanted)
    assert (refused.status_code, refused.json()["code"]) == (404, "queue_not_found")


async def test_a_standby_shows_subscriptions_and_sends_nothing(tmp_path, receiver):
    local = {"bucket": f"file:{tmp_path}/bucket", "push_networks": "127.0.0.1"}
    async with running_appliance(tmp_path / "one", **local) as writer:
        await subscribe(writer, "followed", receiver.url)
        await writer.client.post("/v1/subscriptions/followed/pause")
        await produce(writer, "followed", b"x")
        (tmp_path / "two").mkdir()
        shutil.copy(tmp_path / "one" / "admin.key", tmp_path / "two")
        async with running_appliance(tmp_path / "two", standby=True, **local) as standby:
            path = "/v1/subscriptions/followed"
            assert (await standby.client.get(path)).json()["state"] == "paused"
            for verb in ("resume", "test"):
                refused = await standby.client.post(f"{path}/{verb}")
                assert (refused.status_code, refused.json()["code"]) == (409, "standby")
            assert 'state="paused"} 1' in (await standby.client.get("/metrics")).text
        assert not receiver.got


async def test_secrets_and_headers_lie_encrypted_in_the_journal(seb):
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    hidden = {"secrets": [secret], "headers": {"X-Token": "very-hidden"}}
    made = await subscribe(seb, "sealed", "https://shop.example/", **hidden)
    assert "secret" not in made
    document = seb.appliance.broker.documents.get("subscription", "sealed").document
    assert secret not in document
    assert "very-hidden" not in document


async def test_a_lost_key_of_the_secrets_is_told_and_nothing_is_sent(tmp_path, receiver):
    local = {"bucket": f"file:{tmp_path}/bucket", "push_networks": "127.0.0.1"}
    async with running_appliance(tmp_path / "one", **local) as before:
        await subscribe(before, "lost", receiver.url, concurrency=1)
    (tmp_path / "one" / "secrets.key").unlink()
    async with running_appliance(tmp_path / "one", **local) as after:
        await produce(after, "lost", b"x")

        async def told():
            return "cannot be decrypted" in (await show(after, "lost"))["failure"]

        await until(told)
        assert 'state="failing"} 1' in (await after.client.get("/metrics")).text
        assert (await after.client.post("/v1/subscriptions/lost/test")).status_code == 503
        assert not receiver.got
        again = {"url": receiver.url, "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}
        assert (await after.client.put("/v1/subscriptions/lost", json=again)).status_code == 200
        await receiver.arrived(1)


async def test_changes_of_one_subscription_do_not_wait_for_those_of_another(seb, receiver):
    async with seb.appliance.beside[Subscriptions]._turn("busy"), asyncio.timeout(20):
        await subscribe(seb, "others", receiver.url)


async def test_a_subscription_that_others_made_meanwhile_is_not_replaced(
    seb, receiver, monkeypatch
):
    """Whoever may change its queue is asked again when its turn has come."""

    async def client(topics):
        grants = [{"operation": one, "topics": topics} for one in ("manage", "consume")]
        made = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})
        return seb.client_with(made.json()["secret"])

    async with await client("own.**") as a, await client("their.**") as b:
        arrived, go_on = hold_creates(seb, monkeypatch)
        ours, theirs = (
            asyncio.create_task(
                one.put("/v1/subscriptions/wanted", json={"url": receiver.url, "topics": topics})
            )
            for one, topics in ((a, ["own.a"]), (b, ["their.a"]))
        )
        await arrived.wait()
        go_on.set()
        assert ((await ours).status_code, (await theirs).status_code) == (201, 404)
        queue = await a.get("/v1/queues/wanted")
        assert queue.json()["settings"]["topics"] == ["own.a"]
