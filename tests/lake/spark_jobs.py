"""Jobs that keep somebody's own table up with a topic, as a test asks. It runs in the environment
of spark.txt:

    python spark_jobs.py '{"url": URL, "token_file": PATH, "topic": NAME, "warehouse": FOLDER,
                           "format": "iceberg" or "delta"}'

Each line of stdin is a JSON list: a step and its arguments. It answers each with a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

from pyspark_seb.errors import ConflictError
from pyspark_seb.jobs import to_table, upsert
from pyspark_seb.jobs.frame import Result, Run
from pyspark_seb.jobs.steps import keeping
from pyspark_seb.jobs.steps.targets import Pull, Target
from read import spark_session  # beside this file

COLUMNS = {
    "upsert": "key STRING, value STRING, total DOUBLE, offset LONG",
    "to_table": "topic_id LONG, offset LONG, value STRING, headers MAP<STRING, BINARY>",
}
JOBS = {"to_table": to_table.JOB, "upsert": upsert.JOB}
WRITES = {
    "to_table": lambda to, pull: to.overwrite(pull),
    "upsert": lambda to, pull: to.merge_newest(pull),
}
TOTAL = "CAST(get_json_object(CAST(value AS STRING), '$.total') AS DOUBLE) AS total"


class Steps:
    def __init__(self, asked: dict[str, Any]) -> None:
        catalog = {"type": "hadoop", "warehouse": asked["warehouse"]}
        self.spark = spark_session({"catalog": "none:", "s3": None, "token": "", "own": catalog})
        self.asked = asked
        self.more: tuple[str, ...] = ()
        self.held: list[tuple[Target, Pull]] = []

    def _begin(self, write: str, at: int | None = None) -> tuple[Target, Pull]:
        run = Run(JOBS[write].parser().parse_args(self._given(write)), self.spark)
        target = keeping.target_of(run)
        return target, keeping.begin(target, at)

    def _given(self, write: str) -> list[str]:
        given = ["--url", self.asked["url"], "--token-file", self.asked["token_file"]]
        given += ["--topic", self.asked["topic"], "--table", self.table(write), "--select", TOTAL]
        return [*given, *self.more]

    def _bring(self, write: str, target: Target, pull: Pull) -> int:
        try:
            return keeping.bring(target, pull, WRITES[write]).exit_code
        except ConflictError:
            return 3

    def table(self, write: str) -> str:
        if self.asked["format"] == "iceberg":
            return f"own.db.{write}"
        return f"delta.`{self.asked['warehouse']}/{write}`"

    def create(self, write: str) -> None:
        columns = COLUMNS[write]
        self.spark.sql(f"CREATE TABLE {self.table(write)} ({columns}) USING {self.asked['format']}")

    def given(self, *more: str) -> None:
        """Arguments of the jobs from now on."""
        self.more = more

    def begin(self, write: str, at: int | None = None) -> list[int]:
        """A run looks at the table, and then waits."""
        self.held.append(self._begin(write, at))
        _, pull = self.held[-1]
        return [pull.begin, pull.end]

    def finish(self, write: str) -> int:
        """The run that looked last goes on: its exit code."""
        return self._bring(write, *self.held.pop())

    def killed(self, write: str, before: int | None) -> int:
        """Run the job; this driver with its JVM is killed before the step of that number, the last
        of which is after the commit, or when there is a new data file. The exit code if neither
        comes."""
        left = before

        def step(line: str) -> None:
            nonlocal left
            if left is None or line.startswith("Spark: "):  # progress that comes out of turn
                return
            if left == 0:
                os.killpg(0, signal.SIGKILL)
            left -= 1

        def result(*given: Any) -> Result:
            step("committed")
            return Result(*given)

        def watch() -> None:
            data = Path(self.asked["warehouse"])
            known = set(data.rglob("*.parquet"))
            while set(data.rglob("*.parquet")) <= known:
                pass
            os.killpg(0, signal.SIGKILL)

        if before is None:
            Thread(target=watch, daemon=True).start()
        keeping.Result = result  # type: ignore[misc]
        return JOBS[write].main(self._given(write), self.spark, step)

    def two(self, write: str) -> list[int]:
        """Two runs at once: their exit codes."""
        codes: list[int] = []
        barrier = Barrier(2)

        def one() -> None:
            looked = self._begin(write)
            barrier.wait(60)
            codes.append(self._bring(write, *looked))

        threads = [Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(codes)

    def rows(self, write: str, columns: list[str]) -> list[list[Any]]:
        self.spark.sql(f"REFRESH TABLE {self.table(write)}")  # another process may have written
        return sorted(map(list, self.spark.table(self.table(write)).select(*columns).collect()))

    def refs(self, write: str) -> list[str]:
        found = self.spark.sql(f"SELECT name FROM {self.table(write)}.refs").collect()
        return [one.name for one in found]

    def roll_back(self, write: str) -> None:
        """An Iceberg table, to what it was before its newest commit."""
        own = self.table(write)
        snapshots = self.spark.sql(f"SELECT * FROM {own}.snapshots ORDER BY committed_at DESC")
        before = snapshots.collect()[1].snapshot_id
        self.spark.sql(f"CALL own.system.rollback_to_snapshot('{own}', {before})")

    def forget(self, write: str) -> None:
        """The history of a Delta table before a checkpoint, as Delta does after 30 days."""
        table, interval = self.table(write), "'delta.checkpointInterval' = '1'"
        self.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({interval})")
        log = Path(self.asked["warehouse"], write, "_delta_log")
        (checkpoint,) = log.glob("*.checkpoint.parquet")
        for path in log.glob("*.json"):
            if path.name < checkpoint.name.partition(".")[0]:
                path.unlink()


def main() -> None:
    steps = Steps(json.loads(sys.argv[1]))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = getattr(steps, name)(*arguments)
        except Exception as error:
            answer = f"{type(error).__name__}: {str(error)[:500]}"
        print(f"answer {json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main()
