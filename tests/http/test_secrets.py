"""No secret of an API key is anywhere but in the one answer that shows it (and the admin key in its
own file): canaries, looked for in the log, metrics, SQLite, and every byte of the bucket."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest

from tests.support.appliance import running_appliance
from tests.support.canaries import files_below


async def test_no_secret_is_stored_or_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen = ""
    flags = {"bucket": f"file:{tmp_path / 'bucket'}", "early_flush": True}
    async with running_appliance(tmp_path / "data", **flags) as seb:
        new = {"name": "canary", "grants": [{"operation": "produce"}]}
        made = (await seb.client.post("/v1/api-keys", json=new)).json()
        path = f"/v1/api-keys/{made['api_key_id']}"
        rotated = (await seb.client.post(f"{path}/rotate")).json()
        tokens = [seb.admin_key, made["secret"], rotated["secret"]]
        for token in tokens:
            async with seb.client_with(token) as client:
                for answer in (
                    await client.post("/v1/topics/t/records", content=b"x"),
                    await client.get("/v1/topics", params={"token": token}),
                    await client.get("/v1/topics", auth=("u", token[:-1])),
                    await client.patch(path, json={"name": token, "secret": 1}),
                ):
                    seen += answer.text + str(answer.headers)
        for shown in ("/v1/api-keys", path, "/v1/audit", "/metrics", "/readyz"):
            seen += (await seb.client.get(shown)).text
        assert await seb.appliance.drain()  # with a snapshot
    files = files_below(tmp_path)
    assert any("snapshots" in name for name in files)
    assert any(name.endswith("state.sqlite") for name in files)
    assert any(name.endswith("local.sqlite") for name in files)
    log = "\n".join(
        record.getMessage() + str(record.exc_text)
        for record in caplog.records
        if not record.name.startswith("http")  # the test's own client
    )
    haystacks = {**files, "log": log.encode(), "answers": seen.encode()}
    for token in tokens:
        secret = token.split("_", 2)[2][:43]
        raw = base64.urlsafe_b64decode(secret + "=")
        needles = (secret.encode(), raw, raw.hex().encode(), base64.b64encode(raw)[:40])
        for name, haystack in haystacks.items():
            for needle in needles:
                assert needle not in haystack, f"{token[:12]}… is in {name}"
