"""Inlets over HTTP: who may deliver, what is stored, once, and what the sender is answered."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import hmac
import json
import re
import time

import pytest

from seb_appliance import limits
from tests.support.appliance import hold_creates, running_appliance

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "a secret of the sender"
BODY = b'{"id": "evt_1", "user": {"id": 7}}'


async def make(seb, name, scheme="github", status=201, secrets=(SECRET,), **settings):
    verify = {"scheme": scheme} if isinstance(scheme, str) else scheme
    wanted = {"topic": f"of-{name}", "verify": verify, **settings}
    if secrets is not None:
        wanted["secrets"] = list(secrets)
    answer = await seb.client.put(f"/v1/inlets/{name}", json=wanted)
    assert answer.status_code == status, answer.text
    return answer.json()


async def ask(seb, method, path, **options):
    """Without the admin key; the answer is held against the OpenAPI document, too."""
    async with seb.client_with(None) as client:
        client.event_hooks = seb.client.event_hooks
        return await client.request(method, path, **options)


async def deliver(seb, name, body=BODY, **headers):
    named = {header.replace("_", "-"): value for header, value in headers.items()}
    return await ask(seb, "POST", f"/v1/inlets/{name}", content=body, headers=named)


def digest(secret, content, algorithm="sha256"):
    key = secret if isinstance(secret, bytes) else secret.encode()
    return hmac.new(key, content, algorithm).digest()


def of_github(body=BODY, secret=SECRET, delivery="d1"):
    return {
        "X_Hub_Signature_256": f"sha256={digest(secret, body).hex()}",
        "X_GitHub_Delivery": delivery,
        "Content_Type": "application/json",
    }


async def values(seb, name):
    answer = await seb.client.get(f"/v1/topics/of-{name}/records")
    return [record["value"] for record in answer.json()["records"]]


def signatures():
    """Headers of each scheme for BODY, as the sender's documentation says."""
    now = str(int(time.time()))
    standard_key = b"0123456789abcdef01234567"
    whsec = "whsec_" + base64.b64encode(standard_key).decode()
    of_standard = base64.b64encode(digest(standard_key, f"msg_1.{now}.".encode() + BODY)).decode()
    basic = base64.b64encode(f"olga:{SECRET}".encode()).decode()
    slack = digest(SECRET, f"v0:{now}:".encode() + BODY).hex()
    stripe = digest(SECRET, f"{now}.".encode() + BODY).hex()
    sha1 = base64.b64encode(digest(SECRET, BODY, "sha1")).decode()
    custom = {
        "scheme": "hmac",
        "header": "X-Sign",
        "algorithm": "sha1",
        "encoding": "base64",
        "prefix": "v=",
    }
    return [
        ("github", SECRET, of_github()),
        ("meta", SECRET, {"X_Hub_Signature_256": f"sha256={digest(SECRET, BODY).hex()}"}),
        (
            "shopify",
            SECRET,
            {"X_Shopify_Hmac_Sha256": base64.b64encode(digest(SECRET, BODY)).decode()},
        ),
        (
            "slack",
            SECRET,
            {"X_Slack_Signature": f"v0={slack}", "X_Slack_Request_Timestamp": now},
        ),
        ("stripe", SECRET, {"Stripe_Signature": f"t={now},v1={'0' * 64},v1={stripe},v0=x"}),
        (
            "standard",
            whsec,
            {
                "webhook_id": "msg_1",
                "webhook_timestamp": now,
                "webhook_signature": f"v2,x v1,{of_standard}",
            },
        ),
        (
            "svix",
            whsec,
            {"svix_id": "msg_1", "svix_timestamp": now, "svix_signature": f"v1,{of_standard}"},
        ),
        (custom, SECRET, {"X_Sign": f"v={sha1}"}),
        ({"scheme": "token", "header": "X-Gitlab-Token"}, SECRET, {"X_Gitlab_Token": SECRET}),
        ({"scheme": "basic", "user": "olga"}, SECRET, {"Authorization": f"Basic {basic}"}),
    ]


@pytest.mark.parametrize("number", range(10))
async def test_a_delivery_is_verified_as_its_sender_signs_it(seb, number):
    scheme, secret, headers = signatures()[number]
    name = f"scheme-{number}"
    await make(seb, name, scheme, secrets=[secret], key="/user/id")
    answer = await deliver(seb, name, **headers)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["count"], answer.headers["seb-durability"]) == (1, "memory")
    other = await deliver(seb, name, BODY + b" ", **headers)
    if scheme in (
        {"scheme": "token", "header": "X-Gitlab-Token"},
        {"scheme": "basic", "user": "olga"},
    ):
        assert other.status_code == 200  # such a scheme says nothing about the body
        return
    assert other.status_code == 401
    assert (await deliver(seb, name)).status_code == 401
    assert await values(seb, name) == [BODY.decode()]


async def test_a_stranger_learns_nothing_from_a_refusal(seb):
    await make(seb, "known")
    wrong = await deliver(seb, "known", **of_github(secret="another"))
    unknown = await deliver(seb, "unknown", **of_github())
    members = ("type", "title", "detail", "code", "status")
    assert wrong.status_code == unknown.status_code == 401
    assert [wrong.json()[one] for one in members] == [unknown.json()[one] for one in members]
    shown = (await seb.client.get("/v1/inlets/known")).json()
    assert [one["status"] for one in shown["deliveries"]] == [401]
    assert "does not fit" in shown["deliveries"][0]["detail"]


async def test_a_delivery_is_stored_once_however_often_it_comes(seb):
    await make(seb, "once")
    first = await deliver(seb, "once", **of_github())
    again = await deliver(seb, "once", **of_github())
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert (await deliver(seb, "once", **of_github(delivery="d2"))).status_code == 200
    assert len(await values(seb, "once")) == 2


async def test_a_name_inside_the_body_makes_a_delivery_once_too(seb):
    await make(seb, "inside", {"scheme": "token", "header": "X-T"}, delivery="/id")
    for _ in range(2):
        assert (await deliver(seb, "inside", X_T=SECRET)).status_code == 200
    assert len(await values(seb, "inside")) == 1


async def test_two_secrets_are_valid_while_one_is_rotated(seb):
    await make(seb, "rotated", secrets=["new", "old"])
    for number, secret in enumerate(("new", "old")):
        sent = of_github(secret=secret, delivery=str(number))
        assert (await deliver(seb, "rotated", **sent)).status_code == 200
    await make(seb, "rotated", status=200, secrets=["new"])
    assert (await deliver(seb, "rotated", **of_github(secret="old"))).status_code == 401


async def test_a_rotation_that_is_repeated_ends_no_secret(seb):
    await make(seb, "repeated", secrets=["old"])
    for _ in range(2):
        await make(seb, "repeated", status=200, secrets=["new"], keep_previous=True)
    for number, secret in enumerate(("new", "old")):
        sent = of_github(secret=secret, delivery=str(number))
        assert (await deliver(seb, "repeated", **sent)).status_code == 200


async def test_a_random_secret_is_shown_once_and_rotated(seb):
    made = await make(seb, "random", secrets=None)
    again = await make(seb, "random", status=200, secrets=None, keep_previous=True)
    assert "secret" not in (await seb.client.get("/v1/inlets/random")).json()
    for number, secret in enumerate((made["secret"], again["secret"])):
        sent = of_github(secret=secret, delivery=str(number))
        assert (await deliver(seb, "random", **sent)).status_code == 200


@pytest.mark.parametrize("scheme", ["path", "standard", "svix", "basic"])
async def test_a_random_secret_is_one_of_its_scheme(seb, scheme):
    made = await make(seb, f"random-{scheme}", scheme, secrets=None)
    again = {"topic": "any", "verify": {"scheme": scheme}, "secrets": [made["secret"]]}
    assert (await seb.client.put("/v1/inlets/again", json=again)).is_success


async def test_an_inlet_keeps_its_secrets_when_it_is_changed_without_them(seb):
    await make(seb, "kept")
    wanted = {"topic": "of-kept", "verify": {"scheme": "github"}, "body": "items"}
    assert (await seb.client.put("/v1/inlets/kept", json=wanted)).status_code == 200
    body = b"[1,2]"
    assert (await deliver(seb, "kept", body, **of_github(body))).json()["count"] == 2


async def test_an_old_timestamp_is_refused(seb):
    await make(seb, "old", {"scheme": "slack", "tolerance_s": 60})
    at = str(int(time.time()) - 61)
    signature = digest(SECRET, f"v0:{at}:".encode() + BODY).hex()
    headers = {"X_Slack_Signature": f"v0={signature}", "X_Slack_Request_Timestamp": at}
    assert (await deliver(seb, "old", **headers)).status_code == 401
    deliveries = (await seb.client.get("/v1/inlets/old")).json()["deliveries"]
    assert "60 s from now" in deliveries[0]["detail"]


async def test_only_the_latest_deliveries_are_kept(seb):
    await make(seb, "many", {"scheme": "token", "header": "X-T"})
    for number in range(limits.INLET_DELIVERIES_KEPT + 1):
        assert (await deliver(seb, "many", b"%d" % number, X_T=SECRET)).status_code == 200
    found = (await seb.client.get("/v1/inlets/many")).json()["deliveries"]
    assert len(found) == limits.INLET_DELIVERIES_KEPT


async def test_a_change_forgets_no_deliveries(seb):
    await make(seb, "remembering")
    await deliver(seb, "remembering", **of_github())
    await deliver(seb, "remembering", **of_github(secret="another"))
    await make(seb, "remembering", status=200, body="lines")
    found = (await seb.client.get("/v1/inlets/remembering")).json()["deliveries"]
    assert [one["status"] for one in found] == [401, 200]
    await seb.client.delete("/v1/inlets/remembering")
    await make(seb, "remembering")
    assert (await seb.client.get("/v1/inlets/remembering")).json()["deliveries"] == []


async def test_a_secret_in_the_path_is_never_shown(seb):
    await make(seb, "path", "path", secrets=["abcdefghijklmnop"])
    assert (await deliver(seb, "path/abcdefghijklmnop")).status_code == 200
    assert (await deliver(seb, "path/abcdefghijklmnoq")).status_code == 401
    assert (await deliver(seb, "path")).status_code == 401
    shown = await seb.client.get("/v1/inlets/path")
    audit = await seb.client.get("/v1/audit?subject=path")
    assert shown.json()["path"] == "/v1/inlets/path/{secret}"
    assert b"abcdefghijklmnop" not in shown.content + audit.content
    assert audit.json()["audit"][0]["action"] == "inlet_created"


async def test_what_senders_ask_before_they_deliver_is_answered(seb):
    await make(seb, "meta", "meta")
    query = {"hub.mode": "subscribe", "hub.verify_token": SECRET, "hub.challenge": "1158"}
    answer = await ask(seb, "GET", "/v1/inlets/meta", params=query)
    assert (answer.status_code, answer.text) == (200, "1158")
    wrong = await ask(seb, "GET", "/v1/inlets/meta", params=query | {"hub.verify_token": "x"})
    assert wrong.status_code == 401
    await make(seb, "slack", "slack")
    now, body = str(int(time.time())), b'{"type":"url_verification","challenge":"3eZb"}'
    signature = digest(SECRET, f"v0:{now}:".encode() + body).hex()
    headers = {"X_Slack_Signature": f"v0={signature}", "X_Slack_Request_Timestamp": now}
    answer = await deliver(seb, "slack", body, **headers)
    assert (answer.status_code, answer.text) == (200, "3eZb")
    for bad in (body.replace(b"3eZb", b"\xff"), body.replace(b'"type"', b'"\xff":1,"type"')):
        signature = digest(SECRET, f"v0:{now}:".encode() + bad).hex()
        answer = await deliver(
            seb, "slack", bad, **headers | {"X_Slack_Signature": f"v0={signature}"}
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_json")
    assert await values(seb, "slack") == []
    asked = {"WebHook-Request-Origin": "eventgrid.example"}
    answer = await ask(seb, "OPTIONS", "/v1/inlets/meta", headers=asked)
    assert answer.headers["webhook-allowed-origin"] == "eventgrid.example"


async def test_an_inlet_whose_owner_says_so_answers_before_the_bucket_has_it(seb):
    await make(seb, "soon", answer="admitted")
    answer = await deliver(seb, "soon", **of_github())
    assert (answer.status_code, answer.headers["seb-durability"]) == (202, "memory")
    answer = await seb.client.get("/v1/topics/of-soon/records?wait=10s")
    assert [record["value"] for record in answer.json()["records"]] == [BODY.decode()]


async def test_a_topic_too_slow_for_its_sender_is_refused(seb):
    await seb.client.put("/v1/topics/of-slow", json={"linger_ms": 4_000})
    wanted = {"topic": "of-slow", "verify": {"scheme": "slack"}, "secrets": ["x"]}
    answer = await seb.client.put("/v1/inlets/slow", json=wanted)
    assert answer.status_code == 400
    assert "answer = admitted" in answer.json()["detail"]
    wanted["answer"] = "admitted"
    assert (await seb.client.put("/v1/inlets/slow", json=wanted)).status_code == 201


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"verify": {"scheme": "stripe"}}, "the sender chooses the secret"),
        ({"verify": {"scheme": "hmac"}, "secrets": ["x"]}, "name of a header"),
        ({"verify": {"scheme": "path"}, "secrets": ["short"]}, "16 to 200"),
        ({"verify": {"scheme": "standard"}, "secrets": ["whsec_!"]}, "base64"),
        ({"verify": {"scheme": "standard"}, "secrets": ["whsec_\u00e9"]}, "base64"),
        ({"verify": {"scheme": "svix"}, "secrets": ["whsec_"]}, "empty"),
        ({"verify": {"scheme": "github"}, "secrets": ["x"], "body": "envelope"}, "envelope"),
        ({"verify": {"scheme": "github"}, "secrets": ["x"], "key": "id"}, "JSON Pointer"),
        ({"verify": {"scheme": "none"}, "secrets": ["x"]}, "none"),
        (
            {"verify": {"scheme": "slack", "tolerance_s": 86_401}, "secrets": ["x"]},
            "86400",
        ),
        ({"verify": {"scheme": "github"}, "secrets": ["x", "y", "z"]}, "2"),
    ],
)
async def test_an_inlet_that_cannot_work_is_refused(seb, wanted, words):
    answer = await seb.client.put("/v1/inlets/refused", json={"topic": "refused", **wanted})
    assert answer.status_code == 400, answer.text
    assert words in answer.text
    assert (await seb.client.get("/v1/inlets/refused")).status_code == 404


async def test_an_inlet_belongs_to_those_who_manage_its_topic(seb):
    await make(seb, "mine")
    grants = [{"operation": "manage", "topics": "other.**"}, {"operation": "produce"}]
    made = await seb.client.post("/v1/api-keys", json={"name": "other", "grants": grants})
    theirs = {"Authorization": f"Bearer {made.json()['secret']}"}
    assert (await ask(seb, "GET", "/v1/inlets/mine", headers=theirs)).status_code == 404
    assert (await ask(seb, "DELETE", "/v1/inlets/mine", headers=theirs)).status_code == 404
    assert (await ask(seb, "GET", "/v1/inlets", headers=theirs)).json() == {"inlets": []}
    wanted = {"topic": "other.a", "verify": {"scheme": "github"}, "secrets": ["x"]}
    answer = await ask(seb, "PUT", "/v1/inlets/mine", json=wanted, headers=theirs)
    assert answer.status_code == 403
    assert (await deliver(seb, "mine", **of_github())).status_code == 200


async def test_a_deleted_inlet_takes_nothing_more(seb):
    await make(seb, "gone")
    assert (await deliver(seb, "gone", **of_github())).status_code == 200
    assert (await seb.client.delete("/v1/inlets/gone")).status_code == 204
    assert (await deliver(seb, "gone", **of_github(delivery="2"))).status_code == 401
    assert (await seb.client.get("/v1/inlets/gone")).status_code == 404


async def test_a_compressed_delivery_is_signed_as_it_is_sent(seb):
    await make(seb, "packed", body="lines")
    packed = gzip.compress(b"a\nb\n")
    headers = of_github(packed) | {"Content_Encoding": "gzip"}
    assert (await deliver(seb, "packed", packed, **headers)).json()["count"] == 2


async def test_secrets_lie_encrypted_in_the_journal(seb):
    await make(seb, "sealed", secrets=["very-secret-text"])
    row = seb.appliance.broker.documents.get("inlet", "sealed")
    assert "very-secret-text" not in row.document
    assert json.loads(row.document)["verify"] == {"scheme": "github"}
    key_file = seb.appliance.settings.data / "secrets.key"
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert hashlib.sha256(key_file.read_bytes()).digest()


@pytest.mark.slow
async def test_a_sender_that_waits_three_seconds_is_answered_before(seb):
    """The topic became slow after the inlet was made."""
    await make(seb, "hurried", "slack")
    await seb.client.patch("/v1/topics/of-hurried", json={"linger_ms": 6_000})
    now = str(int(time.time()))
    signature = digest(SECRET, f"v0:{now}:".encode() + BODY).hex()
    headers = {"X_Slack_Signature": f"v0={signature}", "X_Slack_Request_Timestamp": now}
    began_s = time.monotonic()
    answer = await deliver(seb, "hurried", **headers)
    assert (answer.status_code, answer.json()["code"]) == (504, "outcome_unknown")
    assert time.monotonic() - began_s < 3
    await seb.client.patch("/v1/topics/of-hurried", json={"linger_ms": 1})
    assert await values(seb, "hurried") == [BODY.decode()]


async def test_deliveries_are_counted_by_outcome(seb):
    await make(seb, "counted")
    before = await deliveries(seb)
    await deliver(seb, "counted", **of_github())
    await deliver(seb, "counted", **of_github())
    await deliver(seb, "counted", **of_github(secret="another"))
    await deliver(seb, "nobody", **of_github())
    after = await deliveries(seb)
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert grown == {"stored": 1, "repeated": 1, "unverified": 2}


async def deliveries(seb):
    text = (await seb.client.get("/metrics")).text
    found = re.findall(r'^seb_inlet_deliveries_total\{outcome="(\w+)"\} (\d+)', text, re.MULTILINE)
    return {outcome: int(float(count)) for outcome, count in found}


async def test_a_bug_does_not_write_the_secret_of_a_path_into_the_log(seb, monkeypatch, caplog):
    await make(seb, "logged", "path", secrets=["abcdefghijklmnop"])
    monkeypatch.setattr(type(seb.appliance.broker.appends), "append", None)
    answer = await ask(seb, "POST", "/v1/inlets/logged/abcdefghijklmnop", content=b"x")
    assert answer.status_code == 500
    assert "/v1/inlets/logged/…" in caplog.text
    assert "abcdefghijklmnop" not in caplog.text


async def test_a_start_says_which_secrets_cannot_be_decrypted(tmp_path, caplog):
    bucket, data = f"file:{tmp_path}/bucket", tmp_path / "data"
    async with running_appliance(data, bucket=bucket) as first:
        await make(first, "lost")
    (data / "secrets.key").unlink()
    async with running_appliance(data, bucket=bucket) as again:
        assert "The secrets of 1 inlets cannot be decrypted (lost)" in caplog.text
        assert (await deliver(again, "lost", **of_github())).status_code == 503
        assert "seb_inlets_without_secrets 1" in (await again.client.get("/metrics")).text
        await make(again, "lost", status=200)
        assert (await deliver(again, "lost", **of_github())).status_code == 200
        assert "seb_inlets_without_secrets 0" in (await again.client.get("/metrics")).text


async def test_kept_secrets_must_fit_another_scheme(seb):
    await make(seb, "refitted", secrets=["no base64!"])
    wanted = {"topic": "of-refitted", "verify": {"scheme": "standard"}}
    for more in ({}, {"keep_previous": True}):
        answer = await seb.client.put("/v1/inlets/refitted", json=wanted | more)
        assert answer.status_code == 400
        assert "whsec_" in answer.json()["detail"]
    now = str(int(time.time()))
    headers = {"webhook_id": "1", "webhook_timestamp": now, "webhook_signature": "v1,AAAA"}
    assert (await deliver(seb, "refitted", **headers)).status_code == 401


async def test_the_previous_secret_can_be_ended_without_a_new_one(seb):
    await make(seb, "ending", secrets=["new", "old"])
    found = await make(seb, "ending", status=200, secrets=None, end_previous=True)
    assert found["secrets"] == 1
    assert "secret" not in found
    for secret, status in (("old", 401), ("new", 200)):
        assert (await deliver(seb, "ending", **of_github(secret=secret))).status_code == status
    both = {"topic": "of-ending", "verify": {"scheme": "github"}, "end_previous": True}
    answer = await seb.client.put("/v1/inlets/ending", json=both | {"keep_previous": True})
    assert answer.status_code == 400


async def test_an_inlet_that_others_made_meanwhile_is_not_taken_over(seb, monkeypatch):
    """Whoever may manage its topic is asked again when the change is decided."""

    async def key(topics):
        body = {"name": "k", "grants": [{"operation": "manage", "topics": topics}]}
        return (await seb.client.post("/v1/api-keys", json=body)).json()["secret"]

    settings = {"verify": {"scheme": "github"}}
    async with seb.client_with(await key("of-a.**")) as a, seb.client_with(await key("b.**")) as b:
        await a.put("/v1/topics/of-a.inlet")
        arrived, go_on = hold_creates(seb, monkeypatch)
        theirs = asyncio.create_task(b.put("/v1/inlets/wanted", json=settings | {"topic": "b.new"}))
        await arrived.wait()  # their topic is being made
        own = settings | {"topic": "of-a.inlet", "secrets": [SECRET]}
        ours = asyncio.create_task(a.put("/v1/inlets/wanted", json=own))
        while not seb.appliance.broker.documents._ahead.rows.get("inlet 'wanted'"):
            await asyncio.sleep(0)
        go_on.set()
        assert ((await ours).status_code, (await theirs).status_code) == (201, 403)
        assert (await deliver(seb, "wanted", **of_github())).status_code == 200


async def test_a_refusal_takes_as_long_whether_there_is_an_inlet(seb, monkeypatch):
    """Large bodies take long to hash: who was refused sooner knew that there is an inlet."""
    hashed = []
    digest_of = hmac.digest

    def noted(key, content, algorithm):
        hashed.append(len(content) >= len(BODY))
        return digest_of(key, content, algorithm)

    token = {"scheme": "token", "header": "X-Token"}
    for name, scheme in (("timed-1", "github"), ("timed-2", "stripe"), ("timed-3", token)):
        await make(seb, name, scheme)
    monkeypatch.setattr(hmac, "digest", noted)
    for name in ("timed-0", "timed-1", "timed-2", "timed-3"):
        assert (await deliver(seb, name)).status_code == 401
        assert hashed == [True], name
        hashed.clear()
