"""The settings of the broker."""

from __future__ import annotations

from dataclasses import dataclass

from seb_appliance import limits
from seb_appliance.errors import BadRequestError
from seb_appliance.formats.operations import Compression, TopicSettings


@dataclass(frozen=True, slots=True)
class TidySettings:
    """Entries are merged once `trigger_bytes` of them wait, or the oldest of many has waited for
    `after_ms`. Entries younger than `young_ms` stay: readers at the log end find them in memory.
    `segment_bytes`: what one job reads, and about the size of one object."""

    segment_bytes: int = limits.SEGMENT_BYTES_DEFAULT
    trigger_bytes: int = limits.TIDY_TRIGGER_BYTES_DEFAULT
    after_ms: int = limits.TIDY_AFTER_MS_DEFAULT
    young_ms: int = limits.TIDY_YOUNG_MS
    grace_ms: int = limits.GARBAGE_GRACE_MS_DEFAULT


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """`linger_ms`, `early_flush`, `max_record_bytes`, `compression`: defaults of topics."""

    linger_ms: int = 10
    early_flush: bool = False
    max_record_bytes: int = limits.RECORD_BYTES_DEFAULT
    compression: Compression = "zstd"
    auto_create_topics: bool = True
    max_pending_bytes: int = limits.PENDING_BYTES_DEFAULT
    max_reading_bytes: int = limits.READ_BYTES_DEFAULT
    ack_timeout_ms: int = limits.ACK_TIMEOUT_MS_DEFAULT
    tidy: TidySettings = TidySettings()

    @property
    def linger_ms_max(self) -> int:
        """A window must close well before its callers stop waiting."""
        return min(limits.LINGER_MS_MAX, self.ack_timeout_ms // 2)

    def effective(self, settings: TopicSettings) -> TopicSettings:
        """A topic's settings with the defaults filled in."""
        return TopicSettings(
            linger_ms=self.linger_ms if settings.linger_ms is None else settings.linger_ms,
            early_flush=self.early_flush if settings.early_flush is None else settings.early_flush,
            max_record_bytes=(
                self.max_record_bytes
                if settings.max_record_bytes is None
                else settings.max_record_bytes
            ),
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
            key_index="none" if settings.key_index is None else settings.key_index,
            compression=self.compression if settings.compression is None else settings.compression,
            cleanup="delete" if settings.cleanup is None else settings.cleanup,
            min_compaction_lag_ms=settings.min_compaction_lag_ms or 0,
            tombstone_retention_ms=(
                limits.TOMBSTONE_RETENTION_MS_DEFAULT
                if settings.tombstone_retention_ms is None
                else settings.tombstone_retention_ms
            ),
            dirty_ratio=(
                limits.DIRTY_RATIO_DEFAULT if settings.dirty_ratio is None else settings.dirty_ratio
            ),
        )

    def check(self, settings: TopicSettings) -> None:
        """Raises BadRequestError that names each setting of a topic out of its range."""
        errors = []
        if settings.linger_ms is not None and not 0 <= settings.linger_ms <= self.linger_ms_max:
            errors.append({"path": "linger_ms", "message": f"0 to {self.linger_ms_max} ms"})
        if settings.max_record_bytes is not None and not (
            1 <= settings.max_record_bytes <= limits.RECORD_BYTES_MAX
        ):
            errors.append(
                {"path": "max_record_bytes", "message": f"1 to {limits.RECORD_BYTES_MAX} bytes"}
            )
        for name, least, unit in (
            ("retention_ms", limits.RETENTION_MS_MIN, "ms"),
            ("retention_bytes", 1, "bytes"),
        ):
            value = getattr(settings, name)
            if value is not None and not least <= value <= limits.OFFSET_MAX:
                message = f"{least} to {limits.OFFSET_MAX} {unit}; null keeps records for ever"
                errors.append({"path": name, "message": message})
        for name in ("min_compaction_lag_ms", "tombstone_retention_ms"):
            value = getattr(settings, name)
            if value is not None and not 0 <= value <= limits.OFFSET_MAX:
                errors.append({"path": name, "message": f"0 to {limits.OFFSET_MAX} ms"})
        lowest, highest = limits.DIRTY_RATIO_MIN, limits.DIRTY_RATIO_MAX
        if settings.dirty_ratio is not None and not lowest <= settings.dirty_ratio <= highest:
            errors.append({"path": "dirty_ratio", "message": f"{lowest} to {highest}"})
        if errors:
            raise BadRequestError("A topic setting is out of its range.", errors=errors)
