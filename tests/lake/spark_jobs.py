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
from read import spark_session  # beside this file

COLUMNS = {
    "merge_newest": "key STRING, value STRING, total DOUBLE, offset LONG",
    "overwrite": "topic_id LONG, offset LONG, value STRING, headers MAP<STRING, BINARY>",
}
TOTAL = "CAST(get_json_object(CAST(value AS STRING), '$.total') AS DOUBLE) AS total"


class Steps:
    def __init__(self, asked: dict[str, Any]) -> None:
        catalog = {"type": "hadoop", "warehouse": asked["warehouse"]}
        self.spark = spark_session({"catalog": "none:", "s3": None, "token": "", "own": catalog})
        self.asked = asked
        self.held: list[targets.Pull] = []

    def _of(self, write: str) -> Any:
        given = ["--url", self.asked["url"], "--token-file", self.asked["token_file"]]
        given += ["--topic", self.asked["topic"], "--table", f"own.db.{write}", "--select", TOTAL]
        return targets.arguments(None).parse_args(given)

    def create(self, write: str) -> None:
        self.spark.sql(f"CREATE TABLE own.db.{write} ({COLUMNS[write]}) USING iceberg")

    def begin(self, write: str, at: int | None = None) -> list[int]:
        """A run looks at the table, and then waits."""
        self.held.append(targets.begin(self.spark, self._of(write), at))
        return [self.held[-1].begin, self.held[-1].end]

    def finish(self, write: str) -> int:
        """The run that looked last goes on: its exit code."""
        pull = self.held.pop()
        return targets.run(self.spark, self._of(write), pull, getattr(targets, write))

    def two(self, write: str) -> list[int]:
        """Two runs at once: their exit codes."""
        codes: list[int] = []
        barrier = Barrier(2)

        def one() -> None:
            pull = targets.begin(self.spark, self._of(write))
            barrier.wait(60)
            codes.append(targets.run(self.spark, self._of(write), pull, getattr(targets, write)))

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
