"""Somebody's own Iceberg table. A snapshot that a job commits has the properties `seb.topic-id` and
`seb.next-offset`. A commit is refused if the table has changed since the job looked at these."""

from __future__ import annotations

import uuid
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

BRANCH_DAYS: Final = 1  # of a run that died; expire_snapshots of the table's owner removes it

_TRIES: Final = 5


class Iceberg(Target):
    def progress(self, topic_id: int) -> Progress:
        """A table without a snapshot gets an empty one."""
        if (head := self._head()) is None:
            self.spark.table(self.table).limit(0).writeTo(self.table).append()
            head = self._head()
            assert head is not None
        rows = self.spark.sql(
            f"SELECT snapshot_id, parent_id, summary['{TOPIC_ID}'] AS topic_id, "  # noqa: S608
            f"summary['{NEXT_OFFSET}'] AS next_offset, "
            f"summary['{LAST_ENTRY}'] AS last_entry FROM {self.table}.snapshots"
        ).collect()
        snapshots = {row.snapshot_id: row for row in rows}
        found = snapshots.get(head)
        while found is not None:
            if found.topic_id == str(topic_id):
                return Progress(head, int(found.next_offset), found.last_entry)
            found = snapshots.get(found.parent_id)
        return Progress(head, None)

    def _head(self) -> int | None:
        self.spark.sql(f"REFRESH TABLE {self.table}")
        main = f"SELECT snapshot_id FROM {self.table}.refs WHERE name = 'main'"  # noqa: S608
        found = self.spark.sql(main).first()
        return None if found is None else int(found.snapshot_id)

    def overwrite(self, pull: Pull) -> None:
        writer = (
            self.rows(pull)
            .writeTo(self.table)
            .options(
                **_properties(pull),
                **{
                    "isolation-level": "serializable",
                    "validate-from-snapshot-id": str(pull.progress.snapshot),
                },
            )
        )
        mine = sql.col("topic_id") == pull.log.topic_id
        writer.overwrite(mine & (sql.col("offset") >= pull.begin))

    def merge_newest(self, pull: Pull) -> None:
        """On a branch of the snapshot whose progress was read; the table is then moved there,
        unless it has changed meanwhile."""
        branch = f"seb_{uuid.uuid4().hex}"
        self.run.step(f"making the branch {branch}")
        version = pull.progress.snapshot
        self._alter(f"CREATE BRANCH {branch} AS OF VERSION {version} RETAIN {BRANCH_DAYS} DAYS")
        try:
            self.run.step("merging into the branch")
            self._merge(pull, f"{self.table}.branch_{branch}")
            self.run.step("marking the branch")
            # A MERGE takes no properties; the last snapshot of the branch becomes the table's.
            mark = self.spark.table(self.table).limit(0).writeTo(f"{self.table}.branch_{branch}")
            mark.options(**_properties(pull)).append()
            self.run.step("moving the table to the branch")
            catalog, _, rest = self.table.partition(".")
            self._change(f"CALL {catalog}.system.fast_forward('{rest}', 'main', '{branch}')")
            self.run.step("removing the branch")
        finally:
            self._alter(f"DROP BRANCH IF EXISTS {branch}")

    def _alter(self, change: str) -> None:
        self._change(f"ALTER TABLE {self.table} {change}")

    def _change(self, statement: str) -> None:
        """Of branches. Iceberg itself does not repeat one that another commit was quicker than."""
        for left in reversed(range(_TRIES)):
            try:
                self.spark.sql(statement)
            except Exception as error:
                if not left or "CommitFailedException" not in str(error):
                    raise
                self.spark.sql(f"REFRESH TABLE {self.table}")
            else:
                return


def _properties(pull: Pull) -> dict[str, str]:
    told = pull.told(pull.end)
    return {f"snapshot-property.{name}": str(value) for name, value in told.items()}
