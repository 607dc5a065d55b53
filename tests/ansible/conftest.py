"""A machine with an appliance on it, whose bucket is an S3 server outside of the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.ansible.installed import Installed, bare
from tests.support.faultproxy import control
from tests.support.servers.s3_server import NotInstalledError, S3Server, die_with_parent


@dataclass(frozen=True)
class Way:
    """To the S3 server, which can be cut; `port` is where the machine asks."""

    port: int
    control_port: int

    def cut(self) -> None:
        """From now on every connection is reset."""
        control(self.control_port, "rule " + json.dumps({"action": "reset"}))

    def mend(self) -> None:
        control(self.control_port, "clear")


@pytest.fixture
def way(moto_server: S3Server) -> Iterator[Way]:
    command = [sys.executable, "-m", "tests.support.faultproxy", "0", str(moto_server.port), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=die_with_parent) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield Way(told["port"], told["control"])
        process.kill()


@pytest.fixture
def installed(tmp_path: Path, moto_server: S3Server, way: Way) -> Iterator[Installed]:
    """With a record in it."""
    bucket = replace(moto_server.new_bucket(), endpoint_url=f"http://127.0.0.1:{way.port}")
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
