"""What machines are made of: a Debian root, its packages, and wheels. Fetched once into .state."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.server.serving import ENVIRONMENT
from tests.support.servers.s3_server import need

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".state" / "machines"
# What a provider's image of Debian has, and no more: the role installs the rest.
IMAGE = "systemd,systemd-sysv,dbus,python3,python3-apt,sudo,iproute2,kmod,openssh-server"
# For machines that make the wheel and run the playbook themselves.
TOOLS = ("hatchling==1.33.0", "ansible-core>=2.19,<2.20")
SUITE = "bookworm"


@dataclass(frozen=True)
class Supplies:
    """`root`: a tar of a Debian; `packages`: Debian packages that machines have fetched; `wheels`:
    what the appliance needs, and what making and installing it needs."""

    root: Path
    packages: Path
    wheels: Path


def supplies(*more_packages: str) -> Supplies:
    """Fetched by the first who asks; `more_packages` are in the image. Raises NotInstalledError
    without mmdebstrap."""
    packages = STATE / "packages"
    (packages / "partial").mkdir(parents=True, exist_ok=True)
    return Supplies(_root(",".join((IMAGE, *more_packages))), packages, _wheels())


def _root(image: str) -> Path:
    target = STATE / f"{SUITE}-{hashlib.sha256(image.encode()).hexdigest()[:8]}.tar"
    if not target.exists():
        need("mmdebstrap")
        new = target.with_suffix(".new.tar")
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={image}", SUITE, new],
            check=True,
        )
        new.rename(target)
    return target


def _wheels() -> Path:
    """For the Python of these tests, which is that of the machines: 3.11."""
    pins = (ROOT / "constraints.txt").read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    pins += "".join(TOOLS).encode()
    target = STATE / f"wheels-{hashlib.sha256(pins).hexdigest()[:8]}"
    if not target.exists():
        new = target.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
        subprocess.run(
            [*pip, "--dest", new, "--constraint", ROOT / "constraints.txt", ".[server]", *TOOLS],
            check=True,
            cwd=ROOT,
            env={name: value for name, value in ENVIRONMENT.items() if name != "PIP_CONSTRAINT"},
        )
        new.rename(target)
    return target


def copy_source(target: Path, *folders: str) -> None:
    """What making a wheel of this checkout needs, and these folders of it."""
    for name in ("seb_appliance", "spark", "migrations", "templates", "examples", *folders):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", "Makefile", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)


def build_wheel(folder: Path, version: str | None = None, *, broken: bool = False) -> Path:
    """The wheel of this checkout, as itself or as if it were another version; `broken`: one whose
    `seb serve` fails, though its `seb doctor` does not."""
    source = folder / "source"
    copy_source(source)
    if version is not None:
        file = source / "seb_appliance" / "__init__.py"
        file.write_text(re.sub(r'(__version__ = )".*"', rf'\1"{version}"', file.read_text()))
    if broken:
        process = source / "seb_appliance" / "ops" / "serve" / "process.py"
        process.write_text("raise SystemExit('broken')\n")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, check=True, cwd=source, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel
