"""Small lies told to the code of the four paths (paths.toml), to see whether a test notices.

Each mutant is one change of one file: a comparison or a boolean turned around, a number off by one,
a statement left out. All tests are collected once; for each mutant the process is forked, one
function in the fork gets other code, and those of the file's own tests that come to the changed
line are run there, the shortest first, until one fails. What runs at import is changed before
it is imported, in a fork that has imported only what is not ours. Nothing is written to any source.

A mutant is killed when a test fails, or takes far longer than it should (it hung). What became of
each is remembered in .state, so that a run that is stopped goes on where it was.

    python -m tests.paths.mutants [--minutes 30] [--file grants.py] [--seed 0] [--again]
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Protocol

import pytest

from tests.paths.covering import Reach, digest, tests_of
from tests.paths.mutating import Mutant, mutants_of
from tests.paths.table import ROOT, Mapped, mapped
from tests.paths.trying import (
    Fate,
    Instead,
    Loop,
    codes,
    functions_of,
    in_a_fork,
    run_items,
)

RESULTS = ROOT / ".state" / "mutants.json"
# Imported once, before the forks: what takes longest and is not ours.
FOREIGN = ("hypothesis", "httpx2", "litestar", "msgspec", "yaml")
OPTIONS = (
    *("-q", "-s", "-m", "not slow", "--tb=no", "--assert=plain"),
    *("-p", "no:cacheprovider", "-p", "no:xdist"),
)

Todo = tuple[Mapped, Mutant]


class Results:
    """What became of each mutant, by its source. It is as good as the tests that it came from: the
    one that noticed, or all of the file's own. Kept in a file after each."""

    def __init__(self, *, again: bool) -> None:
        self._known: dict[str, tuple[str, str, str]] = {}
        self._digests = {test: digest([test]) for test in tests_of(mapped())}  # as they are now
        if not again:
            self.read()

    def read(self) -> None:
        """What is in the file."""
        if RESULTS.exists():
            self._known = json.loads(RESULTS.read_text(encoding="utf-8"))

    @staticmethod
    def _name(of: Mapped, mutant: Mutant) -> str:
        return hashlib.sha256(f"{of.file} {mutant.source}".encode()).hexdigest()[:24]

    def _proof(self, of: Mapped, fate: Fate) -> str:
        file = fate.by.partition("::")[0]
        return "".join(self._digests[test][:8] for test in of.tests if file in (test, "", "import"))

    def get(self, of: Mapped, mutant: Mutant) -> Fate | None:
        what, by, proof = self._known.get(self._name(of, mutant), ("", "", ""))
        fate = Fate(what, by)
        return fate if what and proof == self._proof(of, fate) else None

    def put(self, of: Mapped, mutant: Mutant, fate: Fate) -> None:
        self._known[self._name(of, mutant)] = (*astuple(fate), self._proof(of, fate))
        new = RESULTS.with_suffix(".new")
        new.write_text(json.dumps(self._known), encoding="utf-8")
        new.replace(RESULTS)


class Trial(Protocol):
    """How one mutant is tried. `run`, in a fork: the tests of these names, `lying` or not."""

    @property
    def of(self) -> Mapped: ...
    @property
    def mutant(self) -> Mutant: ...

    def run(self, lying: bool, names: Sequence[str], notes: Path) -> None: ...


class Trials:
    """Tries mutants until the time is over."""

    def __init__(self, reach: Reach, results: Results, until_s: float) -> None:
        self._reach = reach
        self._results = results
        self._until_s = until_s
        self._honest: set[str] = set()  # tests that pass alone, without a mutant

    def go_on(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            if time.monotonic() > self._until_s:
                return
            of, mutant = trial.of, trial.mutant
            names = self._reach.tests(of, mutant)
            fate = Fate("survived", "")
            if names:
                fate = in_a_fork(partial(trial.run, True, names))
            if fate.by in names and not self._is_honest(trial, fate.by):
                print(f"{fate.by} does not pass alone, and decides nothing", flush=True)
                continue
            self._results.put(of, mutant, fate)
            if fate.what == "survived":
                print(f"{of.file}:{mutant.line}: {mutant.what} ({len(names)} tests)", flush=True)

    def _is_honest(self, trial: Trial, name: str) -> bool:
        """Whether a test that noticed passes alone, without a mutant."""
        if name not in self._honest and in_a_fork(partial(trial.run, False, [name])).by == "":
            self._honest.add(name)
        return name in self._honest


@dataclass(frozen=True)
class AtImport:
    """The module is changed before it is imported. A Trial."""

    of: Mapped
    mutant: Mutant
    seconds: dict[str, float]

    def run(self, lying: bool, names: Sequence[str], notes: Path) -> None:
        if lying:
            instead = Instead(self.of.module, ROOT / self.of.file, self.mutant.source)
            sys.meta_path.insert(0, instead)

        def run(items: Sequence[pytest.Item]) -> None:
            by_name = {item.nodeid: item for item in items}
            run_items([by_name[name] for name in names], self.seconds, notes)

        files = dict.fromkeys(name.partition("::")[0] for name in names)
        if pytest.main([*OPTIONS, *files], plugins=[Loop(run)]):
            os._exit(1)


@dataclass(frozen=True)
class InPlace:
    """A function of the module is given other code. A Trial."""

    of: Mapped
    mutant: Mutant
    seconds: dict[str, float]
    items: dict[str, pytest.Item]
    function: FunctionType
    code: CodeType

    def run(self, lying: bool, names: Sequence[str], notes: Path) -> None:
        if lying:
            self.function.__code__ = self.code
        run_items([self.items[name] for name in names], self.seconds, notes)


def try_in_place(trials: Trials, reach: Reach, todo: Sequence[Todo]) -> None:
    """Collect all tests, once, and try the mutants that are no more than another function."""

    def run(items: Sequence[pytest.Item]) -> None:
        by_name = {item.nodeid: item for item in items}
        functions = functions_of(mapped())
        gc.collect()
        gc.freeze()  # the forks share it

        def each() -> Iterator[Trial]:
            for of, mutant in todo:
                if both := codes(of, mutant):
                    before, after = both
                    yield InPlace(of, mutant, reach.seconds, by_name, functions[before], after)

        trials.go_on(each())

    if code := pytest.main([*OPTIONS, *tests_of(mapped())], plugins=[Loop(run)]):
        sys.exit(f"pytest ended with {code}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--file", default="", help="only those whose name ends so")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which they are tried")
    parser.add_argument("--again", action="store_true", help="forget what became of them")
    asked = parser.parse_args(arguments)
    until_s = time.monotonic() + 60 * asked.minutes
    reach = Reach()
    results = Results(again=asked.again)
    files = [of for of in mapped() if of.file.endswith(asked.file)]
    todo = [(of, m) for of in files for m in mutants_of(ROOT / of.file) if not results.get(of, m)]
    random.Random(asked.seed).shuffle(todo)
    todo.sort(key=lambda one: one[1].what in one[0].equivalent)  # what is explained comes last
    trials = Trials(reach, results, until_s)
    for name in FOREIGN:
        importlib.import_module(name)
    late = [AtImport(of, mutant, reach.seconds) for of, mutant in todo if codes(of, mutant) is None]
    explained = [one for one in late if one.mutant.what in one.of.equivalent]
    trials.go_on(one for one in late if one not in explained)
    if len(late) < len(todo):
        in_another_process(lambda: try_in_place(trials, reach, todo))
        results.read()
    trials.go_on(explained)
    return report(files, results)


def in_another_process(run: Callable[[], None]) -> None:
    """What is imported there is not imported here."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            run()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit("the process that tries mutants has failed")


def report(files: Sequence[Mapped], results: Results) -> int:
    """The score of each file, and what survived. 1 when a survivor is not explained, or something
    that is explained is not a survivor."""
    wrong = 0
    total: Counter[str] = Counter()
    for of in files:
        mutants = mutants_of(ROOT / of.file)
        fates = {mutant.what: results.get(of, mutant) for mutant in mutants}
        counts = Counter(fate.what if fate else "not run" for fate in fates.values())
        total += counts
        print(f"{of.path:16} {of.file:48} {len(mutants):4} mutants: {told(counts)}")
        for mutant in mutants:
            fate = fates[mutant.what]
            why = of.equivalent.get(mutant.what)
            if fate and fate.what == "survived":
                wrong += why is None
                print(f"    line {mutant.line}: {mutant.what}: {why or 'NOT EXPLAINED'}")
            elif fate and why:
                wrong += 1
                print(
                    f"    line {mutant.line}: {mutant.what}: EXPLAINED, and {fate.what}: {fate.by}"
                )
        for what in of.equivalent.keys() - fates.keys():
            wrong += 1
            print(f"    {what}: EXPLAINED, and no mutant")
    print(f"{total.total()} mutants: {told(total)}")
    return 1 if wrong else 0


def told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
