"""Somebody's own Delta table. The metadata of its commits tells how far it is.

A commit is also a transaction of the application `seb-topic-ID`, whose version is the next offset.
Delta leaves out a transaction whose version it has seen, so a late run changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from pyspark.sql import functions as sql

from pyspark_seb.jobs.steps.targets import (
    LAST_ENTRY,
    NEXT_OFFSET,
    TOPIC_ID,
    Progress,
    Pull,
    Target,
)

# Delta keeps the history in a file for each version: most runs need only the newest ones.
_FEW: Final = 20
_PREFIX: Final = "spark.databricks.delta."
# Of a MERGE, which has no options.
_OF_SESSION: Final = {
    "txnAppId": f"{_PREFIX}write.txnAppId",
    "txnVersion": f"{_PREFIX}write.txnVersion",
    "userMetadata": f"{_PREFIX}commitInfo.userMetadata",
}
_SKIPS_EMPTY: Final = f"{_PREFIX}skipRecordingEmptyCommits"


class Delta(Target):
    def progress(self, topic_id: int) -> Progress:
        version = 0
        for limit in (f"LIMIT {_FEW}", ""):
            found = self.spark.sql(f"DESCRIBE HISTORY {self.table} {limit}")
            rows = found.select("version", "userMetadata").collect()
            rows.sort(key=lambda row: -row.version)
            version = rows[0].version
            for row in rows:
                with suppress(ValueError, TypeError, KeyError):  # somebody else's
                    told = json.loads(row.userMetadata)
                    if told[TOPIC_ID] == topic_id:
                        return Progress(version, told[NEXT_OFFSET], told.get(LAST_ENTRY))
        return Progress(version, None)

    def overwrite(self, pull: Pull) -> None:
        mine = (sql.col("topic_id") == pull.log.topic_id) & (sql.col("offset") >= pull.begin)
        options = _options(pull)
        known = pull.progress.next_offset or 0
        if pull.end <= known:  # written anew, below what Delta has seen: no transaction of ours
            options = {"userMetadata": json.dumps(pull.told(known))}
            mine &= sql.col("offset") < pull.end
        self.rows(pull).writeTo(self.table).options(**options).overwrite(mine)
        self._mark(pull)

    def merge_newest(self, pull: Pull) -> None:
        options = _options(pull)
        with self._set({_OF_SESSION[name]: value for name, value in options.items()}):
            self._merge(pull, self.table)
        self._mark(pull)

    def _mark(self, pull: Pull) -> None:
        """Where the history is lost, runs begin at the log start, and Delta leaves out what it has
        seen: then only this tells the next run to go on."""
        if (self.progress(pull.log.topic_id).next_offset or 0) < pull.end:
            nothing = self.spark.table(self.table).limit(0).writeTo(self.table)
            with self._set({_SKIPS_EMPTY: "false"}):
                nothing.option("userMetadata", json.dumps(pull.told(pull.end))).append()

    @contextmanager
    def _set(self, settings: dict[str, str]) -> Iterator[None]:
        """Settings of the session, meanwhile."""
        conf = self.spark.conf
        before = {name: conf.get(name, None) for name in settings}
        for name, value in settings.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name, former in before.items():
                if former is None:
                    conf.unset(name)
                else:
                    conf.set(name, former)


def _options(pull: Pull) -> dict[str, str]:
    return {
        "txnAppId": f"seb-topic-{pull.log.topic_id}",
        "txnVersion": str(pull.end),
        "userMetadata": json.dumps(pull.told(pull.end)),
    }
