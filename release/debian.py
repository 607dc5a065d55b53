"""The lowest layer of the image: Python and what it needs, of Debian packages.

mmdebstrap chooses, downloads and verifies them. They are extracted, not installed, so an image for
another architecture needs no emulator, and the image has no shell and no package manager.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from release.layers import Layer, members

SUITE: Final = "bookworm"
PYTHON: Final = "3.11"
_PACKAGES: Final = (
    f"python{PYTHON}-minimal",
    f"libpython{PYTHON}-stdlib",
    "ca-certificates",
    "libstdc++6",
    "tzdata",
)
# Programs of maintainers' scripts, which never run here.
_LEFT_OUT: Final = {"debconf", "dpkg", "openssl", "tar"}
_NOT_USED: Final = ("usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/lintian/")
_AUTHORITIES: Final = "usr/share/ca-certificates/"
_STATUS: Final = "var/lib/dpkg/status.d"  # where scanners look in images without dpkg


class PackagesError(Exception):
    """mmdebstrap or dpkg-deb failed; the text is theirs."""


def layer(architecture: str, mtime: int) -> Layer:
    """`architecture`: as Debian and OCI name it. Raises PackagesError."""
    made, authorities = Layer(mtime), []
    with tempfile.TemporaryDirectory() as folder:
        for package in sorted(_download(architecture, Path(folder))):
            name = _run("dpkg-deb", "--field", str(package), "Package").decode().strip()
            if name in _LEFT_OUT:
                continue
            made.add(f"{_STATUS}/{name}", _run("dpkg-deb", "--field", str(package)))
            files = Path(folder) / "files.tar"
            files.write_bytes(_run("dpkg-deb", "--fsys-tarfile", str(package)))
            for member, content in members(files):
                path = member.name.removeprefix("./")
                if path.startswith(_AUTHORITIES) and member.isreg():
                    authorities.append(content)
                elif not member.isdir() and not path.startswith(_NOT_USED):
                    made.add_member(member, content)
    made.add("etc/ssl/certs/ca-certificates.crt", b"".join(authorities))
    return made


def _download(architecture: str, folder: Path) -> list[Path]:
    """The packages with what they depend on."""
    _run(
        "mmdebstrap",
        "--quiet",
        "--variant=extract",
        f"--architectures={architecture}",
        f"--include={','.join(_PACKAGES)}",
        f"--extract-hook=copy-out /var/cache/apt/archives {folder}",
        SUITE,
        "/dev/null",
    )
    return list((folder / "archives").glob("*.deb"))


def _run(*command: str) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    if done.returncode:
        raise PackagesError(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")
    return done.stdout
