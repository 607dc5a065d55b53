"""The tidier's child process tells what it asked of the bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.appliance import running_appliance


@pytest.mark.slow
async def test_requests_of_the_child_are_counted_also_of_a_job_that_failed(tmp_path, monkeypatch):
    monkeypatch.setenv("SEB_S3_SECRET_ACCESS_KEY", "canary")  # of this process alone
    flags = {"bucket": f"file:{tmp_path / 'bucket'}", "tidier": "off", "tidy_bytes": "1KiB"}
    async with running_appliance(tmp_path / "data", tidy_young="0ms", **flags) as seb:
        tidier, cost = seb.appliance.tidier, seb.appliance.cost
        for _ in range(70):
            await seb.client.post("/v1/topics/t/records", content=b"x" * 100)
        job = await seb.appliance.broker.tidying.next_job()
        assert job is not None
        while await tidier.step():
            pass
        assert tidier.failure == ""
        told = Path(f"/proc/{tidier._rewriter.pid}/environ").read_bytes()
        assert b"PATH=" in told
        assert b"SEB_" not in told
        found = cost.report().ledger.this_month.requests
        assert found["tidier GET"] >= 70
        assert found["tidier PUT"] >= 1
        received = tidier.asked.received_bytes
        assert received > 70 * 100
        for path in (tmp_path / "bucket").rglob("0*.seb"):
            path.write_bytes(b"damaged")
        with pytest.raises(Exception, match="journal"):
            await tidier._rewriter.rewrite(job)
        assert cost.report().ledger.this_month.requests["tidier GET"] > found["tidier GET"]
