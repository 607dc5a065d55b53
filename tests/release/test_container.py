"""The image runs as nobody, on a file system that it cannot write, and loses nothing with it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

from release import artefacts, image
from seb_appliance import __version__
from tests.support.servers.s3_server import S3Server, free_port

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]

ROOT = Path(__file__).parents[2]
NAME = f"seb-appliance:{__version__}"
SIZE_MB_MAX = 120
_names = itertools.count()


def podman(*arguments: str, check: bool = True) -> str:
    """runc also runs where cgroups of version 1 are in use."""
    runtime = ["--runtime", "runc"] if shutil.which("runc") else []
    command = ["podman", *runtime, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if check and done.returncode:
        raise AssertionError(f"{command}: {done.stderr}")
    return done.stdout.strip()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The image is built and loaded; its compressed size in bytes for each architecture."""
    for program in ("podman", "mmdebstrap"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed (tests/release/install.sh)")
    if os.getuid():
        pytest.skip("containers are run as root here")
    folder = tmp_path_factory.mktemp("image")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    sizes = image.build(Path(wheel), artefacts.PINS, folder / "one.tar", __version__, 1_700_000_000)
    podman("load", "--quiet", "--input", str(folder / "one.tar"))
    return sizes


class Container:
    """An appliance in a container, on the network of this machine."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.name = f"seb-test-{os.getpid()}-{next(_names)}"
        self.port = free_port()
        variables = {"SEB_HOST": "127.0.0.1", "SEB_PORT": str(self.port), **settings}
        podman(
            *("run", "--detach", "--name", self.name, "--read-only", "--network=host"),
            *("--cap-drop=ALL", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"),
            *(f"--env={name}={value}" for name, value in variables.items()),
            NAME,
        )

    def ready(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)

    def wait(self) -> None:
        """Until the log says that it is ready, where its admin key is."""
        command = ["timeout", "60", "podman", "logs", "--follow", self.name]
        lines = []
        with subprocess.Popen(command, stdout=PIPE, stderr=STDOUT) as follower:
            assert follower.stdout is not None
            for line in follower.stdout:
                lines.append(line)
                if b"admin key" in line:
                    break
            follower.kill()
        assert b"admin key" in lines[-1], lines

    def run(self, *command: str, check: bool = True) -> str:
        return podman("exec", self.name, *command, check=check)

    def request(self, path: str, key: str, body: bytes | None = None) -> Any:
        url = f"http://127.0.0.1:{self.port}{path}"
        asked = urllib.request.Request(url, body, {"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def exit_code(self) -> int:
        return int(podman("wait", self.name))

    def burn(self) -> None:
        """kill -9, and its volume is gone."""
        podman("rm", "--force", "--time=0", "--volumes", self.name, check=False)


@pytest.fixture
def containers(built: dict[str, int]) -> Iterator[list[Container]]:
    started: list[Container] = []
    yield started
    for one in started:
        one.burn()


def start(containers: list[Container], settings: dict[str, str]) -> Container:
    containers.append(Container(settings))
    return containers[-1]


def on(server: S3Server) -> dict[str, str]:
    options = server.new_bucket()
    return {
        "SEB_BUCKET": f"s3://{options.bucket}",
        "SEB_S3_ENDPOINT": f"http://127.0.0.1:{server.port}",
        "SEB_S3_ACCESS_KEY_ID": server.access_key_id,
        "SEB_S3_SECRET_ACCESS_KEY": server.secret_access_key,
        "SEB_LINGER": "10ms",
        "SEB_TAKE_OVER_WHEN_NEW": "on",
    }


def admin_key(container: Container) -> str:
    found = container.run(
        "/usr/bin/python3.11", "-c", "print(open('/var/lib/seb/local/admin.key').read())"
    )
    return found.strip()


def test_each_image_is_small(built: dict[str, int]) -> None:
    assert set(built) == {"amd64", "arm64"}
    assert max(built.values()) <= SIZE_MB_MAX * 1_000_000


def test_a_container_needs_no_root_no_shell_and_writes_its_volume_alone(
    containers: list[Container],
) -> None:
    seb = start(containers, {})
    seb.wait()
    inside = "import os; print(os.getuid(), os.path.exists('/bin/sh'), os.access('/usr', os.W_OK))"
    assert seb.run("/usr/bin/python3.11", "-c", inside) == "65532 False False"
    assert f"seb {__version__}" in seb.run("seb", "--version")
    seb.run("/usr/bin/python3.11", "-I", "-c", image.READY)


def test_an_acknowledged_record_outlives_a_container_and_its_volume(
    containers: list[Container], moto_server: S3Server
) -> None:
    settings = on(moto_server)
    first = start(containers, settings)
    first.wait()
    first.request("/v1/topics/orders/records", admin_key(first), b"kept")
    first.burn()
    second = start(containers, settings)
    second.wait()
    second.run("seb", "admin", "reset-key")
    key = admin_key(second)
    found = second.request("/v1/topics/orders/records?offset=earliest", key)
    assert [record["value"] for record in found["records"]] == ["kept"]


def test_a_container_that_was_fenced_does_not_take_over_again(
    containers: list[Container], moto_server: S3Server
) -> None:
    settings = on(moto_server)
    first = start(containers, settings)
    first.wait()
    second = start(containers, settings)
    second.wait()
    with pytest.raises(urllib.error.HTTPError):
        first.request("/v1/topics/orders/records", admin_key(first), b"late")
    assert first.exit_code() == 75
    podman("start", first.name)
    assert first.exit_code() == 73
    assert second.ready()


def test_the_kubernetes_manifests_are_valid_in_the_versions_that_are_supported() -> None:
    checker = ROOT / ".state" / "kubernetes" / "bin" / "kubernetes-validate"
    if not checker.exists():
        pytest.skip("kubernetes-validate is not installed (tests/release/install.sh)")
    for version in ("1.30", "1.33", "1.37"):
        subprocess.run(
            [checker, "--strict", "-k", version, ROOT / "release" / "kubernetes.yaml"], check=True
        )
    (deployment,) = [
        one
        for one in yaml.safe_load_all((ROOT / "release" / "kubernetes.yaml").read_text("utf-8"))
        if one["kind"] == "Deployment"
    ]
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
