"""Compactions that are made elsewhere, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Final

from seb_appliance.api.openapi import parameters
from seb_appliance.api.openapi.document import Content, Operation, Reply, ref
from seb_appliance.api.routes.manage.compactions import (
    CompactionOut,
    HandOverIn,
    NewSegmentIn,
    UploadOut,
)
from seb_appliance.errors import (
    BadJsonError,
    BadNameError,
    CompactionNotFoundError,
    CompactionRefusedError,
    RequestTooLargeError,
    StoreUnavailableError,
    TopicNotFoundError,
    UnsupportedMediaTypeError,
)

_JSON: Final = "application/json"
_ID: Final = "9f86d081884c7d65"
_COMPACTION: Final = {
    "compaction": _ID,
    "topic": "customers",
    "topic_id": 3,
    "bucket_id": "5f1d6c0be3a2479b8d1e2f3a4b5c6d7e",
    "base_offset": 0,
    "last_offset": 655359,
    "log_start_offset": 0,
    "tombstones_until_us": 1795258800000000,
    "tombstones_below": 491520,
    "size_bytes": 67108864,
    "dirty_bytes": 50331648,
    "segment_bytes": 67108864,
    "state": "open",
    "reason": "",
}
_REPLY: Final = {_JSON: Content(schema=ref(CompactionOut), example=_COMPACTION)}
_BODY_ERRORS: Final = (
    BadNameError,
    BadJsonError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
    CompactionNotFoundError,
    CompactionRefusedError,
)

OPERATIONS: Final = [
    Operation(
        method="POST",
        path="/v1/topics/{topic}/compactions",
        operation_id="beginCompaction",
        tag="Topics",
        summary="Begin to compact a topic elsewhere, on a cluster",
        description="Answers what is to be compacted: all segments but what the topic's settings "
        "call too young. The tidier leaves them alone meanwhile, as long as somebody asks for the "
        "compaction once an hour. Nothing of the topic changes until all segments are handed over.",
        parameters=[parameters.TOPIC],
        replies={201: Reply(description="What is to be compacted", content=_REPLY)},
        errors=(
            BadNameError,
            TopicNotFoundError,
            CompactionRefusedError,
            StoreUnavailableError,
        ),
    ),
    Operation(
        method="GET",
        path="/v1/topics/{topic}/compactions/{compaction}",
        operation_id="getCompaction",
        tag="Topics",
        summary="How far a compaction is that is made elsewhere",
        parameters=[parameters.TOPIC, parameters.COMPACTION],
        replies={200: Reply(description="The compaction", content=_REPLY)},
        errors=(BadNameError, CompactionNotFoundError),
    ),
    Operation(
        method="DELETE",
        path="/v1/topics/{topic}/compactions/{compaction}",
        operation_id="giveUpCompaction",
        tag="Topics",
        summary="Give up a compaction that is made elsewhere",
        description="The tidier may compact the topic again. What was handed over already may "
        "still come into force.",
        parameters=[parameters.TOPIC, parameters.COMPACTION],
        replies={204: Reply(description="Given up")},
        errors=(BadNameError, CompactionNotFoundError),
    ),
    Operation(
        method="POST",
        path="/v1/topics/{topic}/compactions/{compaction}/segments",
        operation_id="nameSegment",
        tag="Topics",
        summary="A name for a segment of a compaction, and a signed PUT to store it",
        description="The URL takes these very bytes and no others, for an hour. A segment that is "
        "not handed over is removed later.",
        parameters=[parameters.TOPIC, parameters.COMPACTION],
        body={
            _JSON: Content(
                schema=ref(NewSegmentIn),
                example={
                    "base_offset": 0,
                    "last_offset": 655359,
                    "size_bytes": 20971520,
                    "md5": "1B2M2Y8AsgTpgAmY7PhCfg==",
                },
            )
        },
        replies={
            201: Reply(
                description="Where to store it",
                content={
                    _JSON: Content(
                        schema=ref(UploadOut),
                        example={
                            "segment": "c3ab8ff13720e8ad",
                            "url": "https://bucket.example/seb/_seb/segments/3/…?X-Amz-Signature=…",
                            "headers": {"Content-Length": "20971520", "Content-MD5": "1B2M2Y8As…"},
                        },
                    )
                },
            )
        },
        errors=(*_BODY_ERRORS, StoreUnavailableError),
    ),
    Operation(
        method="POST",
        path="/v1/topics/{topic}/segments",
        operation_id="handOverSegments",
        tag="Topics",
        summary="Hand over all segments of a compaction",
        description="The tidier reads them and what they replace, and puts them in force if they "
        "hold what compaction is to leave, record for record: ask for the compaction until its "
        "state says so. `refused` when the topic was changed meanwhile, or they are wrong; nothing "
        "has changed then.",
        parameters=[parameters.TOPIC],
        body={
            _JSON: Content(
                schema=ref(HandOverIn),
                example={"compaction": _ID, "segments": ["c3ab8ff13720e8ad"]},
            )
        },
        replies={202: Reply(description="It is being checked, or was before", content=_REPLY)},
        errors=_BODY_ERRORS,
    ),
]
SCHEMAS: Final = [CompactionOut, NewSegmentIn, UploadOut, HandOverIn]
