"""The page of storage: what lies in the bucket, and which requests it took."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest

from tests.support.appliance import running_appliance
from tests.ui.pages import add_user, visitor


async def test_the_storage_page_tells_what_was_stored_and_asked(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "seb") as seb:
        await add_user(seb, "olga", "viewer")
        for _ in range(3):
            await seb.client.post("/v1/topics/orders/records", content=b"x" * 1000)
        await seb.client.get("/v1/topics/orders/records")
        olga = visitor(seb)
        async with olga.client:
            await olga.log_in("olga")
            text = (await olga.get("/ui/storage")).text
            part = (await olga.get("/ui/storage", **PART)).text
        shown = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", text))
        seq, tidying = seb.appliance.journal.position.seq, seb.appliance.broker.tidying
        assert f"Journal seq {seq} epoch 1" in shown
        assert f"Entries to be tidied {len(tidying.untidied.entries)} " in shown
        assert re.search(r"PUT ok journal \d+ [\d.]+ (ms|s) [\d.]+ \w+", shown)
        assert "Newest snapshot none yet" in shown
        assert "Cache none" in shown
        assert re.search(r"From memory [1-9]\d* sections", shown)
        assert re.search(r"storage [\d.,]+ GB-month", shown), shown
        assert "SQS FIFO takes 1.50 USD per million records" in shown
        assert "Take a snapshot now" not in shown
        assert part.lstrip().startswith('<div id="storage-live"')


async def test_what_fails_is_told_in_words(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "seb") as seb:
        await add_user(seb, "olga", "viewer")
        seb.appliance.snapshots.failure = "no snapshot could be made: <b>disk full</b>"
        seb.appliance.tidier.asked.requests["GET"] = 17
        olga = visitor(seb)
        async with olga.client:
            await olga.log_in("olga")
            text = (await olga.get("/ui/storage")).text
        assert "no snapshot could be made: &lt;b&gt;disk full" in text
        assert re.search(r"GET\s+-\s+tidier\s+17", re.sub("<[^>]*>", " ", text))


async def test_an_admin_takes_a_snapshot(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "seb") as seb:
        await add_user(seb, "olga", "viewer")
        await add_user(seb, "ada", "admin")
        for name, status in (("olga", 403), ("ada", 303)):
            visit = visitor(seb)
            async with visit.client:
                await visit.log_in(name)
                answer = await visit.post("/ui/storage/snapshot")
                assert answer.status_code == status
                assert bool(seb.appliance.snapshots.newest_seq) == (name == "ada")
                if name == "ada":
                    text = (await visit.get(answer.headers["location"])).text
                    assert f"reaches up to entry {seb.appliance.snapshots.newest_seq}" in text


@pytest.mark.slow
async def test_an_admin_has_the_bucket_looked_at_and_everybody_reads_what_was_found(
    tmp_path: Path,
) -> None:
    bucket = tmp_path / "bucket"
    async with running_appliance(tmp_path / "seb", bucket=f"file:{bucket}") as seb:
        await add_user(seb, "olga", "viewer")
        await add_user(seb, "ada", "admin")
        for _ in range(3):
            await seb.client.post("/v1/topics/orders/records", content=b"x" * 1000)
        checks = seb.appliance.checks
        olga, ada = visitor(seb), visitor(seb)
        async with olga.client, ada.client:
            await olga.log_in("olga")
            await ada.log_in("ada")
            assert shown(await olga.get("/ui/storage")).count("Not run since the start") == 2
            assert (await olga.post("/ui/storage/fsck")).status_code == 403

            assert (await ada.post("/ui/storage/doctor")).status_code == 303
            assert "The check has started" in shown(await olga.get("/ui/storage")) + shown(
                await ada.get("/ui/storage")
            )
            assert "Running:" in shown(await olga.get("/ui/storage", **CHECKS))
            await ada.post("/ui/storage/fsck")
            assert "another one is running" in shown(await ada.get("/ui/storage"))
            await checks.finished()
            text = shown(await olga.get("/ui/storage"))
            assert "Fit to run." in text
            assert re.search(r"Checks passed (\d+) of \1 ", text), text
            assert "PUT " in text

            await ada.post("/ui/storage/fsck")
            await checks.finished()
            assert "Clean: nothing is wrong." in shown(await olga.get("/ui/storage"))
            (bucket / "_seb" / "a <b>stranger").write_bytes(b"?")
            await ada.post("/ui/storage/fsck")
            await checks.finished()
            answer = await olga.get("/ui/storage")
            assert "Leftovers (1)." in shown(answer)
            assert "foreign_object: _seb/a &lt;b&gt;stranger" in answer.text
            assert "remove it by hand" in answer.text
            assert "Fit to run." in answer.text
            assert not (tmp_path / "seb" / "check.tmp").exists()


async def test_a_bucket_in_memory_is_not_looked_at(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "seb") as seb:
        await add_user(seb, "ada", "admin")
        ada = visitor(seb)
        async with ada.client:
            await ada.log_in("ada")
            text = shown(await ada.get("/ui/storage"))
            assert "This bucket is in the memory" in text
            assert "Run doctor" not in text
            await ada.post("/ui/storage/doctor")
            assert "No check was started" in shown(await ada.get("/ui/storage"))


def shown(answer: httpx2.Response) -> str:
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", answer.text))


CHECKS = {"hx-request": "true", "hx-target": "checks"}
PART = {"hx-request": "true", "hx-target": "storage-live"}
