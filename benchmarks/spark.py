"""Rows a second in a local Spark: reads by the API, from the bucket and of Parquet, and writes.

    PYTHONPATH=.:spark .venv/bin/python benchmarks/spark.py --records 5000000

Starts an appliance on an S3 server (moto) and a Spark with local[2] beside it, on this machine.
Each figure is the median of the runs after a warm one. The ways to read take turns, so that their
ratios hold on a machine that is busy otherwise; Parquet is what the rows cost Spark alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark_seb.client import Appliance
from pyspark_seb.jobs.frame import ROWS_AT_ONCE

from seb_appliance import limits
from tests.support.process import Bucket, SebProcess
from tests.support.servers.moto import running_moto

ROOT = Path(__file__).parents[1]
VALUE_BYTES = 100
WAIT_S = 600.0
GB = 1_000_000_000
LOADERS = 50
ALONE_S = 30.0


def session(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "spark")])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.memory", "1g")
    builder = builder.config("spark.local.dir", str(folder))
    builder = builder.config(ROWS_AT_ONCE, limits.RECORDS_IN_BATCHES_MAX)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def rows(spark: SparkSession, count: int) -> DataFrame:
    """Values of 100 bytes, most of them noise in hexadecimal."""
    noise = sql.concat(sql.sha2(sql.col("id").cast("string"), 256), sql.lit("-" * 36))
    value = sql.rpad(noise, VALUE_BYTES, "-")
    return spark.range(0, count, 1, 2).select(
        sql.col("id").cast("string").alias("key"), value.alias("value")
    )


def measured(runs: int, count: int, work: Callable[[], None]) -> str:
    """A warm run, then the median of `runs`; and the slowest and the fastest."""
    work()
    speeds = []
    for _ in range(runs):
        begin_s = time.perf_counter()
        work()
        speeds.append(count / (time.perf_counter() - begin_s))
    low, high = min(speeds), max(speeds)
    return f"{statistics.median(speeds):12,.0f} rows/s   ({low:,.0f} to {high:,.0f})"


def taking_turns(runs: int, count: int, works: dict[str, Callable[[], None]]) -> None:
    """Print the speed of each, and its ratio to that of the last one in the same round."""
    speeds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(runs + 1):
        for name, work in works.items():
            begin_s = time.perf_counter()
            work()
            if turn:  # the first is a warm run
                speeds[name].append(count / (time.perf_counter() - begin_s))
    last = speeds[next(reversed(speeds))]
    for name, found in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(found, last, strict=True))
        print(
            f"{name:16}{statistics.median(found):12,.0f} rows/s   "
            f"({min(found):,.0f} to {max(found):,.0f}), {ratio:.2f} of Parquet",
            flush=True,
        )


@contextmanager
def load(seb: SebProcess) -> Iterator[None]:
    """What an appliance has to do anyway: LOADERS producers that append again and again."""
    over = threading.Event()

    def append() -> None:
        with closing(Appliance(f"http://127.0.0.1:{seb.port}", str(seb.data / "admin.key"))) as to:
            records = {"records": [{"value": "x" * VALUE_BYTES}] * 100}
            while not over.is_set():
                to.send("POST", "/v1/topics/load/records", records)

    threads = [threading.Thread(target=append) for _ in range(LOADERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def cpu_share(seb: SebProcess, work: Callable[[], object]) -> float:
    """Of one core, while `work` runs."""
    before_s, begin_s = cpu_s(seb.process.pid), time.perf_counter()
    work()
    return (cpu_s(seb.process.pid) - before_s) / (time.perf_counter() - begin_s)


def records_handed_out(seb: SebProcess) -> int:
    """By the appliance itself, since its start."""
    url = f"http://127.0.0.1:{seb.port}/metrics"
    with urllib.request.urlopen(url) as answer:
        found = re.search(rb"^seb_read_records_total (\S+)$", answer.read(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def cpu_s(pid: int) -> float:
    """Processor time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_segments(appliance: Appliance, topic: str) -> float:
    """Wait until the tidier rests; the share of the topic that is in segments."""
    until_s, before = time.monotonic() + WAIT_S, -1
    while time.monotonic() < until_s:
        found = appliance.get(f"/v1/topics/{topic}/manifest", offset="latest").json()
        if found["segments_end_offset"] in (before, found["log_end_offset"]):
            return float(found["segments_end_offset"] / found["log_end_offset"])
        before = found["segments_end_offset"]
        time.sleep(15)
    raise SystemExit("the tidier does not come to an end")


def run(spark: SparkSession, seb: SebProcess, folder: Path, count: int, runs: int) -> None:
    base = {"url": f"http://127.0.0.1:{seb.port}", "tokenFile": str(seb.data / "admin.key")}
    appliance = Appliance(base["url"], base["tokenFile"])

    def write(topic: str, number: int) -> None:
        frame = rows(spark, number)
        frame.write.format("seb").mode("append").options(**base, topic=topic).save()

    def read(transport: str) -> None:
        options = {**base, "topics": "rows", "transport": transport}
        frame = spark.read.format("seb").options(**options).load()
        frame.write.format("noop").mode("overwrite").save()

    sample = max(1, count // 5)
    print(f"write           {measured(runs, sample, lambda: write('written', sample))}", flush=True)
    write("rows", count)
    lake = str(folder / "rows.parquet")
    spark.read.format("seb").options(**base, topics="rows").load().write.parquet(lake)

    def read_parquet() -> None:
        spark.read.parquet(lake).write.format("noop").mode("overwrite").save()

    share = wait_for_segments(appliance, "rows")
    handed_out = records_handed_out(seb)
    read("direct")
    through = (records_handed_out(seb) - handed_out) / count
    works = {
        "read, api": lambda: read("api"),
        "read, direct": lambda: read("direct"),
        "read, Parquet": read_parquet,
    }
    taking_turns(runs, count, works)
    print(f"in segments     {share:12.1%}   when the direct reads began")
    print(f"through it      {through:12.2%}   of the records, in the direct reads")
    reads = max(1, GB // (count * VALUE_BYTES))
    with load(seb):
        alone = cpu_share(seb, lambda: time.sleep(ALONE_S))
        beside = cpu_share(seb, lambda: [read("direct") for _ in range(reads)])
    print(f"appliance's CPU {alone:12.1%}   of a core for {LOADERS} producers")
    print(f"… with Spark    {beside:12.1%}   while {reads} direct reads take about 1 GB")
    appliance.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, running_moto(Path(name) / "moto") as moto:
        bucket = Bucket.s3(moto.new_bucket(), moto.port)
        flags = ["--tidy-young", "0ms", "--tidy-bytes", "1MiB"]
        seb = SebProcess(bucket, Path(name) / "seb" / "local", flags)
        try:
            asyncio.run(seb.ready(within_s=WAIT_S))
            os.nice(19)  # Spark; the appliance and its bucket run as they would alone
            spark = session(Path(name))
            run(spark, seb, Path(name), asked.records, asked.runs)
            spark.stop()
        finally:
            seb.kill()


if __name__ == "__main__":
    main()
