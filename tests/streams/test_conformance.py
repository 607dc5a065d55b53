"""The protocol's public conformance suite against a real process: all of it passes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.streams.node import install_modules, node, run
from tests.support.process import Bucket, seb_process

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]
ALL = 338


async def test_every_test_of_the_public_suite_passes(tmp_path: Path):
    node()
    modules = await asyncio.to_thread(install_modules)
    report = tmp_path / "report.json"
    flags = ("--linger", "5ms", "--durable-streams-open", "--cors-origins", "*")
    flags += ("--push-networks", "127.0.0.1")  # where the suite receives webhooks
    async with seb_process(Bucket.directory(tmp_path / "b"), tmp_path / "d", *flags) as seb:
        done = await asyncio.to_thread(
            run,
            str(modules / "vitest/vitest.mjs"),
            "run",
            "--reporter=json",
            "--testTimeout=60000",  # a busy machine is no failure
            f"--outputFile={report}",
            url=f"http://127.0.0.1:{seb.port}",
            timeout_s=400,
        )
    assert report.exists(), done.stdout + done.stderr
    told = json.loads(report.read_text())
    failed = [
        f"{test['fullName']}: {test['failureMessages'][0].splitlines()[0]}"
        for file in told["testResults"]
        for test in file["assertionResults"]
        if test["status"] == "failed"
    ]
    assert failed == []
    assert (told["numPassedTests"], told["numPendingTests"]) == (ALL, 0)
