"""The process's log: one line each on standard error, set up once at the start.

Whoever logs puts what a program would look for into `extra={FIELDS: {...}}`; never a secret, and
nothing that a record holds.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final, Literal

FIELDS: Final = "seb_fields"


class JsonLines(logging.Formatter):
    """A JSON object a line: time (UTC), level, logger, message, the fields, and `exception`."""

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


def configure_logs(level: str, log_format: Literal["text", "json"] = "text") -> None:
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Requests are counted, not logged; these would tell the rest twice.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "botocore", "boto3", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
