"""The settings of the broker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from seb_appliance import limits
from seb_appliance.errors import BadRequestError
from seb_appliance.formats.lake.columns import check_copies, parse
from seb_appliance.formats.topic_settings import SETTINGS, Compression, TopicSettings


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


@dataclass(frozen=True)
class BrokerSettings:
    """A field with the name of a topic setting is the default of that setting. `no_tables`: why
    topics cannot be tables, as a sentence."""

    linger_ms: int = 10
    early_flush: bool = False
    max_record_bytes: int = limits.RECORD_BYTES_DEFAULT
    compression: Compression = "zstd"
    auto_create_topics: bool = True
    max_pending_bytes: int = limits.PENDING_BYTES_DEFAULT
    max_reading_bytes: int = limits.READ_BYTES_DEFAULT
    ack_timeout_ms: int = limits.ACK_TIMEOUT_MS_DEFAULT
    tidy: TidySettings = TidySettings()
    no_tables: str = ""

    @property
    def linger_ms_max(self) -> int:
        """A window must close well before its callers stop waiting."""
        return min(limits.LINGER_MS_MAX, self.ack_timeout_ms // 2)

    def effective(self, settings: TopicSettings) -> TopicSettings:
        """A topic's settings with the defaults filled in."""
        own = msgspec.structs.asdict(settings)
        return TopicSettings(
            **{name: self._defaults[name] if own[name] is None else own[name] for name in own}
        )

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        return {name: getattr(self, name, one.default) for name, one in SETTINGS.items()}

    def check(self, settings: TopicSettings) -> None:
        """Raises BadRequestError that names each setting of a topic out of its range."""
        highest = {"linger_ms": self.linger_ms_max}
        errors = [
            {"path": name, "message": message}
            for name, one in SETTINGS.items()
            if (message := one.out_of_bounds(getattr(settings, name), highest.get(name)))
        ]
        if settings.table_formats and self.no_tables:
            errors.append({"path": "table", "message": self.no_tables})
        if settings.table_columns:
            try:
                check_copies(parse(settings.table_columns))
            except ValueError as error:
                errors.append({"path": "table_columns", "message": str(error)})
        if errors:
            raise BadRequestError("A topic setting is out of its range.", errors=errors)
