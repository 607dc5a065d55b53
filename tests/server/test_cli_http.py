"""`seb …` as processes beside a real appliance: pipes, signals, restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.serving import ENVIRONMENT, Serving, free_port, serving

pytestmark = pytest.mark.slow


@contextmanager
def seb(
    running: Serving, *arguments: str, out: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """A command with pipes; killed at the end if it still runs."""
    client = {"SEB_URL": f"http://127.0.0.1:{running.port}", "SEB_DATA": str(running.data)}
    process = subprocess.Popen(
        [sys.executable, "-m", "seb_appliance", *arguments],
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=subprocess.PIPE,
        env={**ENVIRONMENT, **client},
    )
    try:
        with process:
            yield process
            process.kill()
    finally:
        process.kill()


def put(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def take(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def test_lines_go_through_as_they_come(tmp_path: Path) -> None:
    with serving(tmp_path) as running, seb(running, "produce", "live", "--json") as producer:
        put(producer, b"one\n")
        assert json.loads(take(producer))["offset"] == 0
        with seb(running, "consume", "live", "--follow") as consumer:
            assert take(consumer) == b"one\n"
            put(producer, b"two\n")
            assert take(consumer) == b"two\n"
            put(producer, b"three")
            _, err = producer.communicate(timeout=30)
            assert producer.returncode == 0
            assert err == b"3 records acknowledged, the last at offset 2\n"
            assert take(consumer) == b"three\n"


@pytest.mark.parametrize("command", ["produce", "consume", "tail"])
def test_an_interruption_is_quiet(tmp_path: Path, command: str) -> None:
    tailing = ["--offset", "earliest"]
    flags = {"produce": ["--json"], "consume": ["--follow"], "tail": tailing}[command]
    with serving(tmp_path) as running:
        running.request("POST", "/v1/topics/live/records", b"hello")
        with seb(running, command, "live", *flags) as process:
            put(process, b"one\n")
            assert take(process)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stderr is not None
            told = process.stderr.read()
        assert b"Traceback" not in told
        assert told.strip() in (b"", b"1 record acknowledged, the last at offset 1")


@pytest.mark.parametrize(
    "command",
    [
        ["consume", "long"],
        ["consume", "long", "--json"],
        ["tail", "long", "--offset", "earliest"],
    ],
)
def test_a_reader_that_has_enough_is_fine(tmp_path: Path, command: list[str]) -> None:
    with serving(tmp_path) as running:
        with seb(running, "produce", "long") as producer:
            producer.communicate(b"a long line to fill pipes\n" * 50_000, timeout=60)
            assert producer.returncode == 0
        with seb(running, *command) as consumer:
            assert take(consumer)
            assert consumer.stdout is not None
            consumer.stdout.close()
            assert consumer.wait(30) == 0
            assert consumer.stderr is not None
            assert consumer.stderr.read() == b""


def test_a_producer_and_a_consumer_outlive_a_restart(tmp_path: Path) -> None:
    port = free_port()
    with (
        serving(tmp_path, port=port) as running,
        seb(running, "produce", "live", "--json") as producer,
    ):
        put(producer, b"one\n")
        assert take(producer)
        with seb(running, "consume", "live", "--follow") as consumer:
            assert take(consumer) == b"one\n"
            assert running.stop() == 0
            put(producer, b"two\n")
            with serving(tmp_path, port=port):
                assert json.loads(take(producer))["offset"] == 1
                assert take(consumer) == b"two\n"


@pytest.mark.parametrize("offset", ["latest", "-1"])
def test_a_tail_goes_on_where_it_was_when_the_appliance_comes_back(
    tmp_path: Path, offset: str
) -> None:
    """Whether it had seen a record by then, or was waiting for the first one."""
    with serving(tmp_path) as running:
        port = running.port
        running.request("POST", "/v1/topics/live/records", b"one")
        with seb(running, "tail", "live", "--offset", offset) as following:
            if offset == "-1":
                assert take(following) == b"one\n"
            else:
                wait_for_reader(running)
            assert running.stop() == 0
            with serving(tmp_path, port=port) as again:
                again.request("POST", "/v1/topics/live/records", b"two")
                assert take(following) == b"two\n"


def test_a_file_is_applied_exported_and_then_makes_no_difference(tmp_path: Path) -> None:
    example = str(Path(__file__).parents[2] / "examples" / "seb.yaml")
    secrets = tmp_path / "secrets"
    with serving(tmp_path) as running:
        assert told_by(running, "apply", example, "--diff")[0] == 2
        # Nobody reads what it tells: it goes on all the same.
        out, into = os.pipe()
        os.close(out)
        with seb(running, "apply", example, "--secrets-file", str(secrets), out=into) as applying:
            os.close(into)
            _, err = applying.communicate(timeout=30)
        assert applying.returncode == 0
        assert err.startswith(b"API key admin (")
        assert err.endswith(b") is not in the file and is kept\n")
        assert [json.loads(line)["name"] for line in secrets.read_text().splitlines()] == [
            "checkout",
            "lake",
        ]
        assert told_by(running, "apply", example, "--diff") == (0, b"")
        code, exported = told_by(running, "apply", "--export")
        (tmp_path / "exported.yaml").write_bytes(exported)
        same = told_by(running, "apply", str(tmp_path / "exported.yaml"), "--diff", "--prune")
        assert (code, same) == (0, (0, b""))


def told_by(running: Serving, *arguments: str) -> tuple[int, bytes]:
    """Exit code and stdout of a command."""
    with seb(running, *arguments) as process:
        out, _ = process.communicate(timeout=60)
    return process.returncode, out


def test_a_tail_of_a_topic_that_goes_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        running.request("POST", "/v1/topics/live/records", b"one")
        with seb(running, "tail", "live", "--json", "--offset", "0") as following:
            assert json.loads(take(following))["value"] == "one"
            running.request("DELETE", "/v1/topics/live")
            _, told = following.communicate(timeout=30)
            assert following.returncode == 1
            assert b"(topic_not_found)" in told


def wait_for_reader(running: Serving) -> None:
    while b"\nseb_waiting_readers 1" not in running.request("GET", "/metrics")[1]:
        pass


def test_a_producer_whose_appliance_dies_sends_its_line_again(tmp_path: Path) -> None:
    """The window stays open for 5 s: the line waits in it when the process is killed."""
    port = free_port()
    with serving(tmp_path, port=port) as running:
        running.request("PUT", "/v1/topics/slow", b'{"linger_ms": 5000}')
        with seb(running, "produce", "slow") as producer:
            put(producer, b"one\n")
            wait_until_pending(running)
            running.process.kill()
            running.process.wait()
            with serving(tmp_path, port=port):
                _, err = producer.communicate(timeout=60)
                assert producer.returncode == 0
                assert err == b"1 record acknowledged, the last at offset 0\n"


def test_a_producer_that_lost_its_answer_does_not_store_its_line_twice(tmp_path: Path) -> None:
    """The appliance is killed when the bucket has the record and nobody was told."""
    port = free_port()
    with serving(tmp_path, port=port) as running:
        running.request("PUT", "/v1/topics/once", b"{}")
    with (
        serving(tmp_path, port=port, failpoint="K10:kill:1") as running,
        seb(running, "produce", "once") as producer,
    ):
        put(producer, b"one\n")
        running.process.wait(30)
        with serving(tmp_path, port=port) as again:
            _, err = producer.communicate(timeout=60)
            assert producer.returncode == 0
            assert err == b"1 record acknowledged, the last at offset 0\n"
            topic = json.loads(again.request("GET", "/v1/topics/once")[1])
            assert topic["log_end_offset"] == 1


def wait_until_pending(running: Serving) -> None:
    while True:
        found = json.loads(running.request("GET", "/v1/status")[1])
        if found["waiting"]["pending_bytes"]:
            return
