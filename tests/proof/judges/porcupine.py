"""Porcupine as a judge: whether the operations of each register of a history can be ordered.

The program in `porcupine/` is built once, below .state. Where there is no Go, or its module cannot
be had, this judge is not there.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Final

import msgspec

from tests.proof.check_records import Evidence
from tests.proof.judges.registers import Register, registers_of
from tests.proof.results import ROOT
from tests.support.servers.s3_server import NotInstalledError

SOURCES: Final = Path(__file__).parent / "porcupine"
_PROGRAM: Final = ROOT / ".state" / "judges" / "porcupine"
_OPERATIONS_MAX: Final = 80_000
"""Of a register: Porcupine remembers for each operation which others it has ordered, a bit each
(0.8 GB here)."""
_BUILDING: Final = threading.Lock()  # histories are judged beside one another
_BUILD_S: Final = 180
_JUDGE_S: Final = 300


class Finding(msgspec.Struct):
    """`ordered`: so many of the `operations` of the register can be ordered, at most; `stuck`: the
    first one that then fits nowhere."""

    name: str
    operations: int
    ordered: int = 0
    stuck: str = ""

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.ordered} of {self.operations} operations can be ordered, "
            f"and then not {self.stuck}"
        )


class Ruling(msgspec.Struct):
    """`illegal`: the smallest register first. `undecided`: the time did not suffice."""

    registers: int
    operations: int
    illegal: list[Finding]
    undecided: list[Finding]


def program() -> Path:
    """The built program. Raises NotInstalledError."""
    with _BUILDING:
        return _built()


@functools.cache
def _built() -> Path:
    go = shutil.which("go")
    if go is None:
        raise NotInstalledError("there is no Go here")
    command = [go, "build", "-o", str(_PROGRAM), "."]
    try:
        subprocess.run(command, cwd=SOURCES, check=True, capture_output=True, timeout=_BUILD_S)
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", None) or b""
        text = f"Porcupine cannot be built: {error} {said.decode(errors='replace')}"
        raise NotInstalledError(text[:500]) from error
    return _PROGRAM


def rule(evidence: Evidence) -> Ruling:
    """On all registers of a history that are not too long. Raises NotInstalledError."""
    registers = list(registers_of(evidence))
    long = [one for one in registers if len(one.operations) > _OPERATIONS_MAX]
    ruling = rule_on([one for one in registers if one not in long])
    ruling.undecided += [Finding(one.name, len(one.operations)) for one in long]
    return ruling


def rule_on(registers: list[Register]) -> Ruling:
    """Raises NotInstalledError."""
    done = subprocess.run(
        [program()], input=msgspec.json.encode(registers), check=True, capture_output=True,
        timeout=_JUDGE_S,
    )  # fmt: skip
    return msgspec.json.decode(done.stdout, type=Ruling)
