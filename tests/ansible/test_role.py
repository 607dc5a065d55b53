"""What can be said of the role without a machine: its words agree with each other and with us."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from seb_appliance import limits
from seb_appliance.settings import SETTINGS
from tests.ansible.playing import PLAYBOOKS, ROLE, ROOT, Played, play, read_defaults, render

VARIABLES = {
    "seb_appliance_wheel": "no-such.whl",
    "seb_appliance_bucket": "s3://orders/seb",
}
WHEEL = {"seb_appliance_wheel": "seb_appliance-0.1.0-py3-none-any.whl"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def described() -> dict[str, Any]:
    options: dict[str, Any] = read(ROLE / "meta" / "argument_specs.yml")["argument_specs"]["main"]
    return options["options"]  # type: ignore[no-any-return]


def test_every_variable_is_described_and_has_a_default_unless_it_is_required() -> None:
    options = described()
    required = {name for name, option in options.items() if option.get("required")}
    assert required == {"seb_appliance_wheel", "seb_appliance_bucket"}
    assert set(read(ROLE / "defaults" / "main.yml")) == set(options) - required
    assert all(option["description"] for option in options.values())


def test_a_variable_that_a_task_uses_is_known() -> None:
    known = set(described()) | set(read(ROLE / "vars" / "main.yml"))
    texts = [path.read_text() for folder in ("tasks", "templates", "handlers")
             for path in (ROLE / folder).iterdir()]  # fmt: skip
    for text in texts:
        known |= set(re.findall(r"register: (seb_appliance_\w+)", text))
        known |= set(re.findall(r"^    (seb_appliance_\w+):", text, re.MULTILINE))
    used = {name for text in texts for name in re.findall(r"\bseb_appliance_\w+", text)}
    assert used - known == {"seb_appliance_rollback_to"}


def test_the_settings_file_names_settings_that_there_are() -> None:
    template = (ROLE / "templates" / "seb.toml.j2").read_text()
    named = set(re.findall(r"^(\w+) = ", template, re.MULTILINE)) | set(
        re.findall(r'"((?:s3|table)_\w+)"', template)
    )
    assert named <= {setting.name for setting in SETTINGS}
    assert {setting.name for setting in SETTINGS if setting.secret} <= named


def test_a_secret_is_shown_neither_as_an_argument_nor_as_a_difference() -> None:
    secrets = [f"seb_appliance_{s.name}" for s in SETTINGS if s.secret and s.name.startswith("s3")]
    assert all(described()[name]["no_log"] for name in secrets)
    (task,) = (t for t in read(ROLE / "tasks" / "settings.yml") if "secrets" in t["name"])
    assert task["diff"] is False


def test_the_unit_is_not_restarted_after_the_exit_codes_that_the_docs_name() -> None:
    unit = (ROLE / "templates" / "seb.service.j2").read_text()
    named = re.search(r"RestartPreventExitStatus=(.+)", unit)
    documented = re.search(
        r"restart on everything but (.+)\.", (ROOT / "docs" / "OPERATIONS.md").read_text()
    )
    assert named
    assert documented
    assert named[1].split() == re.findall(r"\d+", documented[1])


def test_the_unit_restarts_a_process_that_hangs() -> None:
    """tests/server/test_watchdog.py shows that the appliance says that it lives."""
    unit = (ROLE / "templates" / "seb.service.j2").read_text().splitlines()
    assert {"Restart=always", "WatchdogSec=60", "NotifyAccess=main"} <= set(unit)


def test_the_unit_allows_more_files_than_there_may_be_connections() -> None:
    unit = (ROLE / "templates" / "seb.service.j2").read_text()
    named = re.search(r"^LimitNOFILE=(\d+)$", unit, re.MULTILINE)
    most = limits.CONNECTIONS_MAX + limits.MQTT_CONNECTIONS_MAX + limits.KAFKA_CONNECTIONS_MAX
    assert named
    assert int(named[1]) > most + 1_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bucket", "needed"), [("file:///srv/seb", ["/srv/seb"]), ("file:/b", ["/b"]), ("s3://b", [])]
)
def test_the_unit_waits_for_the_disk_of_a_bucket_that_is_a_directory(
    bucket: str, needed: list[str], tmp_path: Path
) -> None:
    known = {**read_defaults(), **read(ROLE / "vars" / "main.yml"), **VARIABLES}
    known |= {"seb_appliance_bucket": bucket, "ansible_facts": {"all_ipv6_addresses": []}}
    render("seb.service.j2", known, tmp_path / "unit", tmp_path)
    found = re.findall(r"^RequiresMountsFor=(.*)$", (tmp_path / "unit").read_text(), re.MULTILINE)
    assert found == needed


def test_the_user_data_is_a_cloud_config_without_secrets_whose_script_is_shell(
    tmp_path: Path,
) -> None:
    path = PLAYBOOKS / "cloud-init" / "user-data.yml"
    assert path.read_text().startswith("#cloud-config\n")
    data = read(path)
    files = {file["path"]: file["content"] for file in data["write_files"]}
    variables = yaml.safe_load(files["/etc/seb-install/variables.yml"])
    assert set(variables) <= set(described())
    assert not [name for name in variables if "key" in name]
    script = tmp_path / "script"
    script.write_text(files["/usr/local/sbin/seb-install"])
    subprocess.run(["sh", "-n", script], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["site.yml", "rollback.yml", "uninstall.yml"])
def test_ansible_reads_the_playbook(playbook: str, tmp_path: Path) -> None:
    played = play(playbook, VARIABLES, tmp_path, "--syntax-check")
    assert played.exit_code == 0, played.text


@pytest.mark.slow
def test_an_uninstall_leaves_a_data_directory_in_which_a_bucket_lies(tmp_path: Path) -> None:
    data, config = tmp_path / "data", tmp_path / "etc" / "seb.toml"
    (data / "bucket" / "_seb" / "journal").mkdir(parents=True)
    config.parent.mkdir()
    where = {
        "ansible_become": False,
        "seb_appliance_data": str(data),
        "seb_appliance_config": str(config),
        "seb_appliance_home": str(tmp_path / "home"),
        "seb_appliance_unit": str(tmp_path / "seb.service"),
        "seb_appliance_certificate": str(tmp_path / "certificate" / "caddy.pem"),
    }
    played = play("uninstall.yml", {**VARIABLES, **where}, tmp_path, "--check")
    assert played.exit_code == 0, played.text
    assert f"changed: [machine] => (item={config.parent})" in played.text
    assert f"changed: [machine] => (item={data})" not in played.text
    assert f"Not removed, with all beside it: {data}/bucket/_seb" in played.text


def tasks(
    name: str, programs: dict[str, str], folder: Path, *arguments: str, **variables: str
) -> Played:
    """Play some tasks of the role on this machine, with shell scripts in place of its programs."""
    home = folder / "home"
    for program, script in programs.items():
        path = folder / "programs" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    playbook = folder / "playbook.yml"
    role = {"name": str(ROLE), "tasks_from": name}
    path = f"{folder / 'programs'}:{os.environ['PATH']}"
    plan = {
        "hosts": "seb",
        "gather_facts": False,
        "environment": {"PATH": path},
        "tasks": [{"import_role": role}],
    }
    playbook.write_text(yaml.safe_dump([plan]))
    where = {
        "seb_appliance_home": str(home),
        "seb_appliance_config": str(home / "seb.toml"),
        "seb_appliance_unit": str(home / "seb.service"),
    }
    return play(str(playbook), {**VARIABLES, **where, **variables}, folder, *arguments)


@pytest.mark.slow
def test_what_runs_since_before_a_change_is_restarted_by_the_next_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("current", "seb.toml", "seb.service"):
        (home / name).touch()
    before, after = "Sun 2001-11-25 10:00:00.000001 UTC", "Sun 2096-11-25 10:00:00.000001 UTC"
    for started, restarts in ((before, True), (after, False), ("", False)):
        played = tasks("started", {"systemctl": f"echo '{started}'"}, tmp_path, "--check")
        assert played.exit_code == 0, played.text
        assert ("RUNNING HANDLER [" in played.text) is restarts
        assert played.changed == restarts


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 69, 78])
def test_a_rollback_to_a_release_that_does_not_know_a_setting_changes_nothing(
    code: int, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for release in ("1", "2"):
        program = home / "releases" / release / "venv" / "bin" / "seb"
        program.parent.mkdir(parents=True)
        program.touch()
    (home / "current").symlink_to(home / "releases" / "2")
    (home / "previous").symlink_to(home / "releases" / "1")
    programs = {"systemd-run": f"echo 'seb: there is no setting x' >&2; exit {code}"}
    played = tasks("rollback", programs, tmp_path)
    asked = (
        "does not accept the current settings, so nothing was changed (seb: there is no setting x)"
    )
    told = " ".join(played.text.split())
    assert (asked in told) is (code == 78)
    assert (home / "current").readlink().name == ("2" if code == 78 else "1")


@pytest.mark.slow
def test_a_bucket_of_an_earlier_installation_is_given_to_the_user_of_this_one(
    tmp_path: Path,
) -> None:
    bucket = tmp_path / "bucket"
    (bucket / "_seb").mkdir(parents=True)
    for user, is_given in (("daemon", True), (getpass.getuser(), False)):
        given = {"seb_appliance_bucket": f"file:{bucket}", "seb_appliance_user": user}
        played = tasks("bucket", {}, tmp_path, "--check", **given)
        told = played.text.partition("It belongs to the user of this one")[2]
        assert told.partition("\n")[2].startswith("changed:") is is_given, played.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"seb_appliance_tls": "none"}, "value of seb_appliance_tls must be one of"),
        ({"seb_appliance_port": "http"}, "seb_appliance_port"),
        ({"seb_appliance_settings": "linger"}, "seb_appliance_settings"),
        ({"seb_appliance_mqtt": "on"}, "value of seb_appliance_mqtt must be one of"),
        ({"seb_appliance_mqtt": "tls"}, "needs seb_appliance_domain"),
        ({"seb_appliance_wheel": "other.whl"}, "is not a wheel of the appliance"),
        ({**WHEEL, "seb_appliance_kafka": "tls"}, "needs seb_appliance_domain"),
        ({**WHEEL, "seb_appliance_kafka": "plain"}, "needs seb_appliance_kafka_advertise"),
    ],
)
def test_a_wrong_variable_is_refused_before_anything_is_done(
    wrong: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    played = play("site.yml", {**VARIABLES, **wrong}, tmp_path, "--check")
    assert played.exit_code == 2
    assert sentence in played.text
    assert played.changed == 0


@pytest.mark.slow
def test_without_a_bucket_nothing_is_done(tmp_path: Path) -> None:
    wheel_only = {"seb_appliance_wheel": VARIABLES["seb_appliance_wheel"]}
    played = play("site.yml", wheel_only, tmp_path, "--check")
    assert played.exit_code == 2
    assert "missing required arguments: seb_appliance_bucket" in played.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"seb_appliance_kafka": "none"}, {}),
        (
            {"seb_appliance_kafka": "tls", "seb_appliance_domain": "broker.example"},
            {
                "kafka_port": 9093,
                "kafka_advertise": "broker.example:9093",
                "kafka_tls_certificate": "/var/lib/seb-certificate/caddy.pem",
            },
        ),
        (
            {
                "seb_appliance_kafka": "plain",
                "seb_appliance_kafka_port": 9192,
                "seb_appliance_kafka_advertise": "192.0.2.7",
            },
            {"kafka_port": 9192, "kafka_advertise": "192.0.2.7:9192"},
        ),
    ],
)
def test_kafka_is_set_up_and_let_through_the_firewall(
    given: dict[str, object], settings: dict[str, object], tmp_path: Path
) -> None:
    known = {**read_defaults(), **read(ROLE / "vars" / "main.yml"), **VARIABLES, **given}
    known["ansible_facts"] = {"all_ipv6_addresses": []}
    render("seb.toml.j2", known, tmp_path / "seb.toml", tmp_path)
    written = tomllib.loads((tmp_path / "seb.toml").read_text())
    found = {name: value for name, value in written.items() if name.startswith("kafka")}
    assert found == (settings and {**settings, "kafka_host": "0.0.0.0"})
    render("nftables.conf.j2", {**known, "seb_appliance_ssh_port": 22}, tmp_path / "nft", tmp_path)
    passed = (
        f"tcp dport {settings.get('kafka_port', 9093)} accept" in (tmp_path / "nft").read_text()
    )
    assert passed is bool(settings)


@pytest.mark.slow
def test_a_rollback_puts_the_earlier_release_in_use_before_it_remembers_the_other(
    tmp_path: Path,
) -> None:
    for version in ("0.1.0", "0.1.1"):
        (tmp_path / "releases" / version / "venv" / "bin").mkdir(parents=True)
        (tmp_path / "releases" / version / "venv" / "bin" / "seb").touch()
    (tmp_path / "current").symlink_to(tmp_path / "releases" / "0.1.1")
    (tmp_path / "previous").symlink_to(tmp_path / "releases" / "0.1.0")
    where = {"ansible_become": False, "seb_appliance_home": str(tmp_path)}
    text = play("rollback.yml", {**VARIABLES, **where}, tmp_path, "--check").text
    steps = re.findall(r"TASK \[seb_appliance : (.*?)\][ *]*\nchanged", text)
    assert steps == ["Put the earlier release in use", "Remember the release that is left"]
