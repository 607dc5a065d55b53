"""The process's log: one line each on standard error, set up once at the start."""

from __future__ import annotations

import logging


def configure_logs(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    # Requests are counted, not logged; these would tell the rest twice.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "botocore", "boto3", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
