"""The image of a container: Debian's Python, the appliance, and nothing that it does not need.

A container needs no root, no writable file system but its data directory, and no shell.
"""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any, Final

from release import debian
from release.layers import Layer
from release.oci import Archive, Image

ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}  # → as wheels name it
NAME: Final = "seb-appliance"
_GLIBC_MINOR: Final = 36  # of Debian 12; wheels for an older glibc 2 work
_USER: Final = 65532
_HOME: Final = "var/lib/seb"
_PACKAGES: Final = "usr/lib/python3/dist-packages"
_PORT: Final = 51313
_COMMAND: Final = f"""\
#!/usr/bin/python{debian.PYTHON} -I
from seb_appliance.cli import main

main()
"""
READY: Final = (
    "import os, urllib.request as u; "
    "u.urlopen(f'http://127.0.0.1:{os.environ[\"SEB_PORT\"]}/readyz', timeout=4)"
)
_SECOND_NS: Final = 1_000_000_000


def build(
    wheel: Path, requirements: Path, target: Path, version: str, mtime: int
) -> dict[str, int]:
    """Write an OCI archive for all architectures. Return the compressed size in bytes of each.
    `requirements`: pinned, with hashes. Raises PackagesError and CalledProcessError (pip)."""
    archive = Archive(mtime)
    sizes = {}
    for architecture, machine in ARCHITECTURES.items():
        layers = [
            debian.layer(architecture, mtime),
            _appliance(wheel, requirements, machine, mtime),
        ]
        image = Image(architecture, [one.tar() for one in layers], _config(version))
        sizes[architecture] = archive.add(image, _labels(version))
    archive.write(target, f"{NAME}:{version}")
    return sizes


def _appliance(wheel: Path, requirements: Path, machine: str, mtime: int) -> Layer:
    """The wheel and the packages that it needs, with bytecode, which containers cannot write."""
    layer = Layer(mtime)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        _install(tree, machine, "--require-hashes", "--requirement", str(requirements))
        name, version, *_ = wheel.name.split("-")
        source = ("--no-index", "--find-links", str(wheel.parent))  # it is not recorded
        _install(tree, machine, *source, f"{name}=={version}")
        remove_scripts(tree)
        _compile(tree)
        layer.add_tree(tree, _PACKAGES)
    layer.add("usr/bin/seb", _COMMAND.encode(), 0o755)
    layer.add("etc/passwd", f"seb:x:{_USER}:{_USER}::/{_HOME}:/nonexistent\n".encode())
    layer.add("etc/group", f"seb:x:{_USER}:\n".encode())
    layer.add_directory(_HOME, _USER)
    return layer


def _install(tree: Path, machine: str, *what: str) -> None:
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(5, _GLIBC_MINOR + 1)]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"),
            *("--only-binary=:all:", "--implementation=cp", f"--python-version={debian.PYTHON}"),
            *(f"--platform={one}" for one in [*platforms, f"manylinux2014_{machine}"]),
            *("--target", str(tree), "--upgrade", *what),
        ],
        check=True,
        timeout=900,
    )


def remove_scripts(tree: Path) -> None:
    """The commands of packages, which name the Python that built the image, are of no use in it."""
    shutil.rmtree(tree / "bin", ignore_errors=True)
    for record in tree.glob("*.dist-info/RECORD"):
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(("../../bin/", "bin/"))]
        record.write_text("".join(kept), encoding="utf-8")


def _compile(tree: Path) -> None:
    """Bytecode that is never compared with its source. Only the Python of the image can use it."""
    if sys.version_info[:2] != tuple(map(int, debian.PYTHON.split("."))):
        raise SystemExit(f"The image is built with Python {debian.PYTHON}, whose bytecode it has.")
    compileall.compile_dir(
        tree,
        quiet=1,
        stripdir=str(tree),
        prependdir=f"/{_PACKAGES}",
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )


def _config(version: str) -> dict[str, Any]:
    """A container listens on all of its addresses and keeps everything in its volume until it is
    told of a bucket."""
    settings = {
        "SEB_HOST": "0.0.0.0",
        "SEB_PORT": str(_PORT),
        "SEB_BUCKET": f"file:/{_HOME}/bucket",
        "SEB_DATA": f"/{_HOME}/local",
    }
    return {
        "User": f"{_USER}:{_USER}",
        "ExposedPorts": {f"{_PORT}/tcp": {}},
        "Env": ["PATH=/usr/bin", *(f"{name}={value}" for name, value in settings.items())],
        "Entrypoint": ["/usr/bin/seb"],
        "Cmd": ["serve"],
        "WorkingDir": f"/{_HOME}",
        "Volumes": {f"/{_HOME}": {}},
        "Labels": _labels(version),
        "StopSignal": "SIGTERM",
        "Healthcheck": {
            "Test": ["CMD", f"/usr/bin/python{debian.PYTHON}", "-I", "-c", READY],
            "Interval": 10 * _SECOND_NS,
            "Timeout": 5 * _SECOND_NS,
            "StartPeriod": 60 * _SECOND_NS,
            "Retries": 3,
        },
    }


def _labels(version: str) -> dict[str, str]:
    title = "org.opencontainers.image"
    return {f"{title}.title": NAME, f"{title}.version": version, f"{title}.licenses": "MIT"}
