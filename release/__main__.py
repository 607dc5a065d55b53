"""Build a release into `dist/`, or check that what lies there is ready to be published.

python -m release [build|check]
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from release import artefacts
from release.debian import PackagesError
from seb_appliance import __version__

DIST: Final = artefacts.ROOT / "dist"


def build() -> int:
    try:
        built = artefacts.build(DIST, say)
    except (PackagesError, subprocess.CalledProcessError) as error:
        say(f"The release is not built: {error}")
        return 1
    for path in built:
        say(f"{path.stat().st_size / 1e6:8.2f} MB  dist/{path.name}")
    return 0


def check() -> int:
    """What must be true before anything is published."""
    problems = []
    if not artefacts.source().clean:
        problems.append("There are changes that are not committed.")
    changes = (artefacts.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"## {__version__} (" not in changes or f"## {__version__} (not released" in changes:
        problems.append(f"CHANGELOG.md has no date of release for {__version__}.")
    problems += artefacts.damaged(DIST)
    for problem in problems:
        say(problem)
    return 1 if problems else 0


def say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    commands = {"build": build, "check": check}
    name = sys.argv[1] if len(sys.argv) > 1 else "build"
    if name not in commands:
        say(__doc__)
        sys.exit(2)
    sys.exit(commands[name]())
