"""`seb serve` and `seb admin` as a person meets them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.serving import ENVIRONMENT, Serving, serving

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_users_start_it")]
RECORDS = "/v1/topics/greetings/records"


def seb(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seb_appliance", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        input=stdin,
        env=ENVIRONMENT,
    )


def test_the_start_screen_says_what_a_newcomer_needs_and_no_secret(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        running.stop()
        assert running.shown.endswith(": stopped\n")
        assert f"http://127.0.0.1:{running.port}" in running.shown
        assert str(tmp_path / "bucket") in running.shown
        assert "curl -H" in running.shown
        assert (running.data / "admin.key").read_text().strip() not in running.shown
        assert (running.data / "admin.key").stat().st_mode & 0o777 == 0o600


def test_a_program_gets_a_json_object_for_each_line(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format", "json") as running:
        assert running.stop() == 0
        began, ended = (json.loads(line) for line in running.shown.splitlines())
    assert (began["message"], began["port"]) == ("serving", running.port)
    assert (ended["message"], ended["exit_code"]) == ("stopped", 0)


def test_what_the_bucket_costs_is_remembered_over_a_restart(tmp_path: Path) -> None:
    def puts(running: Serving) -> int:
        found = json.loads(running.request("GET", "/v1/cost")[1])
        purposes = {row["purpose"]: row["requests"] for row in found["purposes"]}
        return purposes["journal"]["PUT"]

    with serving(tmp_path, "--prices", "aws") as running:
        for _ in range(3):
            running.request("POST", RECORDS, b"hello")
        before = puts(running)
        assert running.stop() == 0
    with serving(tmp_path, "--prices", "aws") as again:
        assert puts(again) == before
        again.request("POST", RECORDS, b"hello")
        assert puts(again) == before + 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_quietly_and_the_records_are_there_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path) as running:
        assert running.request("POST", RECORDS, b"hello")[0] == 201
        assert running.stop(number) == 0
        assert "Traceback" not in running.shown
    with serving(tmp_path) as again:
        assert again.request("GET", f"{RECORDS}/0")[0] == 200


def test_a_port_that_is_taken_is_told_in_one_sentence(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        bucket = f"file:{tmp_path / 'other'}"
        data = str(tmp_path / "other-local")
        second = seb("serve", "--bucket", bucket, "--data", data, "--port", str(running.port))
        assert second.returncode == 1
        assert second.stderr.startswith(f"seb: cannot listen on 127.0.0.1:{running.port}")
        assert second.stderr.count("\n") == 1


def test_the_data_directory_of_a_running_one_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        bucket = f"file:{tmp_path / 'other'}"
        second = seb("serve", "--bucket", bucket, "--data", str(running.data), "--port", "0")
        assert second.returncode == 78
        assert "another seb serve runs" in second.stderr


def test_a_bucket_in_use_is_refused_and_can_be_taken_over(tmp_path: Path) -> None:
    with serving(tmp_path) as old:
        assert old.request("POST", RECORDS, b"hello")[0] == 201
        bucket = f"file:{tmp_path / 'bucket'}"
        data = str(tmp_path / "laptop")
        refused = seb("serve", "--bucket", bucket, "--data", data, "--port", "0")
        assert refused.returncode == 73
        assert "--take-over" in refused.stderr
        with serving(tmp_path, "--take-over", data="new") as new:
            assert not (new.data / "admin.key").exists()
            assert seb("admin", "reset-key", "--data", str(new.data)).returncode == 0
            assert new.request("GET", f"{RECORDS}/0")[0] == 200
            assert old.request("POST", RECORDS, b"late")[0] == 503
            assert old.process.wait(60) == 75


def test_a_lost_admin_key_is_made_anew_and_the_old_one_goes_on_working(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        path = running.data / "admin.key"
        old = path.read_text()
        path.unlink()
        made = seb("admin", "reset-key", "--data", str(running.data))
        assert made.returncode == 0, made.stderr
        assert str(path) in made.stdout
        new = path.read_text()
        assert new != old
        assert new.strip() not in made.stdout
        assert running.request("GET", "/v1/topics")[0] == 200
        path.write_text(old)
        assert running.request("GET", "/v1/topics")[0] == 200


def test_users_of_the_admin_page_are_made_at_the_machine_and_survive_it(tmp_path: Path) -> None:
    def users(data: Path, *command: str, password: str = "") -> subprocess.CompletedProcess[str]:
        return seb("admin", *command, "--data", str(data), stdin=password)

    with serving(tmp_path) as running:
        assert "seb admin set-password" in running.shown
        data = running.data
        assert "no users" in users(data, "list-users").stdout
        short = users(data, "set-password", "--stdin", password="short")
        assert (short.returncode, "10 characters" in short.stderr) == (1, True)
        unknown = users(data, "set-password", "olga", "--stdin", password="correct horse")
        assert (unknown.returncode, "add-user" in unknown.stderr) == (1, True)
        made = users(data, "set-password", "--stdin", password="correct horse")
        assert made.stdout == "user admin: added, with the role admin\n"
        viewer = users(data, "add-user", "olga", "--role", "viewer", "--stdin", password="a" * 10)
        assert viewer.returncode == 0, viewer.stderr
        again = users(data, "set-password", "olga", "--stdin", password="b" * 10)
        assert again.stdout == "user olga: has a new password\n"
        assert running.stop() == 0
    with serving(tmp_path, "--take-over", data="new-machine") as again:
        assert "no user exists yet" not in again.shown
        listed = users(again.data, "list-users").stdout.split("\n")
        assert [line.split()[:2] for line in listed[1:3]] == [
            ["admin", "admin"],
            ["olga", "viewer"],
        ]
        assert users(again.data, "remove-user", "olga").returncode == 0
        assert users(again.data, "remove-user", "olga").returncode == 1


def test_doctor_may_look_at_the_bucket_of_a_running_one(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        report = seb("doctor", "--bucket", f"file:{tmp_path / 'bucket'}", "--data", str(tmp_path))
        assert report.returncode == 78, "data must not hold the bucket"
        data = str(running.data)
        report = seb("doctor", "--bucket", f"file:{tmp_path / 'bucket'}", "--data", data)
        assert report.returncode == 0, report.stdout
        assert running.request("POST", RECORDS, b"hello")[0] == 201


def test_what_an_appliance_wrote_can_be_inspected(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        assert running.request("POST", RECORDS, b"hello")[0] == 201
        assert running.stop() == 0
    journal = sorted((tmp_path / "bucket" / "_seb" / "journal").iterdir())
    shown = [seb("inspect", str(path), "--records", "9").stdout for path in journal]
    assert "epoch_started" in shown[0]
    assert any("hello" in text and "greetings" in text for text in shown)
    snapshot = next((tmp_path / "bucket" / "_seb" / "snapshots").iterdir())
    assert "check   ok" in seb("inspect", str(snapshot)).stdout
