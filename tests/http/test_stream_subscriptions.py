"""Subscriptions of Durable Streams: what wakes a worker, what it may still acknowledge, and what a
restart leaves. The protocol's own suite is in tests/streams."""

from __future__ import annotations

import asyncio
import json

import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.protocols.durable_streams.delivering import StreamSubscriptions
from tests.support.appliance import running_appliance
from tests.support.documented import check_documented
from tests.support.receiver import answer, receiving
from tests.support.stretching import open_for_s, relax, stretch

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAM = "/v1/stream"
SUBSCRIPTIONS = f"{STREAM}/__ds/subscriptions"
LOCAL = {"push_networks": "127.0.0.0/8"}
DONE = answer(200, body=b'{"done": true}')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory):
    async with running_appliance(tmp_path_factory.mktemp("streams"), **LOCAL) as running:
        running.client.event_hooks = {"response": [check_documented]}
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def receiver():
    async with receiving() as one:
        yield one


async def put(seb, path, *values):
    made = await seb.client.put(f"{STREAM}/{path}", json=list(values))
    assert made.status_code in (200, 201), made.text


async def append(seb, path, value):
    sent = await seb.client.post(f"{STREAM}/{path}", json=[value])
    assert sent.status_code == 204, sent.text


async def pool(seb, name, status=201, **members):
    """A subscription whose workers claim wakes of `wake/<name>`."""
    await put(seb, f"wake/{name}")
    wanted = {
        "type": "pull-wake",
        "pattern": f"{name}/*",
        "wake_stream": f"wake/{name}",
        "lease_ttl_ms": 600_000,
        **members,
    }
    made = await seb.client.put(f"{SUBSCRIPTIONS}/{name}", json=wanted)
    assert made.status_code == status, made.text
    return made.json()


async def hook(seb, name, url, **members):
    wanted = {"type": "webhook", "pattern": f"{name}/*", "webhook": {"url": url}, **members}
    made = await seb.client.put(f"{SUBSCRIPTIONS}/{name}", json=wanted)
    assert made.status_code == 201, made.text
    return made.json()


async def show(seb, name):
    return (await seb.client.get(f"{SUBSCRIPTIONS}/{name}")).json()


async def cursors(seb, name):
    found = (await show(seb, name))["streams"]
    return {link["path"]: int(link["acked_offset"].partition("_")[0]) for link in found}


async def woken(seb, name, count):
    """The events of its wake stream, once there are so many."""
    url = f"{STREAM}/wake/{name}"
    events: list[dict[str, object]] = []
    place = "-1"
    async with asyncio.timeout(20):
        while len(events) < count:
            got = await seb.client.get(url, params={"offset": place, "live": "long-poll"})
            events += got.json() if got.status_code == 200 else []
            place = got.headers["stream-next-offset"]
    return events


async def claim(seb, name, worker="one", status=200):
    got = await seb.client.post(f"{SUBSCRIPTIONS}/{name}/claim", json={"worker": worker})
    assert got.status_code == status, got.text
    return got.json()


async def act(seb, name, claimed, what="ack", status=200, **members):
    body = {"wake_id": claimed["wake_id"], "generation": claimed["generation"], **members}
    token = {"Authorization": f"Bearer {claimed['token']}"}
    got = await seb.client.post(f"{SUBSCRIPTIONS}/{name}/{what}", json=body, headers=token)
    assert got.status_code == status, got.text
    return got.json() if got.content else None


def acks(claimed):
    return [{"stream": s["path"], "offset": s["tail_offset"]} for s in claimed["streams"]]


async def test_streams_that_exist_are_followed_from_their_end_and_later_ones_from_their_start(seb):
    await put(seb, "old/a", 1, 2)
    await pool(seb, "old")
    assert await cursors(seb, "old") == {"old/a": 2}
    await put(seb, "old/b", 1)
    (event,) = await woken(seb, "old", 1)
    assert (event["type"], event["subscription_id"], event["stream"]) == ("wake", "old", "old/b")
    claimed = await claim(seb, "old")
    assert [s["path"] for s in claimed["streams"]] == ["old/b"]
    assert claimed["generation"] == event["generation"]
    assert await act(seb, "old", claimed, acks=acks(claimed), done=True) == {
        "ok": True,
        "next_wake": False,
    }
    assert await cursors(seb, "old") == {"old/a": 2, "old/b": 1}


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def share(seb, name):
    return next(one for one in seb.appliance.broker.shares if one.name == name)


async def test_subscriptions_of_one_api_key_leave_room_for_others(seb, monkeypatch):
    await put(seb, "greedy/wake")
    grants = [{"operation": o, "topics": "greedy.**"} for o in ("manage", "consume", "produce")]
    body = {"name": "greedy", "grants": grants}
    made = (await seb.client.post("/v1/api-keys", json=body)).json()
    followers, documents = share(seb, "followers"), share(seb, "documents")
    for one in (followers, documents):
        monkeypatch.setattr(one, "limit", one.used + 4)
    wanted = {"type": "pull-wake", "pattern": "greedy/x/*", "wake_stream": "greedy/wake"}
    async with seb.client_with(made["secret"]) as greedy:
        got = [await greedy.put(f"{SUBSCRIPTIONS}/greedy{i}", json=wanted) for i in range(3)]
        assert [one.status_code for one in got] == [201, 201, 429]
        for one in (followers, documents):
            assert one.held_by(made["api_key_id"]) == 2
        for i in range(2):
            assert (await greedy.delete(f"{SUBSCRIPTIONS}/greedy{i}")).status_code == 204
        for one in (followers, documents):
            assert one.held_by(made["api_key_id"]) == 0


async def test_a_lease_of_somebody_else_on_its_group_holds_up_no_worker(seb):
    body = {"name": "s", "grants": [{"operation": "consume", "topics": "elsewhere"}]}
    made = (await seb.client.post("/v1/api-keys", json=body)).json()
    async with seb.client_with(made["secret"]) as stranger:
        lease = {"holder": "stranger", "ttl_ms": 60_000}
        got = await stranger.post("/v1/groups/ds.leased/lease", json=lease)
        assert got.status_code == 200
    await put(seb, "leased/a", 1)
    await pool(seb, "leased")
    await append(seb, "leased/a", 2)
    await woken(seb, "leased", 1)
    claimed = await claim(seb, "leased")
    await act(seb, "leased", claimed, acks=acks(claimed), done=True)
    assert await cursors(seb, "leased") == {"leased/a": 2}


async def test_a_key_that_may_do_nothing_with_its_streams_learns_of_no_subscription(seb):
    await put(seb, "hidden/plan")
    await pool(seb, "hidden")
    body = {"name": "s", "grants": [{"operation": "consume", "topics": "elsewhere"}]}
    body["grants"].append({"operation": "manage", "topics": "elsewhere"})
    made = (await seb.client.post("/v1/api-keys", json=body)).json()
    async with seb.client_with(made["secret"]) as stranger:
        for method, path, sent in (
            ("GET", "", None),
            ("DELETE", "", None),
            ("POST", "/claim", {"worker": "w"}),
            ("POST", "/streams", {"streams": ["elsewhere"]}),
            ("DELETE", "/streams/hidden/plan", None),
        ):
            answers = []
            for name in ("hidden", "absent"):
                url = f"{SUBSCRIPTIONS}/{name}{path}"
                got = await stranger.request(method, url, json=sent)
                answers.append((got.status_code, got.json()["detail"].replace(name, "?")))
            assert answers[0] == answers[1], (method, path)
        wanted = {"type": "webhook", "pattern": "elsewhere", "webhook": {"url": "https://a.eu/"}}
        got = await stranger.put(f"{SUBSCRIPTIONS}/hidden", json=wanted)
        assert got.status_code == 403
        assert "hidden/" not in got.text
        assert "hidden." not in got.text


async def test_one_worker_has_the_lease_and_a_release_wakes_the_next_one(seb):
    await pool(seb, "one")
    await put(seb, "one/a", 1)
    first = await claim(seb, "one")
    refused = await claim(seb, "one", "two", status=409)
    assert refused["error"]["code"] == "ALREADY_CLAIMED"
    assert refused["error"]["current_holder"] == "one"
    assert await act(seb, "one", first, "release", status=204) is None
    events = await woken(seb, "one", 2)
    second = await claim(seb, "one", "two")
    assert second["generation"] == events[-1]["generation"] > first["generation"]
    fenced = await act(seb, "one", first, status=409, acks=acks(first), done=True)
    assert fenced["error"]["code"] == "FENCED"
    assert await cursors(seb, "one") == {"one/a": 0}


async def test_an_ack_without_done_keeps_the_lease_and_says_how_far_the_worker_is(seb):
    await pool(seb, "far")
    await put(seb, "far/a", 1, 2)
    claimed = await claim(seb, "far")
    one = "0000000000000001_0000000000000000"
    await act(seb, "far", claimed, acks=[{"stream": "far/a", "offset": one}])
    assert await cursors(seb, "far") == {"far/a": 1}
    assert (await claim(seb, "far", "two", status=409))["code"] == "lease_held"
    assert (await act(seb, "far", claimed, done=True))["next_wake"] is True


@pytest.mark.parametrize(
    ("ack", "code"),
    [
        ({"stream": "bad/a", "offset": "0000000000000009_0000000000000000"}, "commit_beyond_end"),
        ({"stream": "bad/a", "offset": "nine"}, "bad_parameter"),
        ({"stream": "elsewhere/a", "offset": "0000000000000000_0000000000000000"}, "bad_request"),
    ],
)
async def test_a_wrong_ack_is_refused_and_the_next_one_works(seb, ack, code):
    if (await seb.client.get(f"{SUBSCRIPTIONS}/bad")).status_code == 404:
        await pool(seb, "bad")
    await append(seb, "bad/a", 1) if await has(seb, "bad/a") else await put(seb, "bad/a", 1)
    claimed = await claim(seb, "bad")
    refused = await act(seb, "bad", claimed, status=400, acks=[ack])
    assert refused["code"] == code
    await act(seb, "bad", claimed, acks=acks(claimed), done=True)


async def has(seb, path):
    return (await seb.client.head(f"{STREAM}/{path}")).status_code == 200


async def test_a_wake_ends_for_a_worker_whose_api_key_is_revoked(seb):
    """It can neither move cursors nor keep the lease from others."""
    await pool(seb, "fired")
    await put(seb, "fired/a", 1)
    await woken(seb, "fired", 1)
    grants = [{"operation": "consume", "topics": "fired.*"}]
    made = (await seb.client.post("/v1/api-keys", json={"name": "w", "grants": grants})).json()
    key = {"authorization": f"Bearer {made['secret']}"}
    url = f"{SUBSCRIPTIONS}/fired/claim"
    claimed = (await seb.client.post(url, json={"worker": "w"}, headers=key)).json()
    await act(seb, "fired", claimed)
    gone = await seb.client.delete(f"/v1/api-keys/{made['api_key_id']}")
    assert gone.status_code == 204
    for what, more in (("ack", {"acks": acks(claimed)}), ("ack", {}), ("callback", {})):
        refused = await act(seb, "fired", claimed, what, 409, **more)
        assert refused["error"]["code"] == "FENCED"
    assert await cursors(seb, "fired") == {"fired/a": 0}
    await woken(seb, "fired", 2)
    assert (await claim(seb, "fired"))["generation"] > claimed["generation"]


async def test_a_claim_of_what_has_nothing_new_is_refused(seb):
    await pool(seb, "idle")
    refused = await claim(seb, "idle", status=409)
    assert refused["error"]["code"] == "NO_PENDING_WORK"


async def test_a_token_of_another_subscription_is_refused(seb):
    for name in ("mine", "yours"):
        await pool(seb, name)
        await put(seb, f"{name}/a", 1)
    mine, yours = await claim(seb, "mine"), await claim(seb, "yours")
    refused = await act(seb, "mine", {**mine, "token": yours["token"]}, status=401)
    assert refused["error"]["code"] == "TOKEN_INVALID"
    await act(seb, "mine", {**mine, "token": "1.w_1.00"}, status=401)
    await act(seb, "mine", mine, done=True)


async def test_a_lease_that_is_over_is_fenced_and_another_wake_follows(seb):
    await pool(seb, "slow", lease_ttl_ms=1_000)
    await put(seb, "slow/a", 1)
    claimed = await claim(seb, "slow")
    await woken(seb, "slow", 2)
    refused = await act(seb, "slow", claimed, status=409, acks=acks(claimed), done=True)
    assert refused["error"]["code"] == "FENCED"


async def test_an_ack_is_stored_before_the_lease_is_over(seb):
    await pool(seb, "stretched", lease_ttl_ms=60_000)
    await put(seb, "stretched/a", 1)
    await woken(seb, "stretched", 1)
    claimed = await claim(seb, "stretched")
    found = seb.appliance.beside[StreamSubscriptions].find("stretched")
    found.wake.until_s -= 50
    stretch(seb)
    acked = asyncio.create_task(act(seb, "stretched", claimed, acks=acks(claimed), done=True))
    assert 7 < await open_for_s(seb) <= 8
    await relax(seb)
    assert await acked == {"ok": True, "next_wake": False}


async def test_a_webhook_that_answers_done_has_acknowledged(seb, receiver):
    receiver.usual = DONE
    await hook(seb, "done", receiver.url)
    await put(seb, "done/a", 1)
    (got,) = await receiver.arrived(1)
    told = json.loads(got.body)
    assert [s["path"] for s in told["streams"]] == ["done/a"]

    async with asyncio.timeout(20):
        while await cursors(seb, "done") != {"done/a": 1}:
            await asyncio.sleep(0)
    assert (await show(seb, "done"))["status"] == "active"


async def test_a_webhook_that_fails_is_told_again_as_another_wake(seb, receiver):
    receiver.answers.append(answer(500))
    receiver.usual = DONE
    await hook(seb, "fails", receiver.url)
    await put(seb, "fails/a", 1)
    first, second = (json.loads(got.body) for got in await receiver.arrived(2))
    assert second["generation"] > first["generation"]
    assert second["streams"] == first["streams"]


async def test_what_a_webhook_was_told_it_acknowledges_by_the_callback(seb, receiver):
    await hook(seb, "calls", receiver.url, lease_ttl_ms=600_000)
    await put(seb, "calls/a", 1)
    (got,) = await receiver.arrived(1)
    told = json.loads(got.body)
    body = {k: told[k] for k in ("wake_id", "generation")} | {"acks": acks(told), "done": True}
    token = {"Authorization": f"Bearer {told['callback_token']}"}
    got = await seb.client.post(told["callback_url"], json=body, headers=token)
    assert got.json() == {"ok": True, "next_wake": False}
    assert await cursors(seb, "calls") == {"calls/a": 1}


@pytest.mark.parametrize(
    "url",
    ["http://10.0.0.1/x", "http://example.com/x", "https://169.254.169.254/", "https://[::1]/"],
)
async def test_a_webhook_that_only_an_operator_may_permit_is_refused(seb, url):
    wanted = {"type": "webhook", "pattern": "x/*", "webhook": {"url": url}}
    refused = await seb.client.put(f"{SUBSCRIPTIONS}/x", json=wanted)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "WEBHOOK_URL_REJECTED")
    assert (await seb.client.get(f"{SUBSCRIPTIONS}/x")).status_code == 404


@pytest.mark.parametrize("lease_ttl_ms", [999, 600_001])
async def test_a_lease_out_of_its_range_is_refused(seb, lease_ttl_ms):
    refused = await pool(seb, "range", status=400, lease_ttl_ms=lease_ttl_ms)
    assert refused["code"] == "bad_json"


async def test_the_same_request_confirms_and_another_one_conflicts(seb):
    first = await pool(seb, "twice")
    assert await pool(seb, "twice", status=200) == first
    refused = await pool(seb, "twice", status=409, lease_ttl_ms=5_000)
    assert refused["error"]["code"] == "SUBSCRIPTION_ALREADY_EXISTS"


async def test_a_stream_that_is_unlinked_wakes_nobody(seb):
    await put(seb, "by-hand/a", 1)
    await pool(seb, "hand", pattern=None, streams=["by-hand/b"])
    link = await seb.client.post(f"{SUBSCRIPTIONS}/hand/streams", json={"streams": ["by-hand/a"]})
    assert link.status_code == 204
    assert await cursors(seb, "hand") == {"by-hand/a": 1, "by-hand/b": 0}
    gone = await seb.client.delete(f"{SUBSCRIPTIONS}/hand/streams/by-hand%2Fa")
    assert gone.status_code == 204
    await append(seb, "by-hand/a", 2)
    await put(seb, "by-hand/b", 1)
    (event,) = await woken(seb, "hand", 1)
    assert event["stream"] == "by-hand/b"
    assert await cursors(seb, "hand") == {"by-hand/b": 0}


async def test_more_streams_than_may_be_are_not_linked_one_by_one(seb, monkeypatch):
    await pool(seb, "few")
    monkeypatch.setattr(limits, "FOLLOWED_TOPICS_MAX", 3)

    async def link(*paths):
        wanted = {"streams": [f"few-{path}/a" for path in paths]}
        return await seb.client.post(f"{SUBSCRIPTIONS}/few/streams", json=wanted)

    at_once = await asyncio.gather(*(link(path) for path in "abcde"))
    assert sorted(got.status_code for got in at_once) == [204, 204, 204, 400, 400]
    assert len((await show(seb, "few"))["streams"]) == 3
    (full,) = [got for got in await asyncio.gather(link("f")) if got.status_code == 400]
    assert "use a pattern" in full.json()["detail"]


async def test_a_subscription_whose_pattern_matches_many_by_now_goes_on_after_a_restart(
    seb, monkeypatch
):
    await pool(seb, "grown")
    for path in ("a", "b", "c"):
        await put(seb, f"grown/{path}")
    monkeypatch.setattr(limits, "FOLLOWED_TOPICS_MAX", 2)
    service = seb.appliance.beside[StreamSubscriptions]
    stored = service.find("grown").stored
    await service._end("grown")
    service._begin("grown", stored)
    await append(seb, "grown/c", 1)
    claimed = await claim(seb, "grown")
    assert [one["path"] for one in claimed["streams"]] == ["grown/c"]


async def test_topics_that_subscriptions_follow_are_counted_until_they_are_deleted(
    seb, monkeypatch
):
    service, followed = seb.appliance.beside[StreamSubscriptions], share(seb, "stream_topics")
    before = followed.used
    await pool(seb, "counted")
    for path in ("a", "b"):
        await put(seb, f"counted/{path}")
    found = service.find("counted")
    await until(lambda: followed.used == before + 2)
    await seb.client.delete(f"{STREAM}/counted/a")
    await until(lambda: followed.used == before + 1)

    monkeypatch.setattr(followed, "limit", followed.used)
    await put(seb, "counted/c")
    await until(lambda: found.failure)
    assert "no room for all topics" in found.failure
    assert followed.used == before
    await seb.client.delete(f"{SUBSCRIPTIONS}/counted")
    assert followed.used == before


async def test_a_key_subscribes_only_to_what_it_may_read(seb):
    grants = [{"operation": operation, "topics": "open.*"} for operation in ("consume", "manage")]
    grants.append({"operation": "produce", "topics": "w"})
    made = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})
    key = {"authorization": f"Bearer {made.json()['secret']}"}
    wanted = {"type": "pull-wake", "pattern": "open/*", "wake_stream": "w"}
    for pattern, status in (("**", 403), ("secret/*", 403), ("open/*", 201)):
        got = await seb.client.put(
            f"{SUBSCRIPTIONS}/of-key", json=wanted | {"pattern": pattern}, headers=key
        )
        assert got.status_code == status, got.text
    added = {"streams": ["secret/a"]}
    got = await seb.client.post(f"{SUBSCRIPTIONS}/of-key/streams", json=added, headers=key)
    assert got.status_code == 403
    await pool(seb, "not-theirs")
    for method, more in (("GET", ""), ("DELETE", ""), ("POST", "/claim")):
        body = {"worker": "x"} if method == "POST" else None
        got = await seb.client.request(
            method, f"{SUBSCRIPTIONS}/not-theirs{more}", json=body, headers=key
        )
        assert got.status_code == 404


async def test_paths_of_the_protocol_are_no_streams(seb):
    fork = {"stream-forked-from": f"{STREAM}/__ds/mine"}
    got = await seb.client.put(f"{STREAM}/fork", headers=fork)
    assert (got.status_code, got.json()["code"]) == (400, "bad_name")


async def test_a_deleted_subscription_forgets_its_cursors(seb):
    await pool(seb, "gone")
    await put(seb, "gone/a", 1)
    claimed = await claim(seb, "gone")
    assert (await seb.client.delete(f"{SUBSCRIPTIONS}/gone")).status_code == 204
    await act(seb, "gone", claimed, status=409, done=True)
    assert (await seb.client.get("/v1/groups/ds.gone")).status_code == 404


async def test_after_a_restart_cursors_and_the_signing_key_stay_and_old_wakes_are_refused(tmp_path):
    bucket = f"file:{tmp_path}/b"
    async with receiving() as receiver:
        async with running_appliance(tmp_path / "d", **LOCAL, bucket=bucket) as seb:
            await hook(seb, "kept", receiver.url, lease_ttl_ms=600_000)
            await put(seb, "kept/a", 1)
            (got,) = await receiver.arrived(1)
            keys = (await seb.client.get(f"{STREAM}/__ds/jwks.json")).json()
        before = json.loads(got.body)
        async with running_appliance(tmp_path / "d", **LOCAL, bucket=bucket) as seb:
            _, got = await receiver.arrived(2)
            after = json.loads(got.body)
            assert after["streams"] == before["streams"]
            assert after["generation"] > before["generation"]
            assert (await seb.client.get(f"{STREAM}/__ds/jwks.json")).json() == keys
            token = {**before, "token": before["callback_token"]}
            await act(seb, "kept", token, "callback", status=401, acks=acks(before), done=True)
            token = {**after, "token": after["callback_token"]}
            await act(seb, "kept", token, "callback", acks=acks(after), done=True)
