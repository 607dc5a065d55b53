"""The pages of work queues: what an admin sets is what workers get."""

from __future__ import annotations

import re

import pytest

from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGE = "/ui/queues/mails"
FORM = {"topics": "m.*", "dead_letter": "dead", "max_deliveries": "3", "ordering": "none"}


def words(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", text))


async def taken(seb: RunningAppliance, most: int) -> list[str]:
    answer = await seb.client.post("/v1/queues/mails/take", json={"max": most})
    return [one["delivery"] for one in answer.json()["records"]]


async def refuses_bad_settings(admin: Visitor) -> None:
    for wrong, said in (
        ({"topics": ""}, "Enter the topics"),
        ({"lease_ms": "soon"}, "Lease"),
        ({"dead_letter": "m.dead"}, "its own dead letters"),
        ({"retry_min_ms": "1h", "retry_max_ms": "1s"}, "min_ms must not be more"),
    ):
        refused = await admin.post(PAGE, **FORM | wrong)
        assert (refused.status_code, said in refused.text) == (422, True), said


async def test_a_queue_is_made_worked_on_changed_and_deleted(
    seb: RunningAppliance, admin: Visitor
) -> None:
    assert "There are no queues" in (await admin.get("/ui/queues")).text
    assert (await admin.post("/ui/new-queue", queue="mails", **FORM)).status_code == 303
    again = await admin.post("/ui/new-queue", queue="mails", **FORM)
    assert (again.status_code, "There is a queue mails already" in again.text) == (422, True)
    assert "No topic matches m.* yet" in (await admin.get(PAGE)).text

    for number in range(5):
        await seb.client.post("/v1/topics/m.a/records", content=b"%d" % number)
    first, second, third = await taken(seb, 3)
    await seb.client.post("/v1/queues/mails/ack", json={"deliveries": [first]})
    await seb.client.post(
        "/v1/queues/mails/retry", json={"deliveries": [second], "delay_ms": 3_600_000}
    )
    rejected = {"deliveries": [third], "reason": "no <b>address</b>"}
    answer = await seb.client.post("/v1/queues/mails/reject", json=rejected)
    assert answer.json()["results"] == ["ok"]
    await taken(seb, 1)
    shown = words((await admin.get(PAGE)).text)
    for part in ("In flight 1 of 10,000", "To retry 1", "m.a 1 waits for a retry 1"):
        assert part in shown, shown
    assert "m.a 3 in flight 1" in shown
    assert "m.a 2 1" in shown  # the dead letter: its record and attempts
    assert "no &lt;b&gt;address&lt;/b&gt;" in shown
    row = words((await admin.get("/ui/queues")).text)
    assert re.search(r"mails m\.\* 3 \S+ m?s 1 1 1 0", row), row

    await refuses_bad_settings(admin)
    assert (await admin.post(PAGE, **FORM | {"lease_ms": "1m"})).status_code == 303
    found = (await seb.client.get("/v1/queues/mails")).json()
    assert (found["settings"]["lease_ms"], found["in_flight"]) == (60_000, 1)

    looked = await admin.post(f"{PAGE}/redrive")
    assert (looked.status_code, "m.a 1" in words(looked.text)) == (200, True), looked.text
    assert "Last dead letters" in (await admin.get(PAGE)).text
    redriven = await admin.post(f"{PAGE}/redrive", topic="m.a")
    assert redriven.status_code == 303
    told = words((await admin.get(PAGE)).text)
    assert "Records again: 1. Redriven before: 0." in told
    assert "In flight 0 of" not in told
    again = await admin.post(f"{PAGE}/redrive", offset="0")
    assert (again.status_code, "None of these" in again.text) == (422, True)
    assert (await admin.post(f"{PAGE}/redrive", offset="0", topic="m.a")).status_code == 303
    assert "Redriven before: 1." in (await admin.get(PAGE)).text
    kept = await admin.post(f"{PAGE}/reset", time="", name="other")
    assert (kept.status_code, "nothing was changed" in kept.text) == (422, True)
    assert (await admin.post(f"{PAGE}/reset", time="", name="mails")).status_code == 303
    assert "Waiting 6 not done" in words((await admin.get(PAGE)).text)
    kept = await admin.post(f"{PAGE}/purge", name="other")
    assert (kept.status_code, "nothing was dropped" in kept.text) == (422, True)
    assert (await admin.post(f"{PAGE}/purge", name="mails")).status_code == 303
    assert "Waiting 0 not done" in words((await admin.get(PAGE)).text)

    kept = await admin.post(f"{PAGE}/delete", name="other")
    assert (kept.status_code, "nothing was deleted" in kept.text) == (422, True)
    assert (await admin.post(f"{PAGE}/delete", name="mails")).status_code == 303
    assert (await admin.get(PAGE)).status_code == 404


async def test_a_forged_dead_letter_goes_to_no_topic_that_was_not_shown(
    seb: RunningAppliance, admin: Visitor
) -> None:
    settings = {"topics": ["f.*"], "dead_letter": "forged"}
    assert (await seb.client.put("/v1/queues/forging", json=settings)).status_code == 201
    page = "/ui/queues/forging"

    async def forge(topic: str) -> None:
        headers = {"seb-dead-queue": "forging", "seb-dead-topic": topic}
        body = {"records": [{"value": "x", "headers": headers}]}
        assert (await seb.client.post("/v1/topics/forged/records", json=body)).status_code == 201

    await forge("f.a")
    assert "f.a" in (await admin.post(f"{page}/redrive")).text
    await forge("f.b")
    kept = await admin.post(f"{page}/redrive", topic="f.a")
    assert (kept.status_code, "f.b, which was not shown" in kept.text) == (422, True), kept.text
    await forge("payments")
    shown = await admin.post(f"{page}/redrive")
    assert (shown.status_code, "1 dead letter left out" in shown.text) == (200, True), shown.text
    kept = await admin.post(f"{page}/redrive", offset="2")
    assert (kept.status_code, "queue does not read: 1" in kept.text) == (422, True), kept.text
    assert (await seb.client.get("/v1/topics/f.a")).status_code == 404


async def test_many_large_dead_letters_that_are_chosen_are_all_redriven(
    seb: RunningAppliance, admin: Visitor
) -> None:
    settings = {"topics": ["big"], "dead_letter": "big.dead"}
    assert (await seb.client.put("/v1/queues/big", json=settings)).status_code == 201
    headers = {"seb-dead-queue": "big", "seb-dead-topic": "big"}
    for letter in "abc":
        body = {"records": [{"value": letter * 700_000, "headers": headers}]}
        await seb.client.post("/v1/topics/big.dead/records", json=body)
    page = (await admin.get("/ui/queues/big")).text
    assert 'aria-label="Redrive 2"' in page  # the newest
    done = await admin.post("/ui/queues/big/redrive", offset=["0", "1", "2"], topic="big")
    assert done.status_code == 303, done.text
    assert (await seb.client.get("/v1/topics/big")).json()["log_end_offset"] == 3


async def test_the_list_has_pages(seb: RunningAppliance, admin: Visitor) -> None:
    for number in range(51):
        body = {"topics": ["none"]}
        await seb.client.put(f"/v1/queues/q-{number:02}", json=body)
    first = (await admin.get("/ui/queues?filter=q-")).text
    assert "q-49" in first
    assert "q-50" not in first
    following = re.search(r'href="(/ui/queues\?[^"]*page=2[^"]*)"', first)
    assert following is not None
    second = (await admin.get(following[1].replace("&amp;", "&"))).text
    assert "q-50" in second
    assert "q-49" not in words(second)
    assert "No queue has a name" in (await admin.get("/ui/queues?filter=nothing")).text


async def test_a_viewer_sees_settings_and_changes_nothing(
    seb: RunningAppliance, olga: Visitor
) -> None:
    await seb.client.put("/v1/queues/seen", json={"topics": ["t"]})
    page = (await olga.get("/ui/queues/seen")).text
    assert "<dt>Lease</dt><dd>30s</dd>" in page
    assert "Delete the queue" not in page
    assert (await olga.post("/ui/queues/seen/delete", name="seen")).status_code == 403


async def test_the_page_of_a_topic_names_the_queues_that_read_it(
    seb: RunningAppliance, admin: Visitor
) -> None:
    await seb.client.put("/v1/queues/prints", json={"topics": ["p.**"]})
    for topic in ("p.a", "q"):
        await seb.client.put(f"/v1/topics/{topic}", json={})
    assert 'href="/ui/queues/prints"' in (await admin.get("/ui/topics/p.a")).text
    assert "Queues that read it" not in (await admin.get("/ui/topics/q")).text
