"""The options of an S3 store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

# A slower transfer counts as stuck; this bounds the time of one request.
SLOWEST_BYTES_PER_S: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class S3Options:
    """`endpoint_url` None: AWS. Credentials None: boto3's default chain. `region` None: the region
    of that chain, or us-east-1. `checksums`: `when_supported` sends CRC-32C not only to AWS, and
    boto3's own checksums where boto3 sends a PUT. `threads`: concurrent reads."""

    bucket: str
    prefix: str = ""
    endpoint_url: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    connect_timeout_s: float = 3.0
    read_timeout_s: float = 10.0
    checksums: Literal["when_required", "when_supported"] = "when_required"
    threads: int = 16
