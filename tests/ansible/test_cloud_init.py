"""The other way in: a machine that sets itself up at its first boot, by a real cloud-init."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.ansible.installed import Installed
from tests.ansible.machine import Machine, running_machine
from tests.ansible.playing import PLAYBOOKS
from tests.ansible.supplies import copy_source, supplies
from tests.support.servers.s3_server import NotInstalledError, free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("TEST_MACHINES" not in os.environ, reason="TEST_MACHINES=install"),
]

USER_DATA = PLAYBOOKS / "cloud-init" / "user-data.yml"
SET_UP_S_MAX = 600
PIP_CONFIG = "[global]\nno-index = true\nfind-links = /wheels\n"


def test_a_machine_sets_itself_up_at_its_first_boot(tmp_path: Path) -> None:
    port = free_port()

    def prepare(machine: Machine) -> None:
        (machine.root / "etc" / "pip.conf").write_text(PIP_CONFIG)
        commit = _make_repository(machine.root / "srv" / "seb-source")
        seed = machine.root / "var" / "lib" / "cloud" / "seed" / "nocloud"
        seed.mkdir(parents=True)
        (seed / "meta-data").write_text("instance-id: one\n")
        (seed / "user-data").write_text(_user_data("/srv/seb-source", commit, port))
        # As images of providers are: root may log in, and the locale is one that is there.
        config = machine.root / "etc" / "cloud" / "cloud.cfg.d" / "99-test.cfg"
        config.write_text("disable_root: false\nlocale: C.UTF-8\n")
        shutil.copy(USER_DATA, machine.root / "srv")

    try:
        image = supplies("cloud-init")
        with running_machine(tmp_path, image, prepare, SET_UP_S_MAX) as machine:
            machine.ask("cloud-init", "schema", "--config-file", "/srv/user-data.yml")
            assert "status: done" in machine.ask("cloud-init", "status", "--long")
            installed = Installed(machine, tmp_path, {"seb_appliance_port": port})
            installed.wait_until_ready()
            assert installed.property("NRestarts") == "0"
            again = machine.ask(
                "seb-install"
            )  # what a person runs after secrets, or for an upgrade
            assert "changed=0" in again
            assert "verdict: fit to run" in again
    except NotInstalledError as error:
        pytest.skip(str(error))


def _make_repository(folder: Path) -> str:
    """This checkout as it is, for the machine to clone; its commit."""
    copy_source(folder, "ansible", ".ci")
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "Begin"]):
        subprocess.run(["git", *who, *command], cwd=folder, check=True)
    commit = ["git", "rev-parse", "HEAD"]
    return subprocess.run(commit, cwd=folder, check=True, capture_output=True, text=True).stdout


def _user_data(repository: str, commit: str, port: int) -> str:
    """Ours, with the places changed as its head says: the bucket is a directory, so no secret is
    waited for."""
    data = yaml.safe_load(USER_DATA.read_text())
    variables = {"seb_appliance_bucket": "file:/srv/seb/bucket", "seb_appliance_port": port}
    contents = {
        "/etc/seb-install/repository": f"{repository}\n",
        "/etc/seb-install/commit": commit,
        "/etc/seb-install/variables.yml": yaml.safe_dump(variables),
    }
    for file in data["write_files"]:
        file["content"] = contents.get(file["path"], file["content"])
    return "#cloud-config\n" + yaml.safe_dump(data)
