"""What can go wrong between Spark and an appliance. The text is what Spark shows at the end."""

from __future__ import annotations

from typing import Any


class SebSparkError(Exception):
    """Base of the errors here."""


class BadOptionError(SebSparkError):
    """An option, a schema or a combination of them that cannot be."""


class ApplianceError(SebSparkError):
    """The appliance refused, or gave no answer within the patience. `code`: its stable error code,
    "unreachable" when there was no answer; `data`: the whole problem document."""

    def __init__(self, what: str, status: int, code: str, detail: str, data: dict[str, Any]):
        super().__init__(f"{what}: {status} {code}: {detail}" if status else f"{what}: {detail}")
        self.what = what
        self.status = status
        self.code = code
        self.detail = detail
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.status, self.code, self.detail, self.data)

    def number(self, name: str) -> int:
        """A member of the problem document. Raises ApplianceError where there is no such number."""
        found = self.data.get(name)
        if type(found) is not int:
            detail = f"the refusal {self.code} has no number {name!r}"
            raise ApplianceError(self.what, self.status, "unknown", detail, {})
        return found


class RecordsGoneError(SebSparkError):
    """Records that were to be read are gone by retention or a trim."""

    def __init__(self, topic: str, offset: int, log_start_offset: int):
        super().__init__(
            f"{log_start_offset - offset} records of topic {topic!r} are gone: reading goes on at "
            f"offset {offset}, and the log starts at {log_start_offset} now (retention, or a "
            "trim). failOnDataLoss=false goes on without them."
        )
        self.topic = topic
        self.offset = offset
        self.log_start_offset = log_start_offset

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topic, self.offset, self.log_start_offset)


class CompactedError(SebSparkError):
    """A DataFrame would have fewer rows than when it was loaded: compaction has removed some."""

    def __init__(self, topic: str):
        super().__init__(
            f"topic {topic!r} was compacted since the DataFrame was loaded, whose actions would "
            "see different rows: load it again (and .cache() it, to use it several times), or set "
            "failOnCompaction=false"
        )
        self.topic = topic

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topic,)


class TopicChangedError(SebSparkError):
    """The topic is another one than the offsets were made for, or its log is shorter than they."""


class LakeError(SebSparkError):
    """The folder of a lake holds what makes another write into it wrong."""


class ConflictError(SebSparkError):
    """Another run of a job was quicker, and this one has changed nothing."""


class RowsChangedError(SebSparkError):
    """A task that was tried again, or a batch that was replayed, has other rows than the first
    time: some of them would be taken for repetitions."""

    def __init__(self, topic: str, found: str):
        super().__init__(
            f"other records for topic {topic!r} were stored when this was tried before ({found}): "
            "rows have to be in the same partitions and order again, and "
            "spark.sql.execution.arrow.maxRecordsPerBatch has to stay. These are not stored."
        )
        self.topic = topic
        self.found = found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topic, self.found)


class BatchTooOldError(SebSparkError):
    """A batch of a stream is replayed when the appliance may have forgotten its producers."""
