"""Jepsen's workload for Kafka and Elle's checker for lists as judges: the programs themselves, in
a JVM.

`SEB_TEST_JEPSEN` is a class path with both and with what they need. Without it, or without Java,
these judges are not there, and `kafka_rules.py` has their rules alone.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from tests.proof.history import NEVER
from tests.proof.judges.transactions import Rows, Transaction, Value
from tests.support.servers.s3_server import NotInstalledError

T = TypeVar("T")

_PROGRAM: Final = Path(__file__).with_suffix(".clj")
_JUDGE_S: Final = 600
_LISTED_MAX: Final = 2_000_000
"""Values in all reads for Elle, which takes whole lists: of more, some reads are left out."""
_TYPES: Final = {"ok": ":ok", "refused": ":fail", "unknown": ":info"}


class Finding(NamedTuple):
    """`case`: one of them, as the checker prints it."""

    checker: str
    anomaly: str
    count: str
    case: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.count} {self.anomaly}, such as {self.case}"


class _Event(NamedTuple):
    at_s: float
    is_end: bool  # who ends at the moment at which another one begins is concurrent with it
    text: str


def rule(transactions: list[Transaction], compacted: set[str]) -> list[Finding]:
    """What both find in the logs that are not `compacted`. Raises NotInstalledError."""
    command = [*_java(), "clojure.main", str(_PROGRAM)]
    transactions, numbered = _each_with_its_own(transactions), _Numbered(compacted)
    text = f"[{_history(_as_logs(transactions, numbered))}]"
    text += f"[{_history(_as_lists(transactions, numbered))}]"
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_JUDGE_S)
    assert done.returncode == 0, done.stderr[-1000:]
    return [Finding(*line.split("\t", 3)) for line in done.stdout.splitlines()]


def _java() -> list[str]:
    class_path, java = os.environ.get("SEB_TEST_JEPSEN"), shutil.which("java")
    if not class_path:
        raise NotInstalledError("SEB_TEST_JEPSEN names no class path of Jepsen")
    if java is None:
        raise NotInstalledError("there is no Java here")
    return [java, "-cp", class_path]


def _each_with_its_own(transactions: list[Transaction]) -> list[Transaction]:
    """These judges take a value as sent once. A transaction that failed is begun anew with the
    same values: they are those of the transactions that were told that they took place, else of
    the last one that may have."""
    senders: dict[tuple[str, Value], list[Transaction]] = defaultdict(list)
    for one in transactions:
        for log, values in one.sends.items():
            for value in values:
                senders[log, value].append(one)

    def is_its_own(one: Transaction, log: str, value: Value) -> bool:
        rivals = senders[log, value]
        possible = [rival for rival in rivals if rival.outcome != "refused"] or rivals
        known = [rival for rival in possible if rival.outcome == "ok"] or possible[-1:]
        return len(rivals) == 1 or one in known

    return [
        replace(one, sends={
            log: [value for value in values if is_its_own(one, log, value)]
            for log, values in one.sends.items()
        })
        for one in transactions
    ]  # fmt: skip


class _Numbered:
    """Logs and their values as numbers, which is what the workload has."""

    def __init__(self, compacted: set[str]) -> None:
        self._compacted = compacted
        self._logs: dict[str, int] = {}
        self._values: dict[tuple[str, Value], int] = {}

    def log(self, log: str) -> int:
        return self._logs.setdefault(log, len(self._logs))

    def value(self, log: str, value: Value) -> int:
        return self._values.setdefault((log, value), len(self._values))

    def kept(self, by_log: dict[str, T]) -> Iterator[tuple[str, T]]:
        return ((log, one) for log, one in by_log.items() if log not in self._compacted)


Op = tuple[Transaction, str, str]
"""A transaction, what it asks for, and what it was told, as micro-operations."""


def _as_logs(transactions: list[Transaction], numbered: _Numbered) -> Iterator[Op]:
    """Sends and polls with offsets. An answer that was repeated is a poll of what it told."""
    for one in transactions:
        asked, told, again = [], [], []
        for log, values in numbered.kept(one.sends):
            offsets: dict[Value, list[int]] = defaultdict(list)
            for offset, value in one.told.get(log, []):
                if offset not in offsets[value]:
                    offsets[value].append(offset)
            for value in values:
                ours = f":send {numbered.log(log)}", numbered.value(log, value)
                asked.append(f"[{ours[0]} {ours[1]}]")
                told.append(f"[{ours[0]} [{next(iter(offsets[value]), 'nil')} {ours[1]}]]")
                again += [(log, [(offset, value)]) for offset in offsets[value][1:]]
        for log, rows in numbered.kept(one.polls):
            asked.append("[:poll]")
            told.append(_poll(log, rows, numbered))
        yield one, " ".join(asked), " ".join(told)
        for number, (log, rows) in enumerate(again):
            repeated = Transaction((f"repeated to {id(one)}", number), NEVER)
            yield repeated, "[:poll]", _poll(log, rows, numbered)


def _poll(log: str, rows: Rows, numbered: _Numbered) -> str:
    pairs = " ".join(f"[{offset} {numbered.value(log, value)}]" for offset, value in rows)
    return f"[:poll {{{numbered.log(log)} [{pairs}]}}]"


def _as_lists(transactions: list[Transaction], numbered: _Numbered) -> Iterator[Op]:
    """Appends, and reads of whole lists: whoever was told where a log ends has read it up to
    there. What he was not sent himself is taken from the last transaction, which polls all."""
    last = transactions[-1]
    listed = sum(end for one in transactions for _, end in numbered.kept(one.ends))
    every = -(-listed // _LISTED_MAX)
    for number, one in enumerate(transactions):
        asked, told = [], []
        for log, values in numbered.kept(one.sends):
            told += [
                f"[:append {numbered.log(log)} {numbered.value(log, value)}]" for value in values
            ]
        asked += told
        if every < 2 or number % every == 0 or one is last:
            for log, end in numbered.kept(one.ends):
                rows = dict(last.polls.get(log, [])) | dict(one.polls[log])
                before = sorted(offset for offset in rows if offset < end)
                read = " ".join(str(numbered.value(log, rows[offset])) for offset in before)
                asked.append(f"[:r {numbered.log(log)} nil]")
                told.append(f"[:r {numbered.log(log)} [{read}]]")
        if one.is_exact:
            yield one, " ".join(asked), " ".join(told)
        elif told:  # of any moment
            at_any = Transaction((f"at any time {number}", 0), -1.0)
            yield at_any, " ".join(asked), " ".join(told)


def _history(operations: Iterable[Op]) -> str:
    """Invocations and completions in the order of time. A process has one of them at a time: more
    of it beside one another are processes of their own, and so is what follows an outcome that is
    unknown."""
    events: list[_Event] = []
    ids = itertools.count()
    free: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for one, asked, told in operations:
        if not asked:
            continue
        lanes = free[one.process]
        lane = next((lane for lane in lanes if lane[0] < one.call_s), None)
        if lane is not None:
            lanes.remove(lane)
        process = next(ids) if lane is None else lane[1]
        if one.outcome != "unknown":
            lanes.append((one.back_s, process))
        head = f"{{:process {process} :f :txn"
        done = told if one.outcome == "ok" else asked
        events += [
            _Event(one.call_s, False, f"{head} :type :invoke :value [{asked}]"),
            _Event(one.back_s, True, f"{head} :type {_TYPES[one.outcome]} :value [{done}]"),
        ]
    events.sort(key=lambda event: (event.at_s, event.is_end))
    return "\n".join(f"{event.text} :time {i}}}" for i, event in enumerate(events))
