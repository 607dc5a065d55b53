"""Records stored by hand: a typed one, and some sent on from another topic."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from seb_appliance import limits
from seb_appliance.broker.ports import AuditQuery
from tests.support.appliance import RunningAppliance, running_appliance
from tests.ui.pages import Visitor, add_user, visitor


@pytest.fixture
async def seb(tmp_path: Path) -> AsyncIterator[RunningAppliance]:
    async with running_appliance(tmp_path / "seb") as running:
        await add_user(running, "admin", "admin")
        await add_user(running, "olga", "viewer")
        for topic in ("from", "to"):
            await running.client.put(f"/v1/topics/{topic}")
        yield running


@pytest.fixture
async def admin(seb: RunningAppliance) -> AsyncIterator[Visitor]:
    visiting = visitor(seb)
    async with visiting.client:
        await visiting.log_in("admin")
        yield visiting


async def records(seb: RunningAppliance, topic: str) -> list[dict[str, object]]:
    told = await seb.client.get(f"/v1/topics/{topic}/records")
    return [
        {name: record[name] for name in ("key", "value", "headers")}
        for record in told.json()["records"]
    ]


async def test_a_typed_record_is_stored_and_noted(seb: RunningAppliance, admin: Visitor) -> None:
    fields = {"key": "k/1", "headers": "kind: order\r\nby: olga", "value": '{"a":1}\r\nb'}
    answer = await admin.post("/ui/topics/to/produce", **fields)
    assert answer.headers["location"] == "/ui/topics/to/records/0"
    assert "Stored at offset 0." in (await admin.get("/ui/topics/to/records/0")).text
    assert await records(seb, "to") == [
        {"key": "k/1", "value": '{"a":1}\nb', "headers": {"kind": "order", "by": "olga"}}
    ]
    (row,) = await seb.appliance.broker.audit(AuditQuery(9, action="records_appended"))
    assert (row.actor, row.address, row.subject) == ("user:admin", "127.0.0.1", "to")
    assert msgspec.json.decode(row.after or "") == {"offset": 0, "records": 1}
    assert seb.appliance.broker.pending.used == 0


async def test_a_form_that_is_sent_twice_stores_once(seb: RunningAppliance, admin: Visitor) -> None:
    page = (await admin.get("/ui/topics/to/produce")).text
    found = re.search(r'name="form_id" value="([0-9a-f]{32})"', page)
    assert found is not None
    fields = {"key": "", "headers": "", "value": "one", "form_id": found[1]}
    answers = await asyncio.gather(*(admin.post("/ui/topics/to/produce", **fields) for _ in "12"))
    assert {one.headers["location"] for one in answers} == {"/ui/topics/to/records/0"}
    again = await admin.post("/ui/topics/to/produce", **fields)
    assert again.headers["location"] == "/ui/topics/to/records/0"
    assert "Stored at offset 0." in (await admin.get("/ui/topics/to/records/0")).text
    assert len(await records(seb, "to")) == 1
    # Other content is another form, and so is one without an id.
    await admin.post("/ui/topics/to/produce", **fields | {"value": "two"})
    for _ in "12":
        await admin.post("/ui/topics/to/produce", value="three")
    assert [one["value"] for one in await records(seb, "to")] == ["one", "two", "three", "three"]


async def test_a_tombstone_is_typed_too(seb: RunningAppliance, admin: Visitor) -> None:
    assert (await admin.post("/ui/topics/to/produce", key="k", tombstone="yes")).status_code == 303
    assert await records(seb, "to") == [{"key": "k", "value": None, "headers": {}}]


@pytest.mark.parametrize(
    "fields",
    [
        {"value": "<script>", "headers": "no colon"},
        {"value": "x", "key": "k", "tombstone": "yes"},
        {"tombstone": "yes"},
        {"value": "x" * 20, "key": "a"},
        {"value": "x", "key": "k" * (limits.RECORD_KEY_BYTES_MAX + 1)},
    ],
)
async def test_what_is_no_record_is_shown_again(
    seb: RunningAppliance, admin: Visitor, fields: dict[str, str]
) -> None:
    await seb.client.patch("/v1/topics/to", json={"max_record_bytes": 10})
    answer = await admin.post("/ui/topics/to/produce", **fields)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert "<script>" not in answer.text
    assert await records(seb, "to") == []
    assert seb.appliance.broker.pending.used == 0


async def test_chosen_records_are_shown_and_then_sent(
    seb: RunningAppliance, admin: Visitor
) -> None:
    for number in range(5):
        await admin.post(
            "/ui/topics/from/produce", key=f"k{number}", value=f"v{number}", headers="a:b"
        )
    path = "/ui/topics/from/send?offset=3&offset=1"
    assert "To the topic" in (await admin.get(path)).text
    text = (await admin.get(f"{path}&to=to")).text
    assert "The copies are added to to at offset 0 or later" in text
    assert "Send 2 records to to" in text
    assert await records(seb, "to") == []
    fields = {"offset": ["3", "1"], "to": "to"}
    answer = await admin.client.post(
        "/ui/topics/from/send", data=fields, headers={"origin": admin.origin}
    )
    assert answer.headers["location"] == "/ui/topics/to/records?start=earliest&at=0"
    assert await records(seb, "to") == [
        {"key": f"k{number}", "value": f"v{number}", "headers": {"a": "b"}} for number in (1, 3)
    ]
    (row,) = await seb.appliance.broker.audit(
        AuditQuery(1, subject="to", action="records_appended")
    )
    told = msgspec.json.decode(row.after or "")
    assert told == {"offset": 0, "records": 2, "from_topic": "from", "from_offsets": [1, 3]}


@pytest.mark.parametrize(
    "query",
    ["to=to", "offset=9&to=to", "offset=0&to=nowhere", "offset=0&to=%3Cscript%3E", "offset=x"],
)
async def test_what_cannot_be_sent_is_told_in_words(
    seb: RunningAppliance, admin: Visitor, query: str
) -> None:
    await admin.post("/ui/topics/from/produce", value="v")
    answer = await admin.get(f"/ui/topics/from/send?{query}")
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert "<script>" not in answer.text
    headers = {"origin": admin.origin, "content-type": "application/x-www-form-urlencoded"}
    answer = await admin.client.post("/ui/topics/from/send", content=query, headers=headers)
    assert answer.status_code == 422
    assert [topic.name for topic in seb.appliance.broker.topics.all()] == ["from", "to"]


async def test_a_viewer_stores_nothing(seb: RunningAppliance) -> None:
    olga = visitor(seb)
    async with olga.client:
        await olga.log_in("olga")
        assert "<textarea" not in (await olga.get("/ui/topics/to/produce")).text
        assert (await olga.post("/ui/topics/to/produce", value="x")).status_code == 403
        assert (await olga.post("/ui/topics/from/send", offset="0", to="to")).status_code == 403
    assert await records(seb, "to") == []


async def test_nobody_stores_into_a_topic_that_is_not_there(admin: Visitor) -> None:
    assert (await admin.get("/ui/topics/none/produce")).status_code == 404
    assert (await admin.post("/ui/topics/none/produce", value="x")).status_code == 404


async def test_a_record_is_a_template_for_the_next_one(
    seb: RunningAppliance, admin: Visitor
) -> None:
    line = b'{"key": "k", "value": "one\\ntwo", "headers": {"kind": "order", "by": "a: b"}}\n'
    kind = {"content-type": "application/x-ndjson"}
    await seb.client.post("/v1/topics/templates/records", content=line, headers=kind)
    page = (await admin.get("/ui/topics/templates/produce?like=0")).text
    assert 'name="key" type="text" value="k"' in page
    assert "one\ntwo</textarea>" in page
    assert "kind: order\nby: a: b\n</textarea>" in page
    fields = {"key": "k", "value": "one\r\ntwo", "headers": "kind: order\r\nby: a: b"}
    assert (await admin.post("/ui/topics/templates/produce", **fields)).status_code == 303
    records = (await seb.client.get("/v1/topics/templates/records?offset=0")).json()["records"]
    first, second = ({**one, "offset": 0, "timestamp": ""} for one in records)
    assert first == second
    await seb.client.post("/v1/topics/templates/records", content=b"\xff\xfe")
    assert "produce?like=1" in (await admin.get("/ui/topics/templates/records/1")).text
    for path in ("records/2", "records?start=end"):  # no way that leads to a refusal
        assert "produce?like=2" not in (await admin.get(f"/ui/topics/templates/{path}")).text
    assert (await admin.get("/ui/topics/templates/produce?like=2")).status_code == 400
    assert (await admin.get("/ui/topics/templates/produce?like=9")).status_code == 404
