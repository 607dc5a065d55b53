"""The password of a user, sessions, tickets and the secret of the bucket are nowhere but where they
must be: canaries, looked for in answers, pages, log, files, the bucket, and the process list."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from seb_appliance.broker.access.audit import AT_THE_MACHINE
from seb_appliance.ops.serve.protocols import openapi_json
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.canaries import children, files_below
from tests.ui.pages import Visitor, visitor

PASSWORD = "canary-of-a-password"
CHANGED = "canary-of-another-password"
BUCKET_SECRET = "canary-of-the-bucket-secret"
PAGES = ("", "/topics", "/topics/t", "/topics/t/records", "/groups", "/api-keys", "/storage")
PAGES += ("/users", "/users/admin", "/settings", "/audit", "/login", "/nothing")
SHOWN = ("/v1/topics", "/v1/audit", "/v1/status", "/v1/cost", "/metrics", "/readyz", "/v1/api-keys")


async def logged_in(seb: RunningAppliance, guest: Visitor, password: str) -> str:
    """The session; the one answer that shows it is not looked at."""
    assert (await guest.log_in("admin", password)).status_code == 303
    assert guest.token is not None
    return guest.token


async def misused(seb: RunningAppliance, secret: str) -> str:
    """What is answered to a secret in places where it does not belong."""
    answers = [
        await seb.client.get("/v1/topics", params={"ticket": secret}),
        await seb.client.get("/v1/topics/t/records", params={"ticket": secret, "offset": "x"}),
        await seb.client.get("/v1/topics", headers={"cookie": f"seb_session={secret}"}),
        await seb.client.post("/v1/tickets", json={"topics": "**", secret[:5]: secret}),
        await seb.client.put("/v1/topics/t", json={"linger_ms": secret}),
    ]
    async with seb.client_with(secret) as client:
        answers.append(await client.get("/v1/topics"))
        answers.append(await client.post("/v1/topics/t/records", content=b"x"))
        wrong, ours = {"name": "nobody", "password": secret}, {"origin": seb.base_url}
        answers.append(await client.post("/ui/login", data=wrong, headers=ours))
    assert answers[-1].status_code == 401
    return "".join(answer.text + str(answer.headers) for answer in answers)


async def process_list(seb: RunningAppliance, admin: Visitor) -> bytes:
    """Arguments and environment of the child process of a check."""
    assert (await admin.post("/ui/storage/doctor")).status_code == 303
    while b"check_child" not in (seen := children()):
        assert seb.appliance.checks.running
        await asyncio.sleep(0)
    await seb.appliance.checks.finished()
    return seen


async def test_no_secret_of_a_person_or_of_the_bucket_is_stored_shown_or_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SEB_S3_SECRET_ACCESS_KEY", BUCKET_SECRET)  # of this process alone
    flags: dict[str, str | bool] = {
        "bucket": f"file:{tmp_path / 'bucket'}",
        "early_flush": True,
        "s3_access_key_id": "somebody",
        "s3_secret_access_key": BUCKET_SECRET,
    }
    async with running_appliance(tmp_path / "data", **flags) as seb:
        accounts, passwords = seb.appliance.broker.accounts, seb.appliance.passwords
        await accounts.add("admin", "admin", await passwords.hash(PASSWORD), AT_THE_MACHINE)
        await seb.client.post("/v1/topics/t/records", content=b"x")
        guest = visitor(seb)
        async with guest.client:
            secrets = [PASSWORD, CHANGED, BUCKET_SECRET]
            secrets.append(await logged_in(seb, guest, PASSWORD))
            changed = await guest.post("/ui/users/admin/password", password=CHANGED)
            assert changed.status_code == 303
            secrets.append(await logged_in(seb, guest, CHANGED))
            ticket = (await seb.client.post("/v1/tickets", json={"topics": "**"})).json()["ticket"]
            secrets.append(ticket)
            read = await guest.client.get("/v1/topics/t/records", params={"ticket": ticket})
            assert read.status_code == 200
            seen = read.text + str(read.headers) + openapi_json().decode()
            for secret in secrets:
                seen += await misused(seb, secret)
            listed = await process_list(seb, guest)
            seen += "".join([(await guest.get(f"/ui{page}")).text for page in PAGES])
            seen += "".join([(await seb.client.get(path)).text for path in SHOWN])
            seen += repr(seb.appliance.settings) + repr(seb.appliance)
            assert await seb.appliance.drain()  # with a snapshot
    files = files_below(tmp_path)
    assert any("snapshots" in name for name in files)
    log = "\n".join(
        record.getMessage() + str(record.exc_text)
        for record in caplog.records
        if not record.name.startswith("http")  # the test's own client
    )
    haystacks = {**files, "log": log.encode(), "answers": seen.encode(), "processes": listed}
    for secret in secrets:
        for name, haystack in haystacks.items():
            assert secret.encode() not in haystack, f"{secret[:12]}… is in {name}"
    assert b"$argon2id$" in b"".join(files.values()), "what is looked through holds the hashes"
