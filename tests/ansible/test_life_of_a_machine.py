"""What happens to a machine in its years: upgrades, ways back, reboots, and its end.

Each test is minutes on an idle machine, so they run where `TEST_MACHINES=all` is set.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ansible.installed import Installed, bare
from tests.ansible.supplies import build_wheel
from tests.support.servers.s3_server import NotInstalledError, S3Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TEST_MACHINES") != "all", reason="TEST_MACHINES=all"),
]

READY_AGAIN_S_MAX = 600


@pytest.fixture
def installed(tmp_path: Path, moto_server: S3Server) -> Iterator[Installed]:
    """With a bucket on an S3 server outside the machine, and a record in it."""
    bucket = moto_server.new_bucket()
    variables = {
        "seb_appliance_bucket": f"s3://{bucket.bucket}/{bucket.prefix}",
        "seb_appliance_s3_endpoint": bucket.endpoint_url,
        "seb_appliance_s3_region": bucket.region,
        "seb_appliance_s3_access_key_id": bucket.access_key_id,
        "seb_appliance_s3_secret_access_key": bucket.secret_access_key,
        "seb_appliance_settings": {"linger": "10ms"},
    }
    try:
        with bare(tmp_path, **variables) as machine:
            machine.apply()
            machine.produce("lives", b"one")
            yield machine
    except NotInstalledError as error:
        pytest.skip(str(error))


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
