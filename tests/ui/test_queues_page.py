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

    for wrong, said in (
        ({"topics": ""}, "Enter the topics"),
        ({"lease_ms": "soon"}, "Lease"),
        ({"dead_letter": "m.dead"}, "its own dead letters"),
        ({"retry_min_ms": "1h", "retry_max_ms": "1s"}, "min_ms must not be more"),
    ):
        refused = await admin.post(PAGE, **FORM | wrong)
        assert (refused.status_code, said in refused.text) == (422, True), said
    assert (await admin.post(PAGE, **FORM | {"lease_ms": "1m"})).status_code == 303
    found = (await seb.client.get("/v1/queues/mails")).json()
    assert (found["settings"]["lease_ms"], found["in_flight"]) == (60_000, 1)

    redriven = await admin.post(f"{PAGE}/redrive")
    assert redriven.status_code == 303
    told = words((await admin.get(PAGE)).text)
    assert "Records again: 1. Redriven before: 0." in told
    assert "In flight 0 of" not in told
    assert (await admin.post(f"{PAGE}/redrive", offset="0")).status_code == 303
    assert "Redriven before: 1." in (await admin.get(PAGE)).text
    assert (await admin.post(f"{PAGE}/reset", time="")).status_code == 303
    assert "Waiting 6 not done" in words((await admin.get(PAGE)).text)
    kept = await admin.post(f"{PAGE}/purge", name="other")
    assert (kept.status_code, "nothing was dropped" in kept.text) == (422, True)
    assert (await admin.post(f"{PAGE}/purge", name="mails")).status_code == 303
    assert "Waiting 0 not done" in words((await admin.get(PAGE)).text)

    kept = await admin.post(f"{PAGE}/delete", name="other")
    assert (kept.status_code, "nothing was deleted" in kept.text) == (422, True)
    assert (await admin.post(f"{PAGE}/delete", name="mails")).status_code == 303
    assert (await admin.get(PAGE)).status_code == 404


async def test_the_list_has_pages(seb: RunningAppliance, admin: Visitor) -> None:
    for number in range(51):
        body = {"topics": ["none"]}
        await seb.client.put(f"/v1/queues/q-{number:02}", json=body)
    first = (await admin.get("/ui/queues?filter=q-")).text
    assert "q-49" in first
    assert "q-50" not in first
    following = re.search(r'href="(/ui/queues\?[^"]*after=[^"]*)"', first)
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
