"""The page of storage: what lies in the bucket, and which requests it took."""

from __future__ import annotations

import re
from pathlib import Path

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
        seq, waiting = seb.appliance.journal.position.seq, seb.appliance.broker.tidying
        assert f"Journal seq {seq} epoch 1" in shown
        assert f"Entries to be tidied {waiting.waiting_entries} " in shown
        assert re.search(r"PUT ok journal \d+ [\d.]+ (ms|s) [\d.]+ \w+", shown)
        assert "Newest snapshot none yet" in shown
        assert "Cache none" in shown
        assert re.search(r"From memory [1-9]\d* sections", shown)
        assert re.search(r"storage [\d.,]+ GB-month", shown), shown
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


PART = {"hx-request": "true", "hx-target": "storage-live"}
