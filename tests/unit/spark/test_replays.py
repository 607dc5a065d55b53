"""Whether a batch of a stream can still be known to the appliance."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark_seb.errors import BatchTooOldError
from pyspark_seb.writing.stream import check_remembered, newest_batch

DAY_S = 86_400


def planned(checkpoint: Path, number: int, planned_ms: int) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    lines = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{planned_ms}}}\n{{}}'
    (checkpoint / "offsets" / str(number)).write_text(lines)


@pytest.mark.parametrize("uri", [False, True])
def test_the_newest_batch_of_a_checkpoint_tells_when_it_was_planned(tmp_path, uri) -> None:
    for number in (9, 10):
        planned(tmp_path, number, number * 1000)
    (tmp_path / "offsets" / ".10.crc").write_bytes(b"")
    assert newest_batch(tmp_path.as_uri() if uri else str(tmp_path)) == (10, 10.0)


@pytest.mark.parametrize("checkpoint", [None, "", "s3a://bucket/c", "hdfs:///c", "/not/there"])
def test_a_checkpoint_that_cannot_be_read_tells_nothing(checkpoint) -> None:
    assert newest_batch(checkpoint) is None


def test_a_batch_is_refused_when_it_may_be_forgotten() -> None:
    check_remembered(3, 0, 6.9 * DAY_S)
    with pytest.raises(BatchTooOldError, match="batch 3 of this stream was planned at 1970-01-01"):
        check_remembered(3, 0, 7 * DAY_S)
