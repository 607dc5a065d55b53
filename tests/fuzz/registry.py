"""All targets, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import (
    answers,
    formats,
    kafka_records,
    kafka_requests,
    places,
    requests,
    senders,
    sockets,
    tables,
    texts,
)
from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for module in (
        answers,
        formats,
        kafka_records,
        kafka_requests,
        places,
        requests,
        senders,
        sockets,
        tables,
        texts,
    )
    for target in module.TARGETS
}
