"""P20: the records and the offset of a transaction by Kafka are stored together, or not at all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from tests.proof.check_records import Evidence
from tests.proof.violations import Violation, said


def check_kafka(evidence: Evidence) -> Iterator[Violation]:
    """Every violation of P20. `source` of a value is the offset that it was made from; it says
    which of the outputs has it. (That nothing of an aborted transaction is there is P9.)"""
    history = evidence.history
    for worker, outputs in history.transforms.items():
        looks = [c for c in history.commits if c.group == worker and c.kind == "look"]
        end = max((look.offset for look in looks if look.outcome == "ok"), default=0)
        for i, topic in enumerate(outputs):
            if topic not in history.logs:
                continue  # who is stuck is told before they are read
            values = (json.loads(record.value or b"{}") for _, record in history.logs[topic])
            found = [value["source"] for value in values if value.get("producer") == worker]
            expected = range(i, end, len(outputs))
            if found != list(expected):
                what = _difference(found, expected)
                yield said("P20", f"{worker} committed {end}; of {len(expected)} records for "
                                  f"{topic} {len(found)} are there: {what}")  # fmt: skip


def _difference(found: list[int], expected: range) -> str:
    counted = Counter(found)
    doubled = [source for source, count in counted.items() if count > 1]
    missing = [source for source in expected if source not in counted]
    more = [source for source in counted if source not in expected]
    if not doubled and not missing and not more:
        return "not in order"
    return f"missing {missing[:5]}, doubled {doubled[:5]}, not committed {more[:5]}"
