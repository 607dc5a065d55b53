"""Asks the quick tests of the four paths (paths.toml) for every branch of their files.

    python -m tests.paths.covering

Fails, and names the lines, when one is missing. Which test comes to which line is kept, for
`make mutants`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from coverage import CoverageData

from tests.paths.contexts import SECONDS
from tests.paths.mutating import Mutant
from tests.paths.table import ROOT, Mapped, mapped

SETTINGS = Path(__file__).with_name("coverage.ini")
DATA = ROOT / ".state" / "coverage"
RECORDED_OF = ROOT / ".state" / "reach.of"  # a digest of the sources and tests it is of


def coverage(*arguments: str) -> int:
    command = [sys.executable, "-m", "coverage", arguments[0], f"--rcfile={SETTINGS}"]
    environment = {**os.environ, "COVERAGE_FILE": str(DATA)}
    return subprocess.run([*command, *arguments[1:]], cwd=ROOT, env=environment).returncode


def tests_of(files: Sequence[Mapped]) -> list[str]:
    return list(dict.fromkeys(test for of in files for test in of.tests))


def digest(names: Sequence[str]) -> str:
    """Of what is in these files."""
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in names)).hexdigest()


def record(*options: str) -> int:
    """Run all tests of the paths, and note what each comes to. 0 when they pass."""
    DATA.parent.mkdir(exist_ok=True)
    RECORDED_OF.unlink(missing_ok=True)
    files = [of.file for of in mapped()]
    tests = tests_of(mapped())
    of = digest([*files, *tests])
    plugins = ("-p", "no:cacheprovider", "-p", "tests.paths.contexts")
    command = ("-m", "pytest", "-q", "-m", "not slow", *plugins, *options, *tests)
    failed = coverage("run", f"--include={','.join(files)}", *command)
    if not failed and not options:
        RECORDED_OF.write_text(of, encoding="utf-8")
    return failed


class Reach:
    """Which tests come to which lines, as last recorded; recorded anew when a file changed since.

    `seconds`: how long each test takes, by its name."""

    def __init__(self) -> None:
        of = digest([*(of.file for of in mapped()), *tests_of(mapped())])
        is_old = not RECORDED_OF.exists() or RECORDED_OF.read_text(encoding="utf-8") != of
        if is_old and record():
            sys.exit("the tests fail without any mutant")
        self.seconds: dict[str, float] = json.loads(SECONDS.read_text(encoding="utf-8"))
        data = CoverageData(str(DATA))
        data.read()
        self._tests = {of.file: data.contexts_by_lineno(str(ROOT / of.file)) for of in mapped()}

    def tests(self, of: Mapped, mutant: Mutant) -> list[str]:
        """The file's own tests that come to what the mutant changes, the shortest first. What runs
        at import changes all of the file."""
        by_line = self._tests[of.file]
        lines = by_line if mutant.function is None else mutant.statement
        found = {test for line in lines for test in by_line.get(line, ())}
        own = [test for test in found if test.partition("::")[0] in of.tests]
        return sorted(own, key=lambda test: (self.seconds[test], test))


def main(arguments: Sequence[str]) -> int:
    return record(*arguments) or coverage("report")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
