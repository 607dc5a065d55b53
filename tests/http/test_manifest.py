"""The manifest: segments of a topic, and nothing of what holds other topics' records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.formats import batch
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.documented import check_documented

TIDY = {"tidier": "off", "tidy_bytes": "1KiB", "tidy_young": "0ms", "garbage_grace": "1h"}
COUNT = 200


@pytest.fixture
async def tidied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningAppliance]:
    """`orders` has a segment of its own, `small` and `tiny` share a packed object; one record of
    `orders` is in the journal only."""
    monkeypatch.setattr(limits, "OWN_SEGMENT_BYTES_MIN", 2_000)
    async with running_appliance(tmp_path, **TIDY) as seb:
        seb.client.event_hooks = {"response": [check_documented]}
        for i in range(COUNT):
            await produce(seb, "orders", f"{i} ".encode() * 10)
        await produce(seb, "small", b"little")
        await produce(seb, "tiny", b"less")
        while await seb.appliance.tidier.step():
            pass
        await produce(seb, "orders", b"the last")
        yield seb


async def produce(seb: RunningAppliance, topic: str, value: bytes) -> None:
    path = f"/v1/topics/{topic}/records"
    answer = await seb.client.post(path, content=value)
    assert answer.status_code == 201, answer.text


async def manifest(seb: RunningAppliance, topic: str = "orders", **query: str | int) -> dict:
    answer = await seb.client.get(f"/v1/topics/{topic}/manifest", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_sections_of_a_segment_hold_the_records_that_it_names(tidied) -> None:
    found = await manifest(tidied)
    (segment,) = found["segments"]
    assert (segment["base_offset"], segment["last_offset"]) == (0, COUNT - 1)
    assert (found["next_offset"], found["segments_end_offset"]) == (COUNT + 1, COUNT)
    store = tidied.appliance.store
    keys = [ref.key for ref, *_ in stored(tidied) if "/segments/" in ref.key]
    body = await store.get(keys[0])
    assert len(body) == segment["size_bytes"]
    offsets = []
    for section in segment["sections"]:
        part = memoryview(body)[section["at"] : section["at"] + section["length"]]
        assert crc32c(part) == section["crc32c"]
        for at, header in batch.walk(part):
            offsets += batch.decode(part, at, header).offsets()
    assert offsets == list(range(COUNT))


def stored(seb: RunningAppliance) -> list:
    objects = seb.appliance.broker.tidying._catalog.stored.all()
    return [(found.ref, found.length) for found in objects]


async def test_a_packed_object_is_never_named(tidied) -> None:
    assert any("/packed/" in ref.key for ref, _ in stored(tidied))
    found = await manifest(tidied, "small", presign="1m")
    assert found["segments"] == []
    assert found["next_offset"] == 1


async def test_a_range_names_only_what_it_touches(tidied) -> None:
    assert len((await manifest(tidied, offset=5, until=6))["segments"]) == 1
    behind = await manifest(tidied, offset=COUNT)
    assert (behind["segments"], behind["next_offset"]) == ([], COUNT + 1)
    nothing = await manifest(tidied, offset=7, until=7)
    assert (nothing["segments"], nothing["next_offset"]) == ([], 7)


async def test_a_long_manifest_is_told_in_parts(tidied, monkeypatch) -> None:
    monkeypatch.setattr(limits, "SEGMENT_SECTION_BYTES", 500)
    for i in range(COUNT):
        await produce(tidied, "orders", f"{i} ".encode() * 10)
    while await tidied.appliance.tidier.step():
        pass
    whole = await manifest(tidied)
    monkeypatch.setattr(limits, "MANIFEST_SECTIONS_MAX", 1)
    sections, offset = [], 0
    while offset < whole["next_offset"]:
        part = await manifest(tidied, offset=offset)
        assert sum(len(found["sections"]) for found in part["segments"]) <= 1
        sections += [s for found in part["segments"] for s in found["sections"]]
        assert part["next_offset"] > offset
        offset = part["next_offset"]
    assert sections == [s for found in whole["segments"] for s in found["sections"]]
    assert len(sections) > 1


async def test_a_bucket_without_urls_gives_none(tidied) -> None:
    (segment,) = (await manifest(tidied, presign="15m"))["segments"]
    assert segment["url"] is None


async def test_a_trimmed_range_is_gone_from_the_manifest(tidied) -> None:
    await tidied.client.post("/v1/topics/orders/trim", json={"before": 10})
    answer = await tidied.client.get("/v1/topics/orders/manifest", params={"offset": 9})
    assert (answer.status_code, answer.json()["code"]) == (410, "offset_expired")
    assert (await manifest(tidied))["log_start_offset"] == 10


async def test_a_manifest_takes_the_grant_to_consume(tidied) -> None:
    granted = [{"operation": "consume", "topics": "small"}]
    made = await tidied.client.post("/v1/api-keys", json={"name": "spark", "grants": granted})
    async with tidied.client_with(made.json()["secret"]) as client:
        assert (await client.get("/v1/topics/small/manifest")).status_code == 200
        assert (await client.get("/v1/topics/orders/manifest")).status_code == 403


@pytest.mark.parametrize(
    "query", [{"presign": "15"}, {"presign": "2h"}, {"presign": "1ms"}, {"wait": "1s"}]
)
async def test_a_bad_question_is_refused(tidied, query) -> None:
    answer = await tidied.client.get("/v1/topics/orders/manifest", params=query)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")


async def test_urls_are_given_to_who_asks_and_has_no_quota_on_bytes_out(
    tidied, monkeypatch
) -> None:
    async def signed_urls(objects, valid_s: int) -> list[str]:
        return [f"https://bucket/{ref.key}?for={valid_s}" for ref in objects]

    monkeypatch.setattr(tidied.appliance.sections, "signed_urls", signed_urls)
    (segment,) = (await manifest(tidied, presign="15m"))["segments"]
    assert segment["url"].endswith("?for=900")
    assert (await manifest(tidied))["segments"][0]["url"] is None
    for grace_s, valid_s in ((300, 300), (3600, 900)):  # none is good for what may be deleted
        monkeypatch.setattr(tidied.appliance.broker.manifests, "_valid_s_max", grace_s)
        (segment,) = (await manifest(tidied, presign="15m"))["segments"]
        assert segment["url"].endswith(f"?for={valid_s}")
    monkeypatch.setattr(tidied.appliance.broker.manifests, "_valid_s_max", 0)
    assert (await manifest(tidied, presign="15m"))["segments"][0]["url"] is None
    monkeypatch.setattr(tidied.appliance.broker.manifests, "_valid_s_max", 3600)
    asked = {
        "name": "bounded",
        "grants": [{"operation": "consume"}],
        "quotas": {"bytes_out_per_second": 1 << 20},
    }
    made = await tidied.client.post("/v1/api-keys", json=asked)
    async with tidied.client_with(made.json()["secret"]) as client:
        answer = await client.get("/v1/topics/orders/manifest", params={"presign": "15m"})
        assert answer.json()["segments"][0]["url"] is None
