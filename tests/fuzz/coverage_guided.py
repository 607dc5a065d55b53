"""One target under atheris, in a process of its own (`python -m tests.fuzz.coverage_guided`).

Arguments: the target's name, then those of libFuzzer. A finding ends the process with the exit code
of libFuzzer for one (77) and leaves the input at `-artifact_prefix`.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["seb_appliance"]):
    from tests.fuzz.registry import TARGETS


def main() -> None:
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target.execute)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
