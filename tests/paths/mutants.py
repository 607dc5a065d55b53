"""Small lies told to the code of the four paths (paths.toml), to see whether a test notices.

Each mutant is one change of one file: a comparison or a boolean turned around, a number off by one,
a statement left out. It is run in a process of its own that was forked after everything foreign was
imported, and that imports our package with the one module changed: nothing is written to any
source. A mutant is killed when a mapped test fails, or takes far longer than it should. What
survived is remembered in .state, so a run that is stopped goes on where it was.

    python -m tests.paths.mutants [--minutes 30] [--file grants.py] [--again] [--jobs 2]
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.paths.mutating import Mutant, mutants_of
from tests.paths.table import ROOT, Mapped, mapped

RESULTS = ROOT / ".state" / "mutants.json"
# Imported once, before the forks: what takes longest and is not ours.
FOREIGN = (
    "hypothesis",
    "httpx2",
    "litestar",
    "msgspec",
    "pytest",
    "sqlalchemy.ext.asyncio",
    "yaml",
)
OPTIONS = (
    *("-x", "-q", "-m", "not slow", "--tb=no"),
    *("-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain"),
)
SLOWER = 5  # times as long as without a mutant, and it hangs


class Instead:
    """Gives one module another source. A finder and a loader for `sys.meta_path`."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name = name
        self._path = path
        self._source = source

    def find_spec(self, name: str, *_: object) -> object:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)  # type: ignore[attr-defined,arg-type]

    def create_module(self, _: object) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)


@dataclass
class Running:
    """A forked process that runs the tests of one mutant (None: of none)."""

    pid: int
    began_s: float
    mapped: Mapped
    mutant: Mutant | None


def run_in_child(of: Mapped, source: str | None) -> int:
    """The process id of a child that ends with 0 when all tests pass."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    code = 1
    try:
        if source is not None:
            sys.meta_path.insert(0, Instead(of.module, ROOT / of.file, source))  # type: ignore[arg-type]
        import pytest

        options = [
            "-x",
            "-q",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
            "--tb=no",
            "--assert=plain",
        ]
        code = int(pytest.main([*options, *of.tests]))
    finally:
        os._exit(code)


class Results:
    """By the mutated source: what became of it. Kept in a file after each."""

    def __init__(self, *, again: bool) -> None:
        self._known: dict[str, str] = {}
        if RESULTS.exists() and not again:
            self._known = json.loads(RESULTS.read_text(encoding="utf-8"))

    @staticmethod
    def _name(of: Mapped, mutant: Mutant) -> str:
        tests = b"".join((ROOT / test).read_bytes() for test in of.tests)
        return hashlib.sha256(tests + mutant.source.encode()).hexdigest()[:24]

    def get(self, of: Mapped, mutant: Mutant) -> str | None:
        return self._known.get(self._name(of, mutant))

    def put(self, of: Mapped, mutant: Mutant, what: str) -> None:
        self._known[self._name(of, mutant)] = what
        RESULTS.parent.mkdir(exist_ok=True)
        new = RESULTS.with_suffix(".new")
        new.write_text(json.dumps(self._known), encoding="utf-8")
        new.replace(RESULTS)


def finished(running: list[Running], limits_s: dict[str, float]) -> Iterator[tuple[Running, str]]:
    """Those that ended or were ended, and how: killed, survived or hung."""
    for one in list(running):
        pid, status = os.waitpid(one.pid, os.WNOHANG)
        if pid:
            running.remove(one)
            yield one, "survived" if status == 0 else "killed"
        elif time.monotonic() - one.began_s > limits_s[one.mapped.file]:
            os.killpg(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)
            running.remove(one)
            yield one, "hung"


def unchanged_s(of: Mapped) -> float:
    """How long the mapped tests take. Ends the run when they fail."""
    began_s = time.monotonic()
    _, status = os.waitpid(run_in_child(of, None), 0)
    if status:
        sys.exit(f"the tests of {of.file} fail without any mutant: {' '.join(of.tests)}")
    return time.monotonic() - began_s


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--file", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args(arguments)
    until_s = time.monotonic() + 60 * asked.minutes
    for name in FOREIGN:
        importlib.import_module(name)
    results = Results(again=asked.again)
    files = [of for of in mapped() if of.file.endswith(asked.file)]
    todo = [(of, m) for of in files for m in mutants_of(ROOT / of.file) if not results.get(of, m)]
    limits_s: dict[str, float] = {}
    running: list[Running] = []
    while (todo and time.monotonic() < until_s) or running:
        while todo and len(running) < asked.jobs and time.monotonic() < until_s:
            of, mutant = todo.pop(0)
            if of.file not in limits_s:
                limits_s[of.file] = SLOWER * unchanged_s(of) + 10
            pid = run_in_child(of, mutant.source)
            running.append(Running(pid, time.monotonic(), of, mutant))
        for one, what in finished(running, limits_s):
            assert one.mutant is not None
            results.put(one.mapped, one.mutant, what)
            if what == "survived":
                print(f"{one.mapped.file}:{one.mutant.line}: {one.mutant.what}", flush=True)
        time.sleep(0.02)
    return report(files, results)


def report(files: Sequence[Mapped], results: Results) -> int:
    """The score of each file, and what survived. 1 when a survivor is not explained."""
    unexplained = 0
    for of in files:
        mutants = mutants_of(ROOT / of.file)
        fates = Counter(results.get(of, mutant) or "not run" for mutant in mutants)
        counted = ", ".join(f"{count} {fate}" for fate, count in sorted(fates.items()))
        print(f"{of.path:16} {of.file:48} {len(mutants):4} mutants: {counted}")
        for mutant in mutants:
            if results.get(of, mutant) == "survived":
                why = of.equivalent.get(mutant.what)
                unexplained += why is None
                print(f"    line {mutant.line}: {mutant.what}: {why or 'NOT EXPLAINED'}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
