"""The files of a release in `dist/`. The same commit makes the same bytes.

The image also has Debian's packages of the day: it is the same as long as Debian has no update.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from release import image
from release.provenance import Source, statement
from release.sbom import sbom
from seb_appliance import __version__

ROOT: Final = Path(__file__).parents[1]
CHECKSUMS: Final = "SHA256SUMS"
PINS: Final = ROOT / "ansible" / "requirements-appliance.txt"
Say = Callable[[str], None]


def source() -> Source:
    """The commit that is built. Raises CalledProcessError where there is no git repository."""
    commit, seconds = _git("log", "-1", "--format=%H %ct").split()
    return Source(commit, int(seconds), clean=not _git("status", "--porcelain"))


def build(dist: Path, say: Say) -> list[Path]:
    """Empty `dist` and write everything into it. Raises PackagesError, CalledProcessError."""
    built_from = source()
    dist.mkdir(exist_ok=True)
    for old in dist.iterdir():
        old.unlink()
    say("wheels and source distributions …")
    _distributions(dist, built_from.seconds)
    wheel = dist / f"seb_appliance-{__version__}-py3-none-any.whl"
    say("image, for each architecture: Debian's packages, then Python's …")
    archive = dist / f"seb-appliance-{__version__}.oci.tar"
    sizes = image.build(wheel, PINS, archive, __version__, built_from.seconds)
    for architecture, size_bytes in sizes.items():
        say(f"image for {architecture}: {size_bytes / 1e6:.0f} MB compressed")
    _write(dist / f"seb-appliance-{__version__}.cdx.json", sbom())
    built = sorted(dist.iterdir())
    digests = {path.name: _sha256(path) for path in built}
    _write(dist / f"seb-appliance-{__version__}.intoto.json", statement(digests, built_from, PINS))
    write_checksums(dist)
    return sorted(dist.iterdir())


def damaged(dist: Path) -> list[str]:
    """What differs from the checksums, in sentences; nothing if all is as it was built from the
    commit that is checked out."""
    sums = dist / CHECKSUMS
    if not sums.exists():
        return [f"{dist.name}/ has no {CHECKSUMS}: run make release."]
    lines = [line.split("  ") for line in sums.read_text(encoding="utf-8").splitlines()]
    found = [
        f"{dist.name}/{name} is not the file that was built."
        for digest, name in lines
        if not (dist / name).exists() or _sha256(dist / name) != digest
    ]
    listed = {CHECKSUMS, *(name for _, name in lines)}
    found += [
        f"{dist.name}/{path.name} is not part of the release."
        for path in sorted(dist.iterdir())
        if path.name not in listed
    ]
    statements = [path.read_text(encoding="utf-8") for path in dist.glob("*.intoto.json")]
    if not any(source().commit in text for text in statements):
        found.append(f"{dist.name}/ was built from another commit: run make release.")
    return found


def _distributions(dist: Path, seconds: int) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    for project in (ROOT, ROOT / "spark"):
        targets = ("--target", "wheel", *(("--target", "sdist") if project == ROOT else ()))
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", *targets, "--directory", str(dist)],
            cwd=project,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=300,
        )


def write_checksums(dist: Path) -> None:
    path = dist / CHECKSUMS
    lines = [f"{_sha256(file)}  {file.name}\n" for file in sorted(dist.iterdir())]
    path.write_text("".join(lines), encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()
