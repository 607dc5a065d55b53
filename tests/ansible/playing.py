"""Playbooks, run as an operator runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from tests.ansible.machine import SSH_OPTIONS, Machine
from tests.support.servers.s3_server import program_of_this_python

ROOT = Path(__file__).parents[2]
PLAYBOOKS = ROOT / "ansible"
ROLE = PLAYBOOKS / "roles" / "seb_appliance"


@dataclass(frozen=True)
class Played:
    """`text`: what Ansible printed."""

    exit_code: int
    text: str

    @property
    def changed(self) -> int:
        """How many tasks changed the machine."""
        found = re.search(r"changed=(\d+)", self.text)
        assert found, self.text
        return int(found[1])


def play(
    playbook: str,
    variables: Mapping[str, object],
    folder: Path,
    *arguments: str,
    machine: Machine | None = None,
) -> Played:
    """Run a playbook of ours on `machine`; on none only what ends before the first task."""
    host = "ansible_connection=local"
    if machine is not None:
        options = " ".join((*SSH_OPTIONS, "-oControlMaster=auto", "-oControlPersist=60s"))
        host = (
            f"ansible_host=127.0.0.1 ansible_port={machine.ssh_port} ansible_user=root "
            f"ansible_ssh_private_key_file={machine.key} ansible_ssh_common_args='{options}'"
        )
    (folder / "inventory.ini").write_text(f"[seb]\nmachine {host}\n")
    inventory = f"--inventory={folder / 'inventory.ini'}"
    command = ["ansible-playbook", inventory, *arguments, str(PLAYBOOKS / playbook)]
    return _run(command, variables, folder)


def read_defaults() -> dict[str, object]:
    """The variables of the role that have a default."""
    defaults: dict[str, object] = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    return defaults


def render(template: str, variables: Mapping[str, object], target: Path, folder: Path) -> None:
    """What the role would make of one of its templates, as a file on this machine."""
    source = ROLE / "templates" / template
    module = ["-m", "ansible.builtin.template", "-a", f"src={source} dest={target}"]
    done = _run(["ansible", "localhost", *module], variables, folder)
    assert done.exit_code == 0, done.text


def _run(command: Sequence[str], variables: Mapping[str, object], folder: Path) -> Played:
    (folder / "variables.json").write_bytes(msgspec.json.encode(dict(variables)))
    program, *arguments = command
    done = subprocess.run(
        [
            program_of_this_python(program),
            f"--extra-vars=@{folder / 'variables.json'}",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=PLAYBOOKS,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("SEB_")},
            "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
            "ANSIBLE_HOME": str(folder / "ansible-home"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )
    return Played(done.returncode, done.stdout + done.stderr)
