"""A machine as docs/INSTALL.md describes it, in a folder, on which the commands of a runbook run.

`seb`, `systemctl` and `aws` are small programs in a folder of the path; `/etc/seb` and
`/var/lib/seb` are folders of the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.servers.s3_server import S3Server, free_port

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0
_SEB = """\
#!/bin/sh
export SEB_CONFIG=${{SEB_CONFIG:-{etc}/seb.toml}} PYTHONPATH={root}
exec {python} -m seb_appliance "$@"
"""
# Of the unit: one process, which is ready or has ended when `start` returns.
_SYSTEMCTL = """\
#!/bin/bash
[ "$2" = seb ] || exit 0
stop() {{
  [ -e {folder}/pid ] || return 0
  kill $(cat {folder}/pid) 2> {folder}/null
  while kill -0 $(cat {folder}/pid) 2> {folder}/null; do sleep 0.05; done
  rm {folder}/pid
}}
[ $1 = start ] || stop
[ $1 = stop ] && exit 0
setsid seb serve >> {folder}/journal 2>&1 < {folder}/null &
echo $! > {folder}/pid
until curl -sf http://127.0.0.1:{port}/readyz > {folder}/null; do
  kill -0 $(cat {folder}/pid) 2> {folder}/null || exit 1
  sleep 0.05
done
"""
_AWS = '#!/bin/sh\nexec {python} {root}/tests/support/aws.py "$@"\n'


def blocks(heading: str) -> list[str]:
    """The commands of each block of that part of docs/OPERATIONS.md."""
    page = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
    part = page.partition(f"\n### {heading}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    return re.findall(r"```bash\n(.*?)```", part, re.DOTALL)


@dataclass
class Machine:
    """`said`: what the commands printed. `secret`: an API key that survives each restore."""

    folder: Path
    server: S3Server
    port: int = field(default_factory=free_port)
    said: str = ""
    secret: str = ""

    def __post_init__(self) -> None:
        for name in ("etc", "var", "bin"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "null").touch()
        values = {
            "folder": self.folder,
            "etc": self.folder / "etc",
            "root": ROOT,
            "python": sys.executable,
            "port": self.port,
        }
        for name, text in {"seb": _SEB, "systemctl": _SYSTEMCTL, "aws": _AWS}.items():
            program = self.folder / "bin" / name
            program.write_text(text.format(**values))
            program.chmod(0o700)

    def configure(self, **more: str) -> None:
        settings = {
            "bucket": "s3://orders/seb",
            "data": str(self.folder / "var"),
            "url": f"http://127.0.0.1:{self.port}",
            "take_over_when_new": "on",
            "linger": "20ms",
            "s3_immediate_list": "on",
            "s3_endpoint": f"http://127.0.0.1:{self.server.port}",
            "s3_region": "us-east-1",
            "s3_access_key_id": self.server.access_key_id,
            "s3_secret_access_key": self.server.secret_access_key,
            **more,
        }
        lines = [f"{name} = {json.dumps(text)}\n" for name, text in settings.items()]
        (self.folder / "etc" / "seb.toml").write_text(
            "".join(lines) + f"port = {self.port}\n", encoding="utf-8"
        )

    def run(self, commands: str, replaced: dict[str, str] | None = None) -> int:
        """Run a block of a runbook; the exit code of its last command."""
        places = {
            "/etc/seb": str(self.folder / "etc"),
            "/var/lib/seb": str(self.folder / "var"),
            **(replaced or {}),
        }
        for old, new in places.items():
            commands = commands.replace(old, new)
        began_s = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", commands],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )
        self.said = done.stdout
        took_s = time.monotonic() - began_s
        print(f"{took_s:.1f} s, exit {done.returncode}: {commands.strip().partition(chr(10))[0]}")
        return done.returncode

    @property
    def _environment(self) -> dict[str, str]:
        ours = {name: text for name, text in os.environ.items() if not name.startswith("SEB_")}
        return {
            **ours,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "AWS_ACCESS_KEY_ID": self.server.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.server.secret_access_key,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def start(self) -> None:
        assert self.run("systemctl start seb") == 0, self.journal
        if not self.secret:
            grants = "--grant produce:** --grant consume:**:** --grant manage:**"
            assert self.run(f"seb api-keys create producer {grants} --json") == 0, self.said
            self.secret = re.findall(r"seb_[\w.-]+", self.said)[-1]

    @property
    def journal(self) -> str:
        """What the unit has logged."""
        return (self.folder / "journal").read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """At the end of a test: nothing of ours goes on."""
        pid = self.folder / "pid"
        if pid.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGKILL)

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> Any:
        """The answer to a request with the API key. Raises OSError (HTTPError is one)."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=body,
            headers={"Authorization": f"Bearer {self.secret}", **headers},
        )
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.load(answer)

    def values(self, topic: str) -> list[str]:
        """All records that can be read."""
        path, found = f"/v1/topics/{topic}/records", []
        offset: str | int = "earliest"
        while True:
            page = self.ask(f"{path}?offset={offset}")
            found += [record["value"] for record in page["records"]]
            offset = page["next_offset"]
            if offset >= page["log_end_offset"]:
                return found


@contextlib.contextmanager
def machine_on(server: S3Server, folder: Path, **settings: str) -> Iterator[Machine]:
    """A machine whose appliance runs on `s3://orders/seb`, a bucket that exists."""
    machine = Machine(folder, server)
    machine.configure(**settings)
    try:
        machine.start()
        yield machine
    finally:
        machine.stop()


class Producer:
    """Numbers, one in each request, each repeated with its Idempotency-Key until it is answered."""

    def __init__(self, machine: Machine, topic: str) -> None:
        self.topic = topic
        self.acknowledged: list[str] = []
        self.answers: set[str] = set()
        self._machine = machine
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def wait_for(self, more: int) -> None:
        """Until so many more are acknowledged."""
        wanted, deadline_s = len(self.acknowledged) + more, time.monotonic() + WAIT_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline_s, (self.answers, self._machine.journal)
            time.sleep(0.01)

    def _produce(self) -> None:
        while not self._stopping.is_set():
            value = str(len(self.acknowledged))
            headers = {"Idempotency-Key": f"{self.topic}-{value}"}
            try:
                path = f"/v1/topics/{self.topic}/records"
                self._machine.ask(path, value.encode(), **headers)
            except urllib.error.HTTPError as error:
                self.answers.add(json.load(error)["code"])
                error.close()
                self._stopping.wait(0.05)
            except OSError:
                self._stopping.wait(0.05)
            else:
                self.acknowledged.append(value)


@contextlib.contextmanager
def producing(machine: Machine, topic: str = "orders.eu") -> Iterator[Producer]:
    """One that has been acknowledged some records."""
    producer = Producer(machine, topic)
    producer.start()
    try:
        producer.wait_for(30)
        yield producer
    finally:
        producer.stop()
