"""What happens to a machine in its years: upgrades, ways back, reboots, and its end.

Each test is minutes on an idle machine, so they run where `TEST_MACHINES=all` is set.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ansible.conftest import Way
from tests.ansible.installed import Installed
from tests.ansible.supplies import build_wheel
from tests.support.servers.s3_server import die_with_parent, free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TEST_MACHINES") != "all", reason="TEST_MACHINES=all"),
]

READY_AGAIN_S_MAX = 600
WATCHED_S_MAX = 180  # WatchdogSec= of the unit and TimeoutAbortSec=, on a busy machine
GIVES_UP_S_MAX = 120  # a start asks the bucket for a minute


def test_an_upgrade_and_the_way_back_keep_every_record(
    installed: Installed, tmp_path: Path
) -> None:
    installed.variables["seb_appliance_wheel"] = str(build_wheel(tmp_path / "later", "0.1.1"))
    played = installed.apply()
    assert "Seb Appliance 0.1.1" in played.text
    assert installed.machine.ask("seb", "--version") == "seb 0.1.1\n"
    installed.produce("lives", b"two")
    assert installed.apply().changed == 0

    installed.apply("rollback.yml")
    assert installed.machine.ask("seb", "--version") == "seb 0.1.0\n"
    installed.produce("lives", b"three")
    installed.apply("rollback.yml", seb_appliance_rollback_to="0.1.1")
    assert installed.machine.ask("seb", "--version") == "seb 0.1.1\n"
    assert installed.values("lives") == ["one", "two", "three"]

    installed.apply(seb_appliance_wheel=str(build_wheel(tmp_path / "last", "0.1.2")))
    installed.produce("lives", b"four")
    installed.apply("rollback.yml")  # to the release before, not to the first one
    assert installed.machine.ask("seb", "--version") == "seb 0.1.1\n"
    assert installed.values("lives") == ["one", "two", "three", "four"]
    refused = installed.play("rollback.yml", seb_appliance_rollback_to="9.9.9")
    assert "There is no release to go back to" in refused.text


def test_a_release_that_does_not_start_gives_its_place_back(
    installed: Installed, tmp_path: Path
) -> None:
    wheel = build_wheel(tmp_path / "broken", "0.1.1", broken=True)
    refused = installed.play(seb_appliance_wheel=str(wheel), seb_appliance_ready_within_s=5)
    assert refused.exit_code == 2
    assert "was not ready within 5 s" in refused.text
    installed.wait_until_ready()
    assert installed.machine.ask("seb", "--version") == "seb 0.1.0\n"
    assert installed.values("lives") == ["one"]


def test_after_a_reboot_it_runs_by_itself(installed: Installed) -> None:
    installed.machine.reboot()
    installed.wait_until_ready()
    assert installed.values("lives") == ["one"]
    assert installed.apply().changed == 0


def test_one_that_hangs_is_restarted_by_the_watchdog(installed: Installed) -> None:
    machine = installed.machine
    machine.ask("kill", "-STOP", installed.main_pid())
    restarted = ["sh", "-c", "'test $(systemctl show --value --property=NRestarts seb) -ge 1'"]
    machine.wait_until(restarted, WATCHED_S_MAX)
    assert "Watchdog timeout" in machine.ask("journalctl", "--unit=seb")
    installed.wait_until_ready()
    assert installed.values("lives") == ["one"]


def test_a_bucket_that_is_away_at_boot_is_waited_for(installed: Installed, way: Way) -> None:
    machine = installed.machine
    way.cut()
    machine.reboot()
    gave_up = ["sh", "-c", "'test $(systemctl show --value --property=NRestarts seb) -ge 1'"]
    machine.wait_until(gave_up, GIVES_UP_S_MAX)
    assert "ActiveState=failed" not in machine.ask("systemctl", "show", "seb.service")
    way.mend()
    installed.wait_until_ready()
    assert installed.values("lives") == ["one"]


def test_one_that_was_fenced_stays_stopped(installed: Installed, tmp_path: Path) -> None:
    """Also when it is started again, as by a reboot: it would fence the one that took over."""
    machine, variables = installed.machine, installed.variables
    starts = installed.property("NRestarts")
    program = [sys.executable, "-m", "seb_appliance", "serve", "--take-over"]
    places = [f"--data={tmp_path / 'other'}", f"--bucket={variables['seb_appliance_bucket']}"]
    other = subprocess.Popen(
        [*program, *places, f"--port={free_port()}"],
        env={
            **os.environ,
            **{
                f"SEB_{name.upper()}": str(variables[f"seb_appliance_{name}"])
                for name in ("s3_endpoint", "s3_region", "s3_access_key_id", "s3_secret_access_key")
            },
        },
        preexec_fn=die_with_parent,
    )
    try:
        while (fenced := installed.property("ExecMainStatus")) == "0":
            assert other.poll() is None
            installed.request("POST", "/v1/topics/lives/records", b"late")
        assert (fenced, installed.property("ActiveState")) == ("75", "failed")
        assert installed.property("NRestarts") == starts
        machine.ask("systemctl", "start", "seb.service")
        machine.wait_until(["systemctl", "is-failed", "seb.service"], READY_AGAIN_S_MAX)
        assert installed.property("ExecMainStatus") == "73"
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_machine_that_burnt_is_replaced_by_one_run_of_the_playbook(
    installed: Installed, record_property: pytest.RecordProperty
) -> None:
    topics = [f"topic-{number}" for number in range(20)]
    for topic in topics:
        installed.produce(topic, topic.encode())
    machine = installed.machine
    machine.burn()
    began_s = time.monotonic()
    machine.key.unlink()
    machine.unpack()
    machine.boot()
    installed.apply()
    seconds = time.monotonic() - began_s
    record_property("seconds_from_a_deleted_machine", round(seconds, 1))
    print(f"from a deleted machine to ready: {seconds:.1f} s")
    machine.ask("seb", "admin", "reset-key")  # the bucket holds only hashes
    assert installed.values("lives") == ["one"]
    for topic in topics:
        assert installed.values(topic) == [topic]
    assert seconds <= READY_AGAIN_S_MAX


def test_an_uninstall_keeps_the_bucket(installed: Installed) -> None:
    installed.apply("uninstall.yml")
    assert not installed.machine.answers("test", "-e", "/opt/seb")
    assert not installed.machine.answers("id", "seb")
    assert installed.apply("uninstall.yml").changed == 0
    installed.apply()
    installed.machine.ask("seb", "admin", "reset-key")
    assert installed.values("lives") == ["one"]
