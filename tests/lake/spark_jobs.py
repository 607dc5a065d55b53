"""Jobs that keep somebody's own Iceberg table up with a topic, as a test asks. It runs in the
environment of spark.txt:

    python spark_jobs.py '{"url": URL, "token_file": PATH, "topic": NAME, "warehouse": FOLDER}'

Each line of stdin is a JSON list: a step and its arguments. It answers each with a line of JSON.
"""

from __future__ import annotations

import json
import sys
from threading import Barrier, Thread
from typing import Any

from pyspark_seb import targets
from pyspark_seb.errors import ConflictError
from pyspark_seb.jobs import to_table, upsert
from pyspark_seb.jobs.frame import Run
from read import spark_session  # beside this file

COLUMNS = {
    "upsert": "key STRING, value STRING, total DOUBLE, offset LONG",
    "to_table": "topic_id LONG, offset LONG, value STRING, headers MAP<STRING, BINARY>",
}
JOBS = {"to_table": to_table.JOB, "upsert": upsert.JOB}
WRITES = {"to_table": targets.overwrite, "upsert": targets.merge_newest}
TOTAL = "CAST(get_json_object(CAST(value AS STRING), '$.total') AS DOUBLE) AS total"


class Steps:
    def __init__(self, asked: dict[str, Any]) -> None:
        catalog = {"type": "hadoop", "warehouse": asked["warehouse"]}
        self.spark = spark_session({"catalog": "none:", "s3": None, "token": "", "own": catalog})
        self.asked = asked
        self.held: list[targets.Pull] = []

    def _of(self, write: str) -> Run:
        given = ["--url", self.asked["url"], "--token-file", self.asked["token_file"]]
        given += ["--topic", self.asked["topic"], "--table", f"own.db.{write}", "--select", TOTAL]
        return Run(JOBS[write].parser().parse_args(given), self.spark)

    def _bring(self, write: str, pull: targets.Pull) -> int:
        try:
            return targets.bring(self._of(write), pull, WRITES[write]).exit_code
        except ConflictError:
            return 3

    def create(self, write: str) -> None:
        self.spark.sql(f"CREATE TABLE own.db.{write} ({COLUMNS[write]}) USING iceberg")

    def begin(self, write: str, at: int | None = None) -> list[int]:
        """A run looks at the table, and then waits."""
        self.held.append(targets.begin(self._of(write), at))
        return [self.held[-1].begin, self.held[-1].end]

    def finish(self, write: str) -> int:
        """The run that looked last goes on: its exit code."""
        return self._bring(write, self.held.pop())

    def two(self, write: str) -> list[int]:
        """Two runs at once: their exit codes."""
        codes: list[int] = []
        barrier = Barrier(2)

        def one() -> None:
            pull = targets.begin(self._of(write))
            barrier.wait(60)
            codes.append(self._bring(write, pull))

        threads = [Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(codes)

    def rows(self, write: str, columns: list[str]) -> list[list[Any]]:
        found = self.spark.sql(f"SELECT * FROM own.db.{write}").select(*columns).collect()
        return sorted(map(list, found))

    def refs(self, write: str) -> list[str]:
        return [
            one.name for one in self.spark.sql(f"SELECT name FROM own.db.{write}.refs").collect()
        ]


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
