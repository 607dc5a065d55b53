"""What the role makes for MQTT, seen without a machine."""

from __future__ import annotations

import grp
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from seb_appliance.protocols.sockets.listening import Tls
from seb_appliance.settings import SETTINGS
from tests.ansible.playing import ROLE, read_defaults, render
from tests.http.test_syslog import make_certificate

pytestmark = pytest.mark.slow
DOMAIN = {"seb_appliance_domain": "seb.example.org"}


def rendered(template: str, folder: Path, **variables: object) -> str:
    own = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    target = folder / template
    given = {**read_defaults(), **own, "seb_appliance_bucket": "s3://orders/seb", **variables}
    render(template, given, target, folder)
    return target.read_text()


@pytest.mark.parametrize(
    ("variables", "settings", "port"),
    [
        ({}, {}, None),
        (
            {"seb_appliance_mqtt": "tls", **DOMAIN},
            {"mqtt_port": 8883, "mqtt_tls_certificate": "/var/lib/seb-certificate/caddy.pem"},
            8883,
        ),
        ({"seb_appliance_mqtt": "plain"}, {"mqtt_port": 1883}, 1883),
        (
            {
                "seb_appliance_mqtt": "plain",
                "seb_appliance_mqtt_port": 5000,
                "seb_appliance_settings": {"mqtt_host": "10.0.0.1", "mqtt_websocket": True},
            },
            {"mqtt_port": 5000, "mqtt_host": "10.0.0.1", "mqtt_websocket": True},
            5000,
        ),
    ],
)
def test_mqtt_is_open_as_the_variables_say_and_not_otherwise(
    variables: dict[str, object], settings: dict[str, object], port: int | None, tmp_path: Path
) -> None:
    made = tomllib.loads(rendered("seb.toml.j2", tmp_path, **variables))
    of_mqtt = {name: value for name, value in made.items() if name.startswith("mqtt_")}
    expected = {"mqtt_host": "0.0.0.0", **settings} if settings else {}
    assert of_mqtt == expected
    assert set(made) <= {setting.name for setting in SETTINGS}
    rules = rendered("nftables.conf.j2", tmp_path, **variables)
    assert (f"tcp dport {port} accept" in rules) == (port is not None)
    assert rules.count("tcp dport") == 1 + (port is not None) + ("tls" in variables.values())


def test_caddy_writes_the_subject_of_a_certificate_in_place_of_what_a_client_sends(
    tmp_path: Path,
) -> None:
    header = {"mqtt_certificate_header": "Client-Subject", "mqtt_websocket": True}
    given = {"seb_appliance_settings": header, "seb_appliance_tls_client_ca": "/etc/ca.pem"}
    site = rendered("Caddyfile.j2", tmp_path, **given, **DOMAIN)
    assert "header_up Client-Subject {http.request.tls.client.subject}\n" in site
    assert "trusted_ca_cert_file /etc/ca.pem\n" in site
    assert "client" not in rendered("Caddyfile.j2", tmp_path, **DOMAIN)


def test_a_certificate_is_copied_when_there_is_one_whose_key_fits(tmp_path: Path) -> None:
    copy, certificate, key = (tmp_path / name for name in ("mqtt.pem", "cert", "key"))
    rendered(
        "seb-certificate.j2",
        tmp_path,
        seb_appliance_certificate=str(copy),
        seb_appliance_user=grp.getgrgid(os.getgid()).gr_name,
        seb_appliance_tls="files",
        seb_appliance_tls_certificate=str(certificate),
        seb_appliance_tls_key=str(key),
        **DOMAIN,
    )
    program = ["sh", str(tmp_path / "seb-certificate.j2")]

    def run() -> int:
        return subprocess.run(program, check=False, capture_output=True).returncode

    assert run() == 75  # there is none yet
    tls = Tls(copy, None, "mqtt_tls_certificate")  # but one that the appliance starts with
    before = copy.read_bytes()
    assert run() == 75
    assert copy.read_bytes() == before
    make_certificate(tmp_path / "both")
    assert run() == 0
    assert copy.read_bytes() == certificate.read_bytes() + key.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o640
    assert tls.renew()
    assert run() == 0
    assert not tls.renew()  # it is not written again
    before, other = copy.read_bytes(), key.read_bytes()
    make_certificate(tmp_path / "both")
    key.write_bytes(other)
    assert run() not in (0, 75)
    assert copy.read_bytes() == before
    assert not list(tmp_path.glob("mqtt.pem.*"))
