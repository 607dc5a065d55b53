"""Running chosen tests of a forked process against one mutant, and what became of it."""

from __future__ import annotations

import contextlib
import gc
import importlib.abc
import importlib.util
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NoReturn

import pytest

from tests.paths.mutating import Function, Mutant
from tests.paths.table import ROOT, Mapped

SLOWER = 5  # times as long as the longest test of its file, and LATE_S more: then a test hangs
LATE_S = 3.0
MEMORY_BYTES = 4 * 1024**3


@dataclass(frozen=True)
class Fate:
    """`what`: killed, hung or survived. `by`: the test that noticed, if one did."""

    what: str
    by: str


class Loop:
    """A plugin of pytest that does something of its own with the tests that were collected."""

    def __init__(self, run: Callable[[Sequence[pytest.Item]], None]) -> None:
        self._run = run

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        assert not session.testsfailed, "all tests can be collected"
        self._run(session.items)
        return True


class _Noticing:
    """A plugin of pytest that ends the process when a test fails."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._notes.write_text(nodeid, encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(1)


def in_a_fork(run: Callable[[Path], None]) -> Fate:
    """Fork, and call `run` there with a file into which it writes the test that is running. The
    child writes nowhere else than into a folder of its own, and all that it starts ends with it."""
    with tempfile.TemporaryDirectory(prefix="seb-mutant-", ignore_cleanup_errors=True) as folder:
        notes = Path(folder) / "running"
        pid = os.fork()
        if not pid:
            _run_and_exit(run, notes)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(ProcessLookupError):  # when it left nobody behind
            os.killpg(pid, signal.SIGKILL)
        by = notes.read_text(encoding="utf-8") if notes.exists() else "import"
    if status == 0:
        return Fate("survived", "")
    hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
    return Fate("hung" if hung else "killed", by)


def _run_and_exit(run: Callable[[Path], None], notes: Path) -> NoReturn:
    code = 1
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        signal.alarm(60)  # for what is imported
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(notes.parent)
        run(notes)
        code = 0
    finally:
        os._exit(code)


def run_items(items: Sequence[pytest.Item], seconds: dict[str, float], notes: Path) -> None:
    """Run the tests until one fails, which ends the process; so does one that takes too long."""
    if not items:
        return
    items[0].config.pluginmanager.register(_Noticing(notes))
    for item, following in zip(items, [*items[1:], None], strict=True):
        # Whichever is the first of its file waits for what the file's tests share.
        longest_s = max(took for test, took in seconds.items() if _file(test) == _file(item.nodeid))
        signal.alarm(int(SLOWER * longest_s + LATE_S) + 1)
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        signal.alarm(0)


def _file(test: str) -> str:
    return test.partition("::")[0]


# --- a function that is changed where it is ---


def codes(of: Mapped, mutant: Mutant) -> tuple[CodeType, CodeType] | None:
    """The code of the function that is changed, as it is and as the mutant has it. None when that
    will not do: what runs at import has run, and code that wants other variables of what is around
    it fits no function there is."""
    if mutant.function is None:
        return None
    path = ROOT / of.file
    before, after = (
        _code(compile(source, str(path), "exec"), mutant.function)
        for source in (path.read_text(encoding="utf-8"), mutant.source)
    )
    return (before, after) if before.co_freevars == after.co_freevars else None


def _code(module: CodeType, function: Function) -> CodeType:
    found = [code for code in _all_codes(module) if code.co_qualname == function.name]
    return found[function.nth]


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _all_codes(constant)


def functions_of(files: Sequence[Mapped]) -> dict[CodeType, FunctionType]:
    """The functions of these files that are there now, by their code."""
    gc.unfreeze()  # conftest.py froze them, and what is frozen is not listed
    paths = {str(ROOT / of.file) for of in files}
    return {
        one.__code__: one
        for one in gc.get_objects()
        if isinstance(one, FunctionType) and one.__code__.co_filename in paths
    }


# --- a module that is changed before it is imported ---


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module another source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name = name
        self._path = path
        self._source = source

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)
