"""Compactions that others make, by the API; what comes into force is in tests/unit."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.upkeep.due import Compactions
from seb_appliance.storage.stores.object_store import SignedPut
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.documented import check_documented

TIDY = {"tidier": "off", "tidy_bytes": "1KiB", "tidy_young": "0ms", "tidy_after": "0ms"}
MD5 = base64.b64encode(hashlib.md5(b"", usedforsecurity=False).digest()).decode()
SEGMENT = {"base_offset": 0, "last_offset": 1, "size_bytes": 200, "md5": MD5}


@pytest.fixture
async def seb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningAppliance]:
    """`t` is compacted by others; two records of it are in a packed object."""
    monkeypatch.setattr(limits, "ENTRIES_PER_JOB_MIN", 1)
    monkeypatch.setattr(Compactions, "next", nothing_due)
    async with running_appliance(tmp_path, **TIDY) as running:
        running.client.event_hooks = {"response": [check_documented]}
        await running.client.put("/v1/topics/t", json={"cleanup": "compact"})
        for value in ("1", "2"):
            path = "/v1/topics/t/records"
            await running.client.post(path, json={"records": [{"key": "a", "value": value}]})
        topic = running.appliance.broker._catalog.topic("t")
        while topic.entries_begin < topic.log_end_offset:
            await running.appliance.tidier.step()
        yield running


async def nothing_due(_: object) -> None:
    """Our own compaction does not come first."""


@pytest.fixture
def signing(seb: RunningAppliance, monkeypatch: pytest.MonkeyPatch) -> None:
    async def signed_put(key: str, length: int, md5: bytes, valid_s: int) -> SignedPut:
        return SignedPut(f"https://bucket/{key}", {"Content-Length": str(length)})

    monkeypatch.setattr(seb.appliance.store, "signed_put", signed_put)
    monkeypatch.setattr(seb.appliance.sections._store, "signed_put", signed_put)


async def begun(seb: RunningAppliance) -> dict:
    answer = await seb.client.post("/v1/topics/t/compactions")
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.usefixtures("signing")
async def test_a_compaction_is_begun_and_given_up(seb: RunningAppliance) -> None:
    found = await begun(seb)
    assert (found["base_offset"], found["last_offset"], found["state"]) == (0, 1, "open")
    assert found["dirty_bytes"] == found["size_bytes"] > 0
    path = f"/v1/topics/t/compactions/{found['compaction']}"
    assert (await seb.client.get(path)).json() == found
    assert (await seb.client.delete(path)).status_code == 204
    assert (await seb.client.get(path)).json()["state"] == "refused"
    named = await seb.client.post(f"{path}/segments", json=SEGMENT)
    assert (named.status_code, named.json()["code"]) == (409, "compaction_refused")


@pytest.mark.usefixtures("signing")
async def test_a_segment_that_is_not_there_is_refused_when_it_is_checked(
    seb: RunningAppliance,
) -> None:
    found = await begun(seb)
    path = f"/v1/topics/t/compactions/{found['compaction']}"
    upload = await seb.client.post(f"{path}/segments", json=SEGMENT)
    assert upload.status_code == 201, upload.text
    assert f"/segments/{found['topic_id']}/" in upload.json()["url"]
    body = {"compaction": found["compaction"], "segments": [upload.json()["segment"]]}
    for _ in range(2):
        handed = await seb.client.post("/v1/topics/t/segments", json=body)
        assert (handed.status_code, handed.json()["state"]) == (202, "checking")
    await seb.appliance.tidier.step()
    after = (await seb.client.get(path)).json()
    assert after["state"] == "refused"
    assert "not in the bucket" in after["reason"]


@pytest.mark.usefixtures("signing")
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({**SEGMENT, "last_offset": 2}, "bad_request"),
        ({**SEGMENT, "size_bytes": 0}, "bad_request"),
        ({**SEGMENT, "size_bytes": 2**40}, "bad_request"),
        ({**SEGMENT, "md5": "?"}, "bad_request"),
        ({**SEGMENT, "md5": "AAAA"}, "bad_request"),
        ({**SEGMENT, "more": 1}, "bad_json"),
    ],
)
async def test_a_segment_that_cannot_be_is_refused(
    seb: RunningAppliance, given: dict, code: str
) -> None:
    found = await begun(seb)
    path = f"/v1/topics/t/compactions/{found['compaction']}/segments"
    answer = await seb.client.post(path, json=given)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_a_bucket_without_urls_says_so(seb: RunningAppliance) -> None:
    answer = await seb.client.post("/v1/topics/t/compactions")
    assert (answer.status_code, answer.json()["code"]) == (409, "compaction_refused")


async def test_a_compaction_that_nobody_began_is_not_found(seb: RunningAppliance) -> None:
    for method, path in (("GET", "t/compactions/x"), ("DELETE", "t/compactions/x")):
        answer = await seb.client.request(method, f"/v1/topics/{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "compaction_not_found")
    body = {"compaction": "x", "segments": []}
    answer = await seb.client.post("/v1/topics/t/segments", json=body)
    assert answer.json()["code"] == "compaction_not_found"


async def test_the_grant_to_manage_the_topic_is_needed(seb: RunningAppliance) -> None:
    made = await seb.client.post(
        "/v1/api-keys", json={"name": "reader", "grants": [{"operation": "consume"}]}
    )
    headers = {"Authorization": f"Bearer {made.json()['secret']}"}
    answer = await seb.client.post("/v1/topics/t/compactions", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.usefixtures("signing")
async def test_a_quota_that_nobody_could_count_is_no_right_to_store(seb: RunningAppliance) -> None:
    grants = [{"operation": "manage"}]
    asked = {"name": "slow", "grants": grants, "quotas": {"bytes_in_per_second": 1_000}}
    made = await seb.client.post("/v1/api-keys", json=asked)
    headers = {"Authorization": f"Bearer {made.json()['secret']}"}
    answer = await seb.client.post("/v1/topics/t/compactions", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "compaction_refused")
