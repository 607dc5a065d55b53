"""The file of definitions on the page: as `seb apply`, previewed, and audited as the user's."""

from __future__ import annotations

import re

import pytest

from seb_appliance.broker.ports import AuditQuery
from tests.support.appliance import RunningAppliance
from tests.ui.looking import looked_through
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
FILE = """topics:
  orders:
    linger: 20ms
groups:
  lake:
    orders: earliest
queues:
  work:
    topics: [orders]
"""


async def stood(admin: Visitor, text: str) -> str:
    shown = await admin.post("/ui/definitions", text=text)
    assert shown.status_code == 200, shown.text
    found = re.search(r'name="stood" value="(\w+)"', shown.text)
    assert found
    return found[1]


async def apply(admin: Visitor, text: str, stood: str) -> tuple[int, str]:
    answer = await admin.post("/ui/definitions", text=text, step="apply", stood=stood)
    return answer.status_code, answer.text


async def test_a_file_is_previewed_and_then_applied_and_audited_as_the_users(
    seb: RunningAppliance, admin: Visitor
) -> None:
    shown = (await admin.post("/ui/definitions", text=FILE)).text
    assert "Apply 3 changes" in shown
    assert "create topic" in shown
    assert "<b>linger</b> <ins>20ms</ins>" in shown
    assert (await seb.client.get("/v1/topics/orders")).status_code == 404  # only a preview
    assert (await apply(admin, FILE, await stood(admin, FILE)))[0] == 303
    assert "3 changes made." in (await admin.get("/ui/definitions")).text
    topic = (await seb.client.get("/v1/topics/orders")).json()
    assert topic["settings"]["linger_ms"] == 20
    assert (await seb.client.get("/v1/groups/lake")).status_code == 200
    rows = await seb.appliance.broker.audit(AuditQuery(10, subject="orders"))
    assert [(row.action, row.actor) for row in rows] == [("topic_created", "user:admin")]
    assert rows[0].address == "127.0.0.1"
    again = await admin.post("/ui/definitions", text=FILE)
    assert "Nothing would change" in again.text


async def test_what_is_downloaded_changes_nothing_and_is_what_the_command_writes(
    seb: RunningAppliance, admin: Visitor, olga: Visitor
) -> None:
    answer = await olga.get("/ui/definitions/file")
    assert answer.headers["content-disposition"] == 'attachment; filename="seb.yaml"'
    assert "  orders:\n    linger: 20ms\n" in answer.text
    assert "Nothing would change" in (await admin.post("/ui/definitions", text=answer.text)).text


async def test_it_deletes_nothing_and_says_what_is_kept(
    seb: RunningAppliance, admin: Visitor
) -> None:
    await seb.client.put("/v1/topics/kept")
    shown = (await admin.post("/ui/definitions", text="topics: {}")).text
    assert "Nothing would change" in shown
    assert "topic kept" in shown


async def test_a_change_since_the_preview_is_refused_and_previewed_again(
    seb: RunningAppliance, admin: Visitor
) -> None:
    text = "topics: {orders: {linger: 50ms}}"
    agreed = await stood(admin, text)
    await seb.client.patch("/v1/topics/orders", json={"linger_ms": 30})
    status, page = await apply(admin, text, agreed)
    assert status == 422
    assert "has changed since the preview; nothing was changed" in page
    assert "<del>30ms</del> <ins>50ms</ins>" in page
    other = text.replace("50ms", "60ms")
    assert (await apply(admin, other, await stood(admin, text)))[0] == 422
    topic = (await seb.client.get("/v1/topics/orders")).json()
    assert topic["settings"]["linger_ms"] == 30


async def test_new_secrets_are_shown_once(seb: RunningAppliance, admin: Visitor) -> None:
    text = (
        "inlets: {github: {topic: hooks, scheme: github, secret_file: /etc/passwd}}\n"
        "api_keys: {checkout: {grants: ['produce:orders']}}\n"
    )
    status, page = await apply(admin, text, await stood(admin, text))
    assert status == 201
    assert "2 of 2 changes made" in page
    assert re.search(r"<dt>checkout</dt><dd><code>seb_", page)
    assert re.search(r"<dt>github</dt><dd><code>\S{20}", page)
    assert "root:" not in page


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Paste a file"),
        ("topics: [", "the file"),
        ("topics: {'a b': {}}", "not allowed"),
        ("nothing: {}", "nothing"),
        ("topics: {a: {linger: <script>alert(1)</script>}}", "linger"),
    ],
)
async def test_a_wrong_file_is_refused_in_words_with_what_was_typed(
    admin: Visitor, text: str, words: str
) -> None:
    answer = await admin.post("/ui/definitions", text=text, step="plan")
    if answer.status_code == 200:  # a name is looked at when it is made
        answer = await admin.post(
            "/ui/definitions", text=text, step="apply", stood=await stood(admin, text)
        )
    assert answer.status_code == 422
    page = looked_through(answer.text)
    assert words in " ".join(page.said)
    assert text in page.said or not text


async def test_a_viewer_may_look_and_changes_nothing(admin: Visitor, olga: Visitor) -> None:
    assert "<textarea" not in (await olga.get("/ui/definitions")).text
    answer = await olga.post("/ui/definitions", text="topics: {seen: {}}", step="apply")
    assert answer.status_code == 403


async def test_no_client_is_taken_for_the_page(seb: RunningAppliance) -> None:
    async with seb.client_with(None) as client:
        for headers in ({"seb-own-key": "user:admin"}, {"state": "seb_own_key"}):
            assert (await client.get("/v1/topics", headers=headers)).status_code == 401
