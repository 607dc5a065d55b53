"""The role on a machine on which nothing was installed before, and what it leaves there.

Machines take minutes, so they are made where `TEST_MACHINES=install` (or `all`) is set.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.ansible.installed import DOMAIN, Installed, bare
from tests.ansible.playing import Played, read_defaults, render
from tests.support import kafka_member
from tests.support.mqtt_client import Client
from tests.support.mqtt_packets import connect
from tests.support.servers.s3_server import NotInstalledError, free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("TEST_MACHINES" not in os.environ, reason="TEST_MACHINES=install"),
]

EXPOSURE_MAX = 1.5
INSTALLED_S_MAX = 600  # 3 minutes where nothing else runs: what is printed
CERTIFICATE_S_MAX = 120  # the appliance looks every minute
# The tidier merges what little a test writes.
SETTINGS = {"tidy_bytes": "1KiB", "tidy_young": "0ms", "tidy_after": "0ms"}


@dataclass(frozen=True)
class Installing:
    """The plays before any test; `installed` is the machine after them. `first_s`: how long the
    first one took."""

    installed: Installed
    check_before: Played
    first: Played
    second: Played
    check_after: Played
    first_s: float


@pytest.fixture(scope="module")
def installing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installing]:
    try:
        with bare(
            tmp_path_factory.mktemp("machine"),
            seb_appliance_settings=SETTINGS,
            seb_appliance_mqtt="tls",
            seb_appliance_mqtt_port=free_port(),
            seb_appliance_kafka="tls",
            seb_appliance_kafka_port=free_port(),
        ) as machine:
            check_before = machine.play("site.yml", "--check", "--diff")
            began_s = time.monotonic()
            first = machine.play()
            first_s = time.monotonic() - began_s
            yield Installing(
                machine,
                check_before,
                first,
                second=machine.play(),
                check_after=machine.play("site.yml", "--check", "--diff"),
                first_s=first_s,
            )
    except NotInstalledError as error:
        pytest.skip(str(error))


@pytest.fixture
def installed(installing: Installing) -> Installed:
    assert installing.first.exit_code == 0, installing.first.text
    return installing.installed


def test_check_mode_passes_on_a_machine_without_anything(installing: Installing) -> None:
    assert installing.check_before.exit_code == 0, installing.check_before.text
    assert installing.check_before.changed > 0


def test_the_first_run_installs_and_the_doctor_finds_it_fit(installing: Installing) -> None:
    assert installing.first.exit_code == 0, installing.first.text
    assert "verdict: fit to run" in installing.first.text


def test_the_first_run_is_soon_over(installing: Installing) -> None:
    print(f"from a machine without anything to ready: {installing.first_s:.1f} s")
    assert installing.first_s <= INSTALLED_S_MAX


def test_a_second_run_changes_nothing(installing: Installing) -> None:
    assert (installing.second.exit_code, installing.second.changed) == (0, 0)


def test_check_mode_finds_nothing_to_change_afterwards(installing: Installing) -> None:
    assert (installing.check_after.exit_code, installing.check_after.changed) == (0, 0)


def test_the_unit_is_hardened(installed: Installed) -> None:
    judged = installed.machine.ask("systemd-analyze", "security", "--no-pager", "seb.service")
    found = re.search(r"Overall exposure level for seb.service: ([\d.]+)", judged)
    assert found, judged
    assert float(found[1]) <= EXPOSURE_MAX
    assert installed.machine.answers(
        "systemd-analyze", "verify", "--man=no", "/etc/systemd/system/seb.service"
    )


def test_secrets_are_for_nobody_but_the_service(installed: Installed) -> None:
    assert installed.machine.ask("stat", "-c", "%a:%U", "/etc/seb/seb.toml") == "600:root\n"
    assert installed.machine.ask("stat", "-c", "%a:%U", "/var/lib/seb") == "700:seb\n"
    environment = installed.machine.ask("cat", f"/proc/{installed.main_pid()}/environ")
    assert "SEB_" not in environment


def test_a_live_stream_comes_through_caddy_record_by_record(installed: Installed) -> None:
    installed.produce("live", b"first")
    connection = installed.connect()
    connection.request(
        "GET",
        "/v1/topics/live/records?offset=earliest",
        headers=installed.headers(Accept="text/event-stream"),
    )
    answer = connection.getresponse()
    for value in (b"first", b"second"):
        while value not in (line := answer.readline()):
            assert line, "the stream ended"
        if value == b"first":  # only now: it must come while the stream stays open
            installed.produce("live", b"second")
    connection.close()


def test_metrics_are_not_for_those_who_ask_through_caddy(installed: Installed) -> None:
    connection = installed.connect()
    connection.request("GET", "/metrics")  # without an API key
    assert connection.getresponse().status == 403
    connection.close()


def test_the_command_on_the_machine_knows_its_appliance(installed: Installed) -> None:
    assert "epoch" in installed.machine.ask("seb", "status")


def test_after_a_kill_it_runs_again_with_every_record(installed: Installed) -> None:
    installed.produce("killed", b"kept")
    before = installed.main_pid()
    installed.machine.ask("kill", "-9", before)
    installed.wait_until_ready()
    assert installed.main_pid() != before
    assert installed.values("killed") == ["kept"]


def test_the_tidier_works_inside_the_hardened_unit(installed: Installed) -> None:
    for _ in range(70):
        installed.produce("tidied", b"x" * 100)
    installed.wait_until_counted("seb_tidier_jobs_total")


def test_the_drill_runs_as_a_service_and_reports(installed: Installed) -> None:
    assert installed.machine.answers("systemctl", "is-active", "seb-drill.timer")
    installed.machine.ask("systemctl", "start", "seb-drill.service")  # returns when it is done
    report = installed.machine.ask("cat", "/var/lib/seb/drill.prom")
    assert "\nseb_drill_success 1\n" in report


async def publish(installed: Installed, payload: bytes) -> None:
    """By MQTT over TLS; acknowledged."""
    port = installed.variables["seb_appliance_mqtt_port"]
    reader, writer = await asyncio.open_connection(DOMAIN, port, ssl=installed.trust())
    client = Client(reader, writer, 5)
    client.send(connect(installed.headers()["Authorization"].removeprefix("Bearer ")))
    assert (await client.packet())[0] == 0x20
    await client.stores("from/outside", payload)
    writer.close()


def publish_when_trusted(installed: Installed, payload: bytes) -> None:
    """Once the appliance has loaded Caddy's certificate."""
    deadline_s = time.monotonic() + CERTIFICATE_S_MAX
    while True:
        try:
            asyncio.run(publish(installed, payload))
        except ssl.SSLCertVerificationError:
            assert time.monotonic() < deadline_s
            time.sleep(1)
        else:
            return


def test_mqtt_has_the_certificate_of_caddy(installed: Installed) -> None:
    publish_when_trusted(installed, b"safe")
    assert installed.values("mqtt") == ["safe"]


def test_kafka_has_the_certificate_too_and_tells_clients_the_domain(installed: Installed) -> None:
    port = installed.variables["seb_appliance_kafka_port"]
    password = installed.headers()["Authorization"].removeprefix("Bearer ")

    async def brokers() -> list[dict[str, object]]:
        trust = installed.trust()
        async with kafka_member.connected(port, password, host=DOMAIN, tls=trust) as client:
            return (await client.call("Metadata", 8, topics=None))["brokers"]

    (broker,) = asyncio.run(brokers())
    assert (broker["host"], broker["port"]) == (DOMAIN, port)


def test_the_copy_of_the_certificate_is_for_the_appliance_alone_and_made_by_a_timer(
    installed: Installed,
) -> None:
    machine, copy = installed.machine, "/var/lib/seb-certificate/caddy.pem"
    assert machine.answers("systemctl", "is-active", "seb-certificate.timer")
    before = machine.ask("cat", copy)
    machine.ask("rm", copy)
    machine.ask("systemctl", "start", "seb-certificate.service")  # returns when it is done
    assert machine.ask("cat", copy) == before
    assert machine.ask("stat", "-c", "%a:%U:%G", copy) == "640:root:seb\n"


def test_the_rules_of_the_firewall_load(installed: Installed) -> None:
    """Into a network of their own: the machine has that of the tests, which stays as it is."""
    machine = installed.machine
    machine.ask("apt-get", "install", "-qq", "--no-install-recommends", "nftables")
    given = {**read_defaults(), **installed.variables, "seb_appliance_ssh_port": 22}
    rules = machine.root / "etc" / "rules.nft"
    render("nftables.conf.j2", given, rules, installed.folder)
    inside = ["unshare", "--net", "chroot", machine.root, "/usr/sbin/nft"]
    load_and_list = subprocess.run(
        [*inside, "--file", "/etc/rules.nft", "--echo"], capture_output=True, text=True, check=False
    )
    assert load_and_list.returncode == 0, load_and_list.stderr
    https = installed.variables["seb_appliance_https_port"]
    assert "tcp dport 22 accept" in rules.read_text()
    assert str(https) in rules.read_text()
    for protocol in ("mqtt", "kafka"):
        port = installed.variables[f"seb_appliance_{protocol}_port"]
        assert f"tcp dport {port} accept" in rules.read_text()


def test_a_wrong_setting_is_refused_in_a_sentence_and_changes_nothing(
    installed: Installed,
) -> None:
    before = installed.main_pid()
    refused = installed.play(seb_appliance_settings={**SETTINGS, "lingre": "1s"})
    assert refused.exit_code == 2
    assert "unknown setting 'lingre'" in refused.text
    assert "do you mean linger?" in refused.text
    assert "Traceback" not in refused.text
    assert installed.main_pid() == before
    assert installed.values("killed") == ["kept"]
