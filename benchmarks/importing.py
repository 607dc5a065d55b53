"""How fast a Go broker's bucket is imported from a local disk, in place and copied, and in how much
memory.

python benchmarks/importing.py [FILES [RECORDS_PER_FILE]]
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from seb_appliance.formats import batch_v1

FILES, RECORDS = 100_000, 100
LONG_AGO_S = 3600


def value(numbers: random.Random, n: int) -> bytes:
    """A sensor's JSON, about 100 bytes."""
    return json.dumps(
        {
            "device": f"sensor-{n % 17}",
            "temperature": round(numbers.uniform(-20, 40), 2),
            "humidity": numbers.randrange(100),
            "state": numbers.choice(("ok", "low battery", "offline")),
            "seq": n,
        }
    ).encode()


def make(folder: Path, files: int, records: int) -> int:
    """An old bucket of one topic; the bytes of its files."""
    numbers = random.Random(1)
    folder.mkdir(parents=True)
    size = 0
    then_s = time.time() - LONG_AGO_S
    for i in range(files):
        values = [value(numbers, i * records + n) for n in range(records)]
        created_us = int(then_s * 1e6) - (files - i) * 1_000
        body = batch_v1.compress(batch_v1.encode(values, created_us))
        path = folder / f"{i * records:012d}.record_batch"
        path.write_bytes(body)
        os.utime(path, (then_s, then_s))
        size += len(body)
    return size


def run(*arguments: str) -> tuple[float, float, float]:
    """Seconds that it said, processor seconds of the process, its largest memory in MB."""
    with subprocess.Popen(
        [sys.executable, "-m", "seb_appliance", "import", "--json", *arguments],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        told = json.load(process.stdout)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return told["seconds"], usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else FILES
    records = int(sys.argv[2]) if len(sys.argv) > 2 else RECORDS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = make(folder / "old" / "sensors", files, records)
        print(f"{files:,} files of {records} records, {size / 1e6:,.0f} MB")
        old = f"--from={folder / 'old'}"
        for what, bucket, more in (
            ("checked", "none", ["--dry-run"]),
            ("copied", "own", ["--copy"]),
            ("in place", "old", []),
        ):
            own = [f"--bucket=file:{folder / bucket}", f"--data={folder / what}"]
            said_s, cpu_s, memory_mb = run(old, *own, *more)
            print(
                f"{what:9} {files / said_s:8,.0f} files/s ({said_s:.1f} s, of the "
                f"processor {cpu_s:.1f} s), at most {memory_mb:.0f} MB"
            )
    print(
        f"load: {os.getloadavg()[0]:.1f}; this process: "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
    )


if __name__ == "__main__":
    main()
