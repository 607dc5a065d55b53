"""curl, Python's HTTP libraries and the CloudEvents SDK, as the cookbook shows them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.senders.cookbook import Prepared, look, prepare
from tests.senders.deaths import FAILPOINTS, WITHIN_S, killed_and_back
from tests.server.serving import Serving, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]
# Without pytest's own filter of warnings.
ENVIRONMENT = {**os.environ, "PYTHONWARNINGS": ""}
NDJSON = '{"n": 1}\n{"n": 2}\n'
CURL_SENT = [
    '{"form": "json"}',
    "plain text",
    "colour=red&size=7",
    NDJSON,
    "multipart",
    '{"n": 1}',
    '{"n": 2}',
    '{"n": 1}',
    '{"n": 2}',
    '{"n": 3}',
    '{"n": 4}',
    *["a line", "another line"] * 2,
]


def run(*command: str | Path) -> str:
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def records(seb: Serving, sender: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in look(seb, sender)]


def curl_script(seb: Serving, prepared: Prepared, folder: Path) -> Path:
    prepared.file("headers.txt", seb, folder)
    return prepared.file("send.sh", seb, folder)


def check_curl(seb: Serving) -> None:
    found = records(seb, "curl")
    multipart = found[4]["value"]
    assert isinstance(multipart, str)
    boundary = json.dumps(found[4]["headers"]).partition("boundary=")[2].rstrip('"}')
    assert multipart.count(boundary) == 3
    assert NDJSON in multipart
    assert [record["value"] for record in found] == [*CURL_SENT[:4], multipart, *CURL_SENT[5:]]
    assert [record.get("key") for record in found[5:7]] == ["1", "2"]


def test_curl_sends_ten_forms(tmp_path: Path) -> None:
    with serving(tmp_path) as seb:
        script = curl_script(seb, prepare(seb, "curl"), tmp_path)
        assert script.read_text().count("\nsend -") == 10
        run("sh", script)
        check_curl(seb)


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_what_curl_sends_is_stored_once_over_a_kill(tmp_path: Path, failpoint: str) -> None:
    with serving(tmp_path) as seb:
        script = curl_script(seb, prepare(seb, "curl"), tmp_path)
    with killed_and_back(tmp_path, seb.port, failpoint, lambda: run("sh", script)) as again:
        check_curl(again)


@pytest.mark.parametrize("failpoint", FAILPOINTS)
@pytest.mark.parametrize(
    "name", ["send_requests.py", pytest.param("send_httpx.py", marks=pytest.mark.neighbours)]
)
def test_what_python_sends_is_stored_once_over_a_kill(
    tmp_path: Path, name: str, failpoint: str
) -> None:
    with serving(tmp_path) as seb:
        program = prepare(seb, "python").file(name, seb, tmp_path)
    with killed_and_back(
        tmp_path, seb.port, failpoint, lambda: run(sys.executable, program)
    ) as again:
        values = [json.loads(line) for line in look(again, "python")]
    assert values == [{"number": number} for number in range(20)]


def test_a_repeated_cloud_event_is_stored_once(tmp_path: Path) -> None:
    with serving(tmp_path) as seb:
        program = prepare(seb, "cloudevents").file("send.py", seb, tmp_path)
        first, second = (run(sys.executable, program, "a") for _ in range(2))
        found = records(seb, "cloudevents")
    assert first == second
    assert [record["value"] for record in found] == [{"celsius": 12}] * 2 or [
        json.loads(str(record["value"])) for record in found
    ] == [{"celsius": 12}] * 2
    named = [json.dumps(record["headers"]) for record in found]
    assert ["a-binary" in named[0], "a-structured" in named[1]] == [True, True]


@pytest.mark.neighbours
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_what_the_cloud_events_sdk_sends_is_stored_once_over_a_kill(
    tmp_path: Path, failpoint: str
) -> None:
    sent = [f"event-{number}" for number in range(4)]
    with serving(tmp_path) as seb:
        program = prepare(seb, "cloudevents").file("send.py", seb, tmp_path)

    def failed(ids: list[str]) -> list[str]:
        commands = [[sys.executable, program, one] for one in ids]
        codes = [
            subprocess.run(command, env=ENVIRONMENT, timeout=60, check=False).returncode
            for command in commands
        ]
        return [one for one, code in zip(ids, codes, strict=True) if code]

    with serving(tmp_path, port=seb.port, failpoint=failpoint) as dying:
        again = failed(sent)
        assert dying.process.wait(WITHIN_S) == -9
    assert again == sent[1:]
    with serving(tmp_path, port=seb.port) as restarted:
        assert failed(again) == []
        named = [json.dumps(record["headers"]) for record in records(restarted, "cloudevents")]
    assert len(named) == 2 * len(sent)
    for one in sent:
        for mode in ("binary", "structured"):
            assert sum(f'"{one}-{mode}"' in text for text in named) == 1
