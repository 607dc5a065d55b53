"""The settings of the broker."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

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
        defaults = {
            "linger_ms": self.linger_ms,
            "early_flush": self.early_flush,
            "max_record_bytes": self.max_record_bytes,
            "key_index": "none",
            "compression": self.compression,
            "cleanup": "delete",
            "min_compaction_lag_ms": 0,
            "tombstone_retention_ms": limits.TOMBSTONE_RETENTION_MS_DEFAULT,
            "dirty_ratio": limits.DIRTY_RATIO_DEFAULT,
        }
        missing = {name: at for name, at in defaults.items() if getattr(settings, name) is None}
        return msgspec.structs.replace(settings, **missing)

    def check(self, settings: TopicSettings) -> None:
        """Raises BadRequestError that names each setting of a topic out of its range."""
        most = limits.OFFSET_MAX
        errors = []
        for name, least, highest, unit in (
            ("linger_ms", 0, self.linger_ms_max, " ms"),
            ("max_record_bytes", 1, limits.RECORD_BYTES_MAX, " bytes"),
            ("retention_ms", limits.RETENTION_MS_MIN, most, " ms; null keeps records for ever"),
            ("retention_bytes", 1, most, " bytes; null keeps records for ever"),
            ("min_compaction_lag_ms", 0, most, " ms"),
            ("tombstone_retention_ms", 0, most, " ms"),
            ("dirty_ratio", limits.DIRTY_RATIO_MIN, limits.DIRTY_RATIO_MAX, ""),
        ):
            value = getattr(settings, name)
            if value is not None and not least <= value <= highest:
                errors.append({"path": name, "message": f"{least} to {highest}{unit}"})
        if errors:
            raise BadRequestError("A topic setting is out of its range.", errors=errors)
