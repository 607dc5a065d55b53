"""So many executions of a target, in portions: what was done is kept, and a later call goes on.

With atheris (coverage decides what is changed further) where it is installed, else with seeded
changes. `folder`/<target>/ holds what libFuzzer found worth keeping and what broke a promise;
`folder`/progress.json how far each target is.
"""

from __future__ import annotations

import base64
import importlib.util
import itertools
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1
from pathlib import Path
from typing import Final

import msgspec

from tests.fuzz.mutating import INPUT_BYTES_MAX, mutations
from tests.fuzz.target import Finding, Target

CORPUS: Final = Path(__file__).with_name("corpus")
PORTION: Final = 250_000
KEPT_BYTES_MAX: Final = 512  # of one input in the corpus of the repository
KEPT_MAX: Final = 50

_EXECUTED: Final = re.compile(r"stat::number_of_executed_units:\s*([0-9]+)")


class Progress(msgspec.Struct):
    """`findings`: what was broken, and the file with the input."""

    executions: int = 0
    seconds: float = 0.0
    engine: str = ""
    findings: list[str] = []


@dataclass(frozen=True)
class Portion:
    executions: int
    finding: str | None = None


def corpus_of(target: Target) -> list[bytes]:
    """Seeds, and what is kept in the repository."""
    return [*target.seeds, *kept_of(target)]


def kept_of(target: Target) -> list[bytes]:
    """A line of base64 each."""
    file = _file_of(target)
    return [base64.b64decode(line) for line in file.read_text().split()] if file.exists() else []


def _file_of(target: Target) -> Path:
    return CORPUS / f"{target.name}.base64"


def atheris_is_installed() -> bool:
    return importlib.util.find_spec("atheris") is not None


class Campaign:
    def __init__(self, folder: Path, *, seed: int, guided: bool | None = None) -> None:
        """`guided` None: if it can be."""
        self._folder = folder
        self._seed = seed
        self._guided = atheris_is_installed() if guided is None else guided
        folder.mkdir(parents=True, exist_ok=True)

    def progress(self, name: str) -> Progress:
        path = self._folder / f"{name}.json"
        return (
            msgspec.json.decode(path.read_bytes(), type=Progress) if path.exists() else Progress()
        )

    def run(self, target: Target, runs: int) -> Progress:
        """Up to so many executions in all; it ends at a finding."""
        done = self.progress(target.name)
        done.engine = "atheris" if self._guided else "seeded changes"
        while done.executions < runs and not done.findings:
            started_s = time.monotonic()
            portion = (self._guided_portion if self._guided else self._plain_portion)(
                target, min(PORTION, runs - done.executions), self._seed + done.executions
            )
            done.executions += portion.executions
            done.seconds = round(done.seconds + time.monotonic() - started_s, 1)
            if portion.finding is not None:
                done.findings.append(portion.finding)
            (self._folder / f"{target.name}.json").write_bytes(msgspec.json.encode(done))
        return done

    def _plain_portion(self, target: Target, runs: int, seed: int) -> Portion:
        changed = mutations(corpus_of(target), target.words, seed)
        for number, data in enumerate(itertools.islice(changed, runs), 1):
            try:
                target.execute(data)
            except Finding as finding:
                path = self._grown(target) / f"crash-{sha1(data).hexdigest()}"
                path.write_bytes(data)
                return Portion(number, f"{finding} ({path})")
        return Portion(runs)

    def _guided_portion(self, target: Target, runs: int, seed: int) -> Portion:
        grown = self._grown(target)
        for data in corpus_of(target):
            (grown / sha1(data).hexdigest()).write_bytes(data)
        words = grown.with_suffix(".words")
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
        printed = grown.with_suffix(".printed")
        exit_code = self._guide.fuzz(
            target.name,
            str(printed),
            f"-runs={runs}",
            f"-seed={seed % 2**31 + 1}",
            *([f"-dict={words}"] if target.words else ()),  # it takes no empty one
            f"-max_len={INPUT_BYTES_MAX // 8}",
            f"-artifact_prefix={grown}/",
            "-print_final_stats=1",
            str(grown),
        )
        told = printed.read_text(errors="replace")
        executed = _EXECUTED.search(told)
        if exit_code == 0 and executed:
            return Portion(int(executed[1]))
        lines = re.findall(r"^Finding: .*|Test unit written to .*", told, re.MULTILINE)
        return Portion(
            int(executed[1]) if executed else 0, "; ".join(lines)[:1_000] or told[-1_000:]
        )

    def keep(self, target: Target) -> int:
        """Add to the corpus of the repository the smallest inputs that reached new code (those that
        libFuzzer kept). How many inputs it has then."""
        known = kept_of(target)
        new = {path.read_bytes() for path in self._grown(target).iterdir()}
        new -= {*known, *target.seeds}
        small = sorted((data for data in new if len(data) <= KEPT_BYTES_MAX), key=len)
        kept = [*known, *small][:KEPT_MAX]
        lines = sorted(base64.b64encode(data).decode() for data in kept)
        CORPUS.mkdir(exist_ok=True)
        _file_of(target).write_text("".join(f"{line}\n" for line in lines))
        return len(kept)

    def _grown(self, target: Target) -> Path:
        path = self._folder / target.name
        path.mkdir(exist_ok=True)
        return path

    @cached_property
    def _guide(self) -> _Guide:
        return _Guide()

    def close(self) -> None:
        if "_guide" in vars(self):
            self._guide.close()


class _Guide:
    """The process that does targets under atheris. It ends with this one."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.fuzz.coverage_guided"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        )

    def fuzz(self, *line: str) -> int:
        """The exit code of libFuzzer. Raises OSError or ValueError if the process ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(msgspec.json.encode(line) + b"\n")
        stdin.flush()
        return int(stdout.readline())

    def close(self) -> None:
        with self._process:  # closes its pipes and waits
            pass


def _escaped(word: bytes) -> str:
    """As libFuzzer's dictionaries have it; they take words of up to 64 bytes."""
    return "".join(f"\\x{byte:02x}" for byte in word[:64])
