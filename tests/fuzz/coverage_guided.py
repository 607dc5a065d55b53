"""Targets under atheris, in a process of their own (`python -m tests.fuzz.coverage_guided`).

A line of standard input is a JSON list: the name of a target, the file for what libFuzzer prints,
and the arguments of libFuzzer. Each is done in a fork, because the import of the instrumented
appliance takes 20 s; the answer is a line with the exit code (77: a finding, whose input is at
`-artifact_prefix`).
"""

from __future__ import annotations

import json
import os
import sys

import atheris

with atheris.instrument_imports(include=["seb_appliance"]):
    from tests.fuzz.registry import TARGETS


def main() -> None:
    for line in sys.stdin:
        name, printed, *arguments = json.loads(line)
        if (pid := os.fork()) == 0:
            file = os.open(printed, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(file, sys.stdout.fileno())
            os.dup2(file, sys.stderr.fileno())
            atheris.Setup([sys.argv[0], *arguments], TARGETS[name].execute)
            atheris.Fuzz()  # ends the process
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
