"""dpkg's log and dpkg's own table: reading both, and rebuilding the second from the first.

A line is "DATE TIME ACTION …" in local time. Lines with the action `status` say the state of one
package from then on; the others (startup, install, upgrade, configure, trigproc, remove, purge,
disappear, conffile) tell what is being done and change no state by themselves.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

NOT_INSTALLED = "not-installed"
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*:[a-z0-9-]+")


@dataclass(frozen=True)
class State:
    """`package` with its architecture, as in `curl:amd64`; `version` "" if it is not installed."""

    package: str
    status: str
    version: str


def log_lines(log: Path) -> Iterator[str]:
    """Every line of the log and of the older ones that logrotate kept, oldest first."""
    rotated = [path for path in log.parent.glob(f"{log.name}.*") if rotation(path) > 0]
    for path in [*sorted(rotated, key=rotation, reverse=True), log]:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        yield from text.decode(errors="backslashreplace").splitlines()


def rotation(path: Path) -> int:
    """3 for dpkg.log.3 and dpkg.log.3.gz; 0 for what logrotate did not make."""
    match = re.search(r"\.log\.(\d+)(\.gz)?$", path.name)
    return int(match[1]) if match else 0


def timestamp_of(line: str) -> str | None:
    """The line's own time in RFC 3339, UTC; None for a line that has none."""
    try:
        local = datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S")
        return local.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return None


def package_of(line: str) -> str | None:
    """The package (with its architecture) that a line is about; None for `startup` and the like."""
    words = line.split()[2:]
    at = 2 if words[:1] == ["status"] else 1
    name = words[at] if len(words) > at else ""
    return name if PACKAGE.fullmatch(name) else None


def state_of(line: str) -> State | None:
    """The state that a `status` line announces."""
    words = line.split()
    if len(words) != 6 or words[2] != "status" or not PACKAGE.fullmatch(words[4]):
        return None
    _, _, _, status, package, version = words
    return State(package, status, "" if status == NOT_INSTALLED else version)


def rebuild(lines: Iterable[str], architecture: str) -> dict[str, State]:
    """The last state of each package. `architecture` is the machine's own.

    A package can move between `all` and the machine's architecture with an upgrade; the log then
    simply goes on under the other name, so both are one place in the table.
    """
    table: dict[str, State] = {}
    for line in lines:
        state = state_of(line)
        if state is not None:
            table[place(state.package, architecture)] = state
    return table


def place(package: str, architecture: str) -> str:
    name, _, arch = package.partition(":")
    return f"{name}:{architecture if arch == 'all' else arch}"


def dpkg_table(output: str, architecture: str) -> dict[str, State]:
    """The table in the output of `dpkg-query -W` with `FORMAT`."""
    table = {}
    for line in output.splitlines():
        package, status, *version = line.split()
        table[place(package, architecture)] = State(package, status, " ".join(version))
    return table


FORMAT = "${Package}:${Architecture} ${db:Status-Status} ${Version}\n"


@dataclass(frozen=True)
class Comparison:
    """`differing` names packages for which the log and dpkg disagree; `older`: not in the log."""

    agreeing: int
    differing: list[str]
    older: int


def compare(rebuilt: dict[str, State], real: dict[str, State]) -> Comparison:
    """Every package that the log speaks of against dpkg's own word."""
    differing = []
    for name, ours in rebuilt.items():
        theirs = real.get(name, State(ours.package, NOT_INSTALLED, ""))
        both_gone = ours.status == theirs.status == NOT_INSTALLED
        if ours != theirs and not both_gone:
            differing.append(f"{name}: the log says {ours}, dpkg-query says {theirs}")
    older = sum(1 for n, s in real.items() if n not in rebuilt and s.status != NOT_INSTALLED)
    return Comparison(len(rebuilt) - len(differing), differing, older)
