"""A machine and the variables of its inventory; what a test asks of the appliance on it."""

from __future__ import annotations

import http.client
import re
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.ansible.machine import Machine, running_machine
from tests.ansible.playing import Played, play
from tests.ansible.supplies import build_wheel, supplies
from tests.support.servers.s3_server import free_port

DOMAIN = "localhost"
SOON_S = 60


@dataclass
class Installed:
    """`variables` may be changed between two plays."""

    machine: Machine
    folder: Path
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def port(self) -> int:
        port: int = self.variables["seb_appliance_port"]
        return port

    def play(self, playbook: str = "site.yml", *arguments: str, **variables: object) -> Played:
        """Run a playbook; `variables` only this once."""
        return play(
            playbook,
            {**self.variables, **variables},
            self.folder,
            *arguments,
            machine=self.machine,
        )

    def apply(self, playbook: str = "site.yml", **variables: object) -> Played:
        """Run a playbook that must succeed."""
        played = self.play(playbook, **variables)
        assert played.exit_code == 0, played.text
        return played

    def produce(self, topic: str, value: bytes) -> int:
        """The offset at which it is acknowledged; over HTTPS, through Caddy."""
        status, body = self.request("POST", f"/v1/topics/{topic}/records", value)
        assert status == 201, body
        offset: int = msgspec.json.decode(body)["offset"]
        return offset

    def values(self, topic: str) -> list[str]:
        status, body = self.request("GET", f"/v1/topics/{topic}/records?offset=earliest")
        assert status == 200, body
        return [record["value"] for record in msgspec.json.decode(body)["records"]]

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request(method, path, body, self.headers())
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def headers(self, **more: str) -> dict[str, str]:
        """With the admin key."""
        key = self.machine.ask("cat", "/var/lib/seb/admin.key").strip()
        return {"Authorization": f"Bearer {key}", **more}

    def connect(self) -> http.client.HTTPSConnection:
        """To Caddy."""
        port = self.variables["seb_appliance_https_port"]
        return http.client.HTTPSConnection(DOMAIN, port, timeout=30, context=self.trust())

    def trust(self) -> ssl.SSLContext:
        """In nobody but Caddy's own authority."""
        data = self.machine.root / "var" / "lib" / "caddy" / ".local" / "share" / "caddy"
        return ssl.create_default_context(
            cafile=data / "pki" / "authorities" / "local" / "root.crt"
        )

    def main_pid(self) -> str:
        return self.property("MainPID")

    def property(self, name: str) -> str:
        return self.machine.ask(
            "systemctl", "show", "--value", f"--property={name}", "seb.service"
        ).strip()

    def wait_until_ready(self) -> None:
        self._wait_until("/readyz", lambda body: msgspec.json.decode(body) == {"ready": True})

    def wait_until_counted(self, metric: str) -> None:
        """Until a metric is above zero."""
        above_zero = re.compile(rf"^{metric} [1-9]".encode(), re.MULTILINE)
        self._wait_until("/metrics", lambda body: above_zero.search(body) is not None)

    def _wait_until(self, path: str, is_so: Callable[[bytes], bool]) -> None:
        """Ask the appliance itself, as a process on the machine, until `is_so`."""
        deadline_s = time.monotonic() + SOON_S
        last: object = None
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            try:
                connection.request("GET", path)
                last = connection.getresponse().read()
                if is_so(last):
                    return
            except (OSError, http.client.HTTPException) as error:
                last = error  # not started yet
            finally:
                connection.close()
            if time.monotonic() >= deadline_s:
                said = self.machine.ask("journalctl", "--unit=seb", "--lines=40")
                raise AssertionError(f"{path}: not within {SOON_S} s: {last!r}\n{said}")
            time.sleep(0.1)


@contextmanager
def bare(folder: Path, **variables: object) -> Iterator[Installed]:
    """A machine on which nothing was installed, and variables for it; the bucket is a directory."""
    with running_machine(folder, supplies()) as machine:
        defaults = {
            "seb_appliance_wheel": str(build_wheel(folder / "wheel")),
            "seb_appliance_bucket": "file:/srv/seb/bucket",
            "seb_appliance_pip_arguments": ["--no-index", "--find-links=/wheels"],
            "seb_appliance_port": free_port(),
            "seb_appliance_domain": DOMAIN,
            "seb_appliance_tls": "internal",
            "seb_appliance_https_port": free_port(),
            "seb_appliance_http_port": free_port(),
            "seb_appliance_ready_within_s": 30,
        }
        yield Installed(machine, folder, {**defaults, **variables})
