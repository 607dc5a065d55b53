"""How fast records become rows of a lake table, and what memory it takes.

    python -m benchmarks.tables [--records 1000000]

Each line is a process of its own, which reads stored batches (zstd) from a file and writes Parquet
files of 64 MiB, as the appliance's child does. Speed is by processor time; the batches are decoded
in it. The peak is that of the whole process, Python and pyarrow included.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.lake.columns import columns_of, suggest
from seb_appliance.lake.parquet import ParquetWriter

BATCH_RECORDS = 5_000
FILE_BYTES = 64 << 20
NOW_US = 1_790_000_000_000_000
SIX = (
    "id:string, time:timestamp, device:string, temperature:double=$.now.temperature, "
    "battery:long, ok:boolean"
)
PEAK_MIB = 260
dice = random.Random(7)


def reading() -> bytes:
    """About 200 bytes of JSON as machines send them: names that repeat, numbers that do not."""
    members = {
        "id": f"{dice.getrandbits(64):016x}",
        "time": f"2026-11-21T10:{dice.randrange(60):02}:07.{dice.randrange(10**6):06}Z",
        "device": f"thermo-{dice.randrange(500):04}",
        "now": {"temperature": round(dice.gauss(21, 3), 2), "humidity": dice.randrange(100)},
        "battery": dice.randrange(101),
        "firmware": f"2.14.{dice.randrange(9)}",
        "ok": dice.random() < 0.98,
        "trace": f"{dice.getrandbits(32):08x}",
    }
    return json.dumps(members).encode()


def other_types() -> bytes:
    return reading().replace(b'"battery": ', b'"battery": -0.5').replace(b'"ok": ', b'"ok": -1')


def large() -> bytes:
    """JSON of 1 MiB that zstd makes small."""
    return b'{"id":"%016x","filling":"%b"}' % (dice.getrandbits(64), b"x" * (1 << 20))


# name: how a value is made, how many in a batch, part of the records, columns, rows/s asked for
Case = tuple[Callable[[], bytes], int, float, str, int | None]
CASES: dict[str, Case] = {
    "raw": (reading, BATCH_RECORDS, 1, "", 250_000),
    "6 columns": (reading, BATCH_RECORDS, 1, SIX, 120_000),
    "6 columns and the rest": (reading, BATCH_RECORDS, 1, f"{SIX}, _rest", 80_000),
    "as suggested": (reading, BATCH_RECORDS, 1, "suggest", None),
    "6 columns, no row fits": (other_types, BATCH_RECORDS, 0.2, SIX, None),
    "raw, no value is UTF-8": (lambda: b"\xff" + reading(), BATCH_RECORDS, 0.2, "", None),
    "raw, batches of 60 MiB": (large, 60, 0.0006, "", None),
    "declared, batches of 60 MiB": (large, 60, 0.0006, "id:string, _rest", None),
}


def store(make: Callable[[], bytes], per_batch: int, records: int, path: Path) -> None:
    """Write batches to a file, each after its length."""
    with path.open("wb") as file:
        for base in range(0, records, per_batch):
            times = int64s(range(NOW_US + base, NOW_US + base + per_batch))
            columns = Columns(times, BinaryColumn.of([make() for _ in range(per_batch)]))
            body = batch.encode(columns, base_offset=base, created_us=NOW_US, zstd_level=1)
            file.write(len(body).to_bytes(8, "little") + body)


def stored(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(8):
            yield file.read(int.from_bytes(head, "little"))


def columns_text(text: str, path: Path) -> str:
    if text != "suggest":
        return text
    first = batch.decode(next(stored(path)))
    return suggest(first.columns.values.slice()).text


def convert(path: Path, text: str) -> None:
    """In a process of its own: what it took, as JSON on stdout."""
    columns = columns_of(text, [])
    lengths, records, bad, first, begun_s = [], 0, 0, 0, time.process_time()
    to = path.with_suffix(".parquet")
    writer = ParquetWriter(columns, 0, FILE_BYTES, to)
    for body in stored(path):
        decoded = batch.decode(body)
        writer.add(decoded, 0, 1 << 62)
        records = decoded.header.last_offset + 1
        del decoded  # before the next one is inflated
        if writer.is_full:
            file = writer.finish(first, records - 1, 0)
            lengths.append(file.length)
            bad += file.bad
            first = records
            writer = ParquetWriter(columns, 0, FILE_BYTES, to)
    if writer.records:
        file = writer.finish(first, records - 1, 0)
        lengths.append(file.length)
        bad += file.bad
    took_s = time.process_time() - begun_s
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = {"rate": records / took_s, "peak": peak_kib / 1024, "lengths": lengths, "bad": bad}
    print(json.dumps(told))


def measure(name: str, records: int, folder: Path) -> None:
    make, per_batch, part, text, asked = CASES[name]
    path = folder / "batches"
    store(make, per_batch, int(records * part), path)
    command = [sys.executable, "-m", "benchmarks.tables", "--convert", str(path)]
    command += ["--columns", columns_text(text, path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(finished.stdout)
    megabytes = sum(told["lengths"]) / 1e6
    wanted = f" (asked: {asked:,})" if asked else ""
    print(
        f"{name}: {told['rate']:,.0f} rows/s{wanted}, {told['peak']:.0f} MiB at most "
        f"(asked: {PEAK_MIB}), {megabytes:.1f} MB in {len(told['lengths'])} files, "
        f"{told['bad']:,} rows could not be read",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--convert", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--columns", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.convert:
        convert(asked.convert, asked.columns)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in [asked.case] if asked.case else CASES:
            measure(name, asked.records, Path(folder))


if __name__ == "__main__":
    main()
