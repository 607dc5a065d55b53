"""Settings and measurements of the process: log, freed memory, delay of the event loop."""

from __future__ import annotations

import copy
import ctypes
import json
import logging
from datetime import UTC, datetime
from typing import Final, Literal

from seb_appliance import limits
from seb_appliance.broker.counters import Histogram
from seb_appliance.clock import Clock
from seb_appliance.errors import printable
from seb_appliance.tasks import Job

_PROBE_S: Final = 1.0
_KEPT: Final = 60  # delays, of which `worst_s` is the largest: about a minute


class LoopProbe(Job):
    """Measures once a second how much longer than asked a sleep takes."""

    name = "loop-probe"

    def __init__(self, clock: Clock) -> None:
        self.delays = Histogram()
        self._newest: list[float] = []
        self._clock = clock

    @property
    def worst_s(self) -> float:
        """The longest delay in the last minute."""
        return max(self._newest, default=0.0)

    async def _run(self) -> None:
        while True:
            due_s = self._clock.monotonic_s() + _PROBE_S
            await self._clock.sleep(_PROBE_S)
            delay_s = max(0.0, self._clock.monotonic_s() - due_s)
            self.delays.note(delay_s)
            self._newest = [*self._newest[1 - _KEPT :], delay_s]


# From glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_KEPT_BYTES: Final = 64 * limits.MIB
_MMAP_BYTES: Final = 32 * limits.MIB  # glibc's own upper limit

assert limits.WINDOW_BYTES_MAX < _MMAP_BYTES < _KEPT_BYTES


def keep_freed_memory() -> bool:
    """Reuse blocks the size of windows, and let threads share one heap; keep at most 64 MiB free.

    By default glibc returns large blocks to the kernel, and clearing their pages again took most of
    the time of sealing (docs/PERFORMANCE.md). False where there is no mallopt (musl, macOS).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all(
        mallopt(option, value)
        for option, value in (
            (_M_MMAP_THRESHOLD, _MMAP_BYTES),
            (_M_TRIM_THRESHOLD, _KEPT_BYTES),
            (_M_ARENA_MAX, 1),
        )
    )


FIELDS: Final = "seb_fields"


class JsonLines(logging.Formatter):
    """A JSON object a line: time (UTC), level, logger, message, the fields, and `exception`.

    Loggers pass what a program looks for in `extra={FIELDS: {...}}`: never a secret, and nothing
    that a record holds.
    """

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        return json.dumps(shown, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """A line a record: what somebody else named neither ends it nor reaches a terminal as
    commands. A traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        plain = copy.copy(record)
        plain.msg, plain.args = printable(record.getMessage()), None
        return super().format(plain)


def configure_logs(level: str, log_format: Literal["text", "json"] = "text") -> None:
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(TextLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Requests are counted, not logged; the rest would be logged twice.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "botocore", "boto3", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
