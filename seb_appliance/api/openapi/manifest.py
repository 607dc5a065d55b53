"""The manifest, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Final

from seb_appliance.api.openapi import parameters
from seb_appliance.api.openapi.document import Content, Operation, Reply, ref
from seb_appliance.api.openapi.parameters import query
from seb_appliance.api.routes.records.manifest import ManifestOut
from seb_appliance.errors import (
    BadNameError,
    CorruptObjectError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    StoreUnavailableError,
    TopicNotFoundError,
)

_MANIFEST: Final = {
    "topic": "orders.eu",
    "topic_id": 3,
    "segments": [
        {
            "base_offset": 0,
            "last_offset": 655359,
            "size_bytes": 67121480,
            "url": "https://bucket.example/seb/_seb/segments/3/…?X-Amz-Signature=…",
            "sections": [
                {
                    "base_offset": 0,
                    "last_offset": 10239,
                    "at": 32,
                    "length": 1048616,
                    "crc32c": 2868364117,
                }
            ],
        }
    ],
    "next_offset": 660044,
    "segments_end_offset": 655360,
    "log_start_offset": 0,
    "log_end_offset": 660044,
}

OPERATIONS: Final = [
    Operation(
        method="GET",
        path="/v1/topics/{topic}/manifest",
        operation_id="getManifest",
        tag="Topics",
        summary="Which segments in the bucket hold a range of a topic",
        description="For readers that GET segments themselves, many at a time. Only segments are "
        "named: journal entries and packed objects hold other topics' records, too. What no "
        "segment covers is read through the API. A bucket that is a directory has no URLs, and an "
        "API key with a quota on bytes out gets none. A URL that is refused has expired, or the "
        "tidier has replaced the segment: ask again.",
        parameters=[
            parameters.TOPIC,
            query("offset", "Where to begin, as for reading records.", "0", type="string"),
            query("until", "Exclusive end: an offset or `@time`.", "655360"),
            query(
                "presign",
                "Give URLs that are good for so long, 1h and `garbage_grace` at most.",
                "15m",
            ),
        ],
        replies={
            200: Reply(
                description="The manifest",
                content={"application/json": Content(schema=ref(ManifestOut), example=_MANIFEST)},
            )
        },
        errors=(
            BadNameError,
            TopicNotFoundError,
            OffsetExpiredError,
            OffsetOutOfRangeError,
            CorruptObjectError,
            StoreUnavailableError,
        ),
    ),
]
SCHEMAS: Final = [ManifestOut]
