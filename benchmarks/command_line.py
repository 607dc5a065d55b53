"""How fast lines go through pipes: python -m benchmarks.command_line URL KEY_FILE [LINES]

Give the appliance a processor of its own (`taskset -c`). Lines are 200 bytes of hexadecimal digits,
which halve under zstd. What the pipes to `seb` and to `wc -l` cost is in the figures.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LINE_BYTES = 200
TOPIC = "benchmark.lines"


def processor_s() -> float:
    """Of all commands so far, with what is in their pipes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    url, key_file = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 500_000
    environment = {**os.environ, "SEB_URL": url, "SEB_KEY_FILE": key_file}
    randomness = random.Random(1)
    lines = [randomness.randbytes(LINE_BYTES // 2).hex() + "\n" for _ in range(1_000)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines"
        path.write_text("".join(lines[i % 1_000] for i in range(count)))
        seb = f"{sys.executable} -m seb_appliance"
        for command in (
            f"cat {path} | {seb} produce {TOPIC}",
            f"{seb} consume {TOPIC} | wc -l",
            f"{seb} consume {TOPIC} --json | wc -l",
            f"{seb} consume {TOPIC} --group {TOPIC} --commit | wc -l",
        ):
            begun_s, used_s = time.perf_counter(), processor_s()
            told = subprocess.run(
                command, shell=True, env=environment, check=True, stdout=subprocess.PIPE
            )
            took_s = time.perf_counter() - begun_s
            assert "wc" not in command or int(told.stdout) == count, (command, told.stdout)
            shown = command.replace(seb, "seb")
            used_s = processor_s() - used_s
            print(f"{shown}: {count / took_s:,.0f} lines/s, {used_s:.1f} s of processor time")
        subprocess.run(
            f"{seb} topics delete {TOPIC} --yes", shell=True, env=environment, check=True
        )


if __name__ == "__main__":
    main()
