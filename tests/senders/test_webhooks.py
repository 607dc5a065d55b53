"""Webhooks, signed by the senders' own libraries and by GitHub's documented example."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.senders.cookbook import look, prepare
from tests.senders.deaths import FAILPOINTS, WITHIN_S
from tests.server.serving import Serving, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]
SECRETS = {
    "github": "",  # the page makes one
    "stripe": "whsec_Yp7WyNNyOdW0N2bG",
    "standard-webhooks": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "svix": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",  # as the library takes it: not padded
}
PROGRAMS = {"github": ["sh", "deliver.sh"]}
# As GitHub's documentation has it for testing a verification.
GITHUB_SECRET, GITHUB_BODY = "It's a Secret to Everybody", b"Hello, World!"
GITHUB_SIGNATURE = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

# Each delivery is a process, and the libraries of these take a second to import.
SLOW = ("stripe", "svix")
KILLED = [pytest.param(one, marks=[pytest.mark.neighbours] * (one in SLOW)) for one in SECRETS]

Deliver = Callable[[str], int]


def deliverer(sender: str, seb: Serving, folder: Path) -> Deliver:
    """Delivers what the page shows under an id; the exit code."""
    program, name = PROGRAMS.get(sender, [sys.executable, "deliver.py"])
    file = prepare(seb, sender, secret=SECRETS[sender]).file(name, seb, folder)

    def deliver(delivery_id: str) -> int:
        command = [program, file, delivery_id]
        environment = {**os.environ, "PYTHONWARNINGS": ""}
        return subprocess.run(command, env=environment, timeout=60, check=False).returncode

    return deliver


@pytest.mark.parametrize("sender", SECRETS)
def test_a_delivery_is_stored_once(tmp_path: Path, sender: str) -> None:
    with serving(tmp_path) as seb:
        deliver = deliverer(sender, seb, tmp_path)
        assert [deliver(one) for one in ("evt_1", "evt_2", "evt_1")] == [0, 0, 0]
        found = [json.loads(line) for line in look(seb, sender)]
        assert len(found) == 2
        assert {record["key"] for record in found} <= {"octo/demo", "cus_1", "user_1"}
        shown = json.loads(seb.request("GET", f"/v1/inlets/{sender}")[1])
    assert [one["status"] for one in shown["deliveries"]] == [200, 200, 200]


@pytest.mark.parametrize("failpoint", FAILPOINTS)
@pytest.mark.parametrize("sender", KILLED)
def test_a_delivery_without_an_answer_is_stored_once_when_it_is_repeated(
    tmp_path: Path, sender: str, failpoint: str
) -> None:
    sent = [f"evt_{number}" for number in range(5)]
    with serving(tmp_path) as seb:
        deliver = deliverer(sender, seb, tmp_path)
    with serving(tmp_path, port=seb.port, failpoint=failpoint) as dying:
        failed = [one for one in sent if deliver(one)]
        assert dying.process.wait(WITHIN_S) == -9
    assert failed == sent[2:]
    with serving(tmp_path, port=seb.port) as again:
        assert [deliver(one) for one in failed] == [0, 0, 0]
        assert len(look(again, sender)) == len(sent)


def test_a_delivery_with_another_secret_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as seb:
        prepared = prepare(seb, "svix", secret=SECRETS["svix"])
        file = prepared.file("deliver.py", seb, tmp_path)
        file.write_text(file.read_text().replace("whsec_Mf", "whsec_Nf"))
        done = subprocess.run([sys.executable, file, "evt_1"], capture_output=True, check=False)
        assert b"401" in done.stderr
        assert look(seb, "svix") == []


def test_the_example_of_github_s_documentation_is_accepted(tmp_path: Path) -> None:
    with serving(tmp_path) as seb:
        wanted = {"topic": "t", "verify": {"scheme": "github"}, "secrets": [GITHUB_SECRET]}
        assert seb.request("PUT", "/v1/inlets/g", json.dumps(wanted).encode())[0] == 201
        command = ["curl", "-sS", "--fail", f"http://127.0.0.1:{seb.port}/v1/inlets/g"]
        command += ["-H", f"X-Hub-Signature-256: sha256={GITHUB_SIGNATURE}", "-d", GITHUB_BODY]
        subprocess.run(command, check=True, timeout=60, capture_output=True)
        records = json.loads(seb.request("GET", "/v1/topics/t/records")[1])["records"]
    assert [record["value"] for record in records] == [GITHUB_BODY.decode()]
