"""The header `traceparent` of a produce request goes with its records, whichever lane takes it."""

from __future__ import annotations

import pytest

from seb_appliance.formats import batch
from tests.unit.formats.samples import plain

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
KEPT = {"traceparent": TRACE}


async def headers_of(seb, topic):
    answer = await seb.client.get(f"/v1/topics/{topic}/records?offset=earliest")
    return [record.get("headers") for record in answer.json()["records"]]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/octet-stream", b"x"),
        ("application/json", b'{"records":[{"value":1},{"value":2}]}'),
        ("application/x-ndjson", b'{"value":1}\n{"value":2}\n'),
    ],
)
async def test_each_record_of_a_request_keeps_it(seb, kind, body):
    topic = f"kept-{kind.partition('/')[2]}"
    headers = {"content-type": kind, "traceparent": TRACE}
    answer = await seb.client.post(f"/v1/topics/{topic}/records", content=body, headers=headers)
    assert answer.status_code == 201
    assert await headers_of(seb, topic) == [KEPT] * answer.json()["count"]


async def test_a_record_header_of_that_name_stays_as_it_is(seb):
    records = [{"value": 1, "headers": {"traceparent": "mine", "a": "b"}}, {"value": 2}]
    await seb.client.post(
        "/v1/topics/mine/records", json={"records": records}, headers={"traceparent": TRACE}
    )
    assert await headers_of(seb, "mine") == [{"traceparent": "mine", "a": "b"}, KEPT]


async def test_it_goes_beside_other_record_headers(seb):
    headers = {"traceparent": TRACE, "seb-header-a": "b"}
    await seb.client.post("/v1/topics/beside/records", content=b"x", headers=headers)
    assert await headers_of(seb, "beside") == [{**KEPT, "a": "b"}]


async def test_where_there_is_no_room_for_it_the_record_is_stored_without_it(seb):
    full = {f"h{number}": "x" for number in range(32)}
    records = [{"value": 1, "headers": full}]
    answer = await seb.client.post(
        "/v1/topics/full/records", json={"records": records}, headers={"traceparent": TRACE}
    )
    assert answer.status_code == 201
    assert await headers_of(seb, "full") == [full]


@pytest.mark.parametrize(
    "given",
    [
        "00-1",
        TRACE.upper(),
        f"{TRACE}-x",
        f"ff{TRACE[2:]}",
        TRACE.replace("4bf9", "4bf\xe9"),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
    ],
)
async def test_what_is_no_traceparent_is_not_kept_and_refuses_nothing(seb, given):
    headers = {b"traceparent": given.encode("latin-1")}
    answer = await seb.client.post("/v1/topics/other/records", content=b"x", headers=headers)
    assert answer.status_code == 201
    assert (await headers_of(seb, "other"))[-1] == {}


async def test_the_records_of_a_transaction_keep_it(seb):
    step = {"produce": {"step": [{"value": 1}]}}
    answer = await seb.client.post("/v1/transactions", json=step, headers={"traceparent": TRACE})
    assert answer.status_code == 201
    assert await headers_of(seb, "step") == [KEPT]


async def test_record_batches_are_stored_as_they_came(seb):
    made = batch.encode(plain(b"a"), base_offset=0, created_us=1)
    headers = {"content-type": "application/vnd.seb.batch", "traceparent": TRACE}
    answer = await seb.client.post("/v1/topics/batch/records", content=made, headers=headers)
    assert answer.status_code == 201
    assert await headers_of(seb, "batch") == [{}]
