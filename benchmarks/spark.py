"""What reads, writes and streams of a local Spark cost: time, processor time, memory, latency.

    PYTHONPATH=.:spark python benchmarks/spark.py [--records 1000000] [--runs 5] [--json]

Starts an appliance on a small S3 server and a Spark with local[2], on this machine. Ways to do
the same take turns, so that their ratios hold on a machine that is busy otherwise: Parquet is what
the rows cost Spark alone. Each figure is the median of the runs after a warm one. Processor time is
that of driver and JVM, Python workers and appliance together; the S3 server is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark_seb import narrowed
from pyspark_seb.client import Appliance
from pyspark_seb.jobs.frame import ROWS_AT_ONCE

from seb_appliance import limits
from tests.support.process import Bucket, SebProcess
from tests.support.process_tree import Spent, cpu_s, descendants, peak_pss

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.s3_server import STORE, s3_server  # noqa: E402 - as a script, from any directory

VALUE_BYTES = 100
LAST_ROWS = 10
WAIT_S = 600.0
GB = 1_000_000_000
LINGER_MS = 10
LOADERS = 50
ALONE_S = 30.0
ROWS_A_SECOND = 1_000
PRODUCERS = 20
STREAM_S = 30.0
WARM_S = 10.0

Work = Callable[[], object]


@dataclass
class Bench:
    """`used`: seconds of processor time by part, up to now."""

    spark: SparkSession
    seb: SebProcess
    folder: Path
    count: int
    runs: int
    as_json: bool
    heap: str

    def __post_init__(self) -> None:
        url = f"http://127.0.0.1:{self.seb.port}"
        self.base = {"url": url, "tokenFile": str(self.seb.data / "admin.key")}
        self.jvm = next(filter(_is_java, descendants(os.getpid())))
        self._workers = Spent(self.jvm)

    def appliance(self) -> closing[Appliance]:
        return closing(Appliance(self.base["url"], self.base["tokenFile"]))

    def begin_session(self) -> None:
        """A new one, without the Python processes that Spark kept for the work of the last one."""
        self.spark.stop()
        self.spark = session(self.folder, self.heap)

    def used(self) -> dict[str, float]:
        driver_s = cpu_s(self.jvm) + cpu_s(os.getpid())
        appliance_s = cpu_s(self.seb.process.pid)
        return {"driver": driver_s, "workers": self._workers.now_s(), "appliance": appliance_s}

    def read(self, **options: str) -> DataFrame:
        given = {**self.base, "topics": "rows", **options}
        return self.spark.read.format("seb").options(**given).load()

    def write(self, topic: str, frame: DataFrame) -> None:
        frame.write.format("seb").mode("append").options(**self.base, topic=topic).save()

    def say(self, work: str, value: float, unit: str, **more: Any) -> None:
        """One line of the table."""
        if self.as_json:
            print(json.dumps({"work": work, "value": value, "unit": unit, **more}), flush=True)
            return
        beside = "; ".join(
            f"{name.replace('_', ' ')} {text if isinstance(text, str) else f'{text:,.2f}'}"
            for name, text in more.items()
        )
        shown = f"{value:,.0f}" if value >= 1_000 else f"{value:,.3f}"
        print(f"{work:40} {shown:>12} {unit:8} {beside}", flush=True)


def _is_java(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"java")


def session(folder: Path, heap: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "spark")])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.memory", heap)
    builder = builder.config("spark.python.authenticate.socketTimeout", "2m")  # on a busy machine
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


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def taking_turns(bench: Bench, count: int, works: dict[str, Work], unit: str) -> None:
    """Each in turn; the last one is what the others are compared with, round by round. `unit`:
    rows/s or s."""
    took: dict[str, list[float]] = {name: [] for name in works}
    used: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for turn in range(bench.runs + 1):
        for name, work in works.items():
            before, begin_s = bench.used(), time.perf_counter()
            work()
            spent_s = time.perf_counter() - begin_s
            if turn:  # the first is a warm run
                took[name].append(spent_s)
                now = bench.used()
                used[name].append({part: now[part] - before[part] for part in now})
    last = next(reversed(works))
    for name, found in took.items():
        shown = [count / one for one in found] if unit == "rows/s" else found
        parts = {part: statistics.median(one[part] for one in used[name]) for part in used[name][0]}
        bench.say(
            name,
            statistics.median(shown),
            unit,
            slowest_to_fastest=f"{min(shown):,.2f} to {max(shown):,.2f}",
            time_of_the_last=_ratio(took[last], found),
            cpu_of_the_last=_ratio(_sums(used[last]), _sums(used[name])),
            cpu_s=", ".join(f"{part} {spent:.2f}" for part, spent in parts.items()),
        )


def _sums(used: list[dict[str, float]]) -> list[float]:
    return [sum(one.values()) for one in used]


def _ratio(last: list[float], ours: list[float]) -> float:
    """Of speeds: the last one's time by ours, the median of the rounds."""
    return statistics.median(a / max(b, 0.01) for a, b in zip(last, ours, strict=True))


def writes(bench: Bench) -> None:
    """Of rows that are made meanwhile, by hashing, and of the same rows as Parquet; at last of one
    row, with the window that topics have on S3, and with a short one."""
    names = itertools.count()

    def write(frame: DataFrame, linger_ms: int | None = LINGER_MS) -> None:
        name = f"written-{next(names)}"
        with bench.appliance() as appliance:
            appliance.send("PUT", f"/v1/topics/{name}", {"linger_ms": linger_ms})
        bench.write(name, frame)

    made, lake = rows(bench.spark, bench.count), str(bench.folder / "made.parquet")
    made.write.parquet(lake)
    stored = bench.spark.read.parquet(lake)
    works = {
        "write, made rows": lambda: write(made),
        "made rows to noop": lambda: noop(made),
        "write, rows of Parquet": lambda: write(stored),
        "rows of Parquet to noop": lambda: noop(stored),
    }
    taking_turns(bench, bench.count, works, "rows/s")
    one = rows(bench.spark, 1)
    works = {"write, 1 row": lambda: write(one, None), "write, 1 row, short": lambda: write(one)}
    taking_turns(bench, 1, works, "s")


def reads(bench: Bench) -> None:
    """And the memory of each way, in a session of its own."""
    lake = str(bench.folder / "rows.parquet")
    bench.read().write.parquet(lake)
    share = wait_for_segments(bench)
    handed_out = records_handed_out(bench.seb)
    noop(bench.read(transport="direct"))
    through = (records_handed_out(bench.seb) - handed_out) / bench.count
    works = {
        "read, api": lambda: noop(bench.read(transport="api")),
        "read, direct": lambda: noop(bench.read(transport="direct")),
        "read, Parquet": lambda: noop(bench.spark.read.parquet(lake)),
    }
    taking_turns(bench, bench.count, works, "rows/s")
    bench.say("in segments before the direct reads", share, "of all")
    bench.say("through the appliance, direct", through, "of all")
    groups = {
        "driver": lambda: [os.getpid()],
        "JVM": lambda: [bench.jvm],
        "workers": lambda: descendants(bench.jvm),
    }
    for name, work in works.items():
        bench.begin_session()
        work()
        with peak_pss(groups) as peak:
            work()
        parts = {part: found / 2**20 for part, found in peak.items()}
        bench.say(f"memory (PSS), {name}", sum(parts.values()), "MiB", **parts)


def last_rows(bench: Bench) -> None:
    loaded, begin = bench.read(), bench.count - LAST_ROWS
    works = {
        "last 10, where": lambda: noop(loaded.where(sql.col("offset") >= begin)),
        "last 10, narrowed": lambda: noop(
            narrowed(loaded, {**bench.base, "topics": "rows"}, from_offset=begin)
        ),
        "last 10, loaded there": lambda: noop(bench.read(startingOffsets=str(begin))),
        "a Spark job of 10 rows": lambda: noop(bench.spark.range(0, LAST_ROWS, 1, 1).toDF("id")),
    }
    taking_turns(bench, LAST_ROWS, works, "s")


def latency(bench: Bench) -> None:
    """From before a record is sent until `foreachBatch` has it, at ROWS_A_SECOND, with a window of
    LINGER_MS. The first WARM_S are not counted."""
    with bench.appliance() as appliance:
        appliance.send("PUT", "/v1/topics/live", {"linger_ms": LINGER_MS})
    found: list[float] = []
    begin_s = time.time() + WARM_S

    def take(frame: DataFrame, _: int) -> None:
        sent = [
            int(row[0]) / 1e9 for row in frame.select(sql.col("value").cast("string")).collect()
        ]
        now_s = time.time()
        found.extend(now_s - one for one in sent if one > begin_s)

    options = {**bench.base, "topics": "live", "group": "live", "startingOffsets": "latest"}
    stream = bench.spark.readStream.format("seb").options(**options).load().writeStream
    query = stream.foreachBatch(take).option("checkpointLocation", f"{bench.folder}/live").start()

    def produce(over: threading.Event) -> None:
        with bench.appliance() as to:
            while not over.is_set():
                due_s = time.monotonic() + 0.1
                some = [{"value": str(time.time_ns())}] * (ROWS_A_SECOND // PRODUCERS // 10)
                to.send("POST", "/v1/topics/live/records", {"records": some})
                time.sleep(max(0.0, due_s - time.monotonic()))

    with threads(produce, PRODUCERS):
        query.awaitTermination(int(WARM_S + STREAM_S))
    query.stop()
    cuts = statistics.quantiles(found, n=1000)
    rate = len(found) / STREAM_S
    bench.say("produce to foreachBatch, p50", cuts[499], "s", records_a_second=rate)
    bench.say("produce to foreachBatch, p99", cuts[989], "s", longest_s=max(found))


def beside_producers(bench: Bench) -> None:
    def append(over: threading.Event) -> None:
        with bench.appliance() as to:
            records = {"records": [{"value": "x" * VALUE_BYTES}] * 100}
            while not over.is_set():
                to.send("POST", "/v1/topics/load/records", records)

    def cpu_share(work: Work) -> float:
        """Of one core, while `work` runs."""
        before_s, begin_s = cpu_s(bench.seb.process.pid), time.perf_counter()
        work()
        return (cpu_s(bench.seb.process.pid) - before_s) / (time.perf_counter() - begin_s)

    times = max(1, GB // (bench.count * VALUE_BYTES))
    with threads(append, LOADERS):
        alone = cpu_share(lambda: time.sleep(ALONE_S))
        beside = cpu_share(lambda: [noop(bench.read(transport="direct")) for _ in range(times)])
    bench.say(f"appliance's CPU, {LOADERS} producers", alone, "of a core")
    bench.say("and direct reads of 1 GB", beside, "of a core", times_that=beside / alone)


@contextmanager
def threads(work: Callable[[threading.Event], None], count: int) -> Iterator[None]:
    """`count` threads that do `work` until the block ends."""
    over = threading.Event()
    started = [threading.Thread(target=work, args=(over,)) for _ in range(count)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in started:
            thread.join()


def records_handed_out(seb: SebProcess) -> int:
    """By the appliance itself, since its start."""
    url = f"http://127.0.0.1:{seb.port}/metrics"
    with urllib.request.urlopen(url) as answer:
        found = re.search(rb"^seb_read_records_total (\S+)$", answer.read(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def wait_for_segments(bench: Bench) -> float:
    """Wait until the tidier rests; the share of the topic that is in segments."""
    until_s, before = time.monotonic() + WAIT_S, -1
    with bench.appliance() as appliance:
        while time.monotonic() < until_s:
            found = appliance.get("/v1/topics/rows/manifest", offset="latest").json()
            if found["segments_end_offset"] in (before, found["log_end_offset"]):
                return float(found["segments_end_offset"] / found["log_end_offset"])
            before = found["segments_end_offset"]
            time.sleep(15)
    raise SystemExit("the tidier does not come to an end")


PARTS: dict[str, Callable[[Bench], None]] = {
    "reads": reads,
    "last": last_rows,
    "latency": latency,
    "writes": writes,
    "beside": beside_producers,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--heap", default="1g", help="of the JVM")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, s3_server() as variables:
        bucket = Bucket(STORE, {**variables, "SEB_S3_IMMEDIATE_LIST": "on"})
        flags = ["--tidy-young", "0ms", "--tidy-bytes", "1MiB"]
        seb = SebProcess(bucket, Path(name) / "seb" / "local", flags)
        try:
            asyncio.run(seb.ready(within_s=WAIT_S))
            spark = session(Path(name), asked.heap)
            bench = Bench(spark, seb, Path(name), asked.records, asked.runs, asked.json, asked.heap)
            bench.write("rows", rows(spark, asked.records))
            for part in asked.only:
                PARTS[part](bench)
            bench.spark.stop()
        finally:
            seb.kill()


if __name__ == "__main__":
    main()
