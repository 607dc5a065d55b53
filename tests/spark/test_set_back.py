"""Checkpoints of before at an appliance that was restored as of an earlier time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.server.serving import SEB, free_port, serving
from tests.spark.test_restart import Restarted
from tests.spark.test_stream import Sink, run


def restore(lost: Path, kept: Path, seq: int) -> None:
    kept.mkdir()
    given = ["--bucket", f"file:{lost}/bucket", "--data", f"{lost}/drill"]
    into = ["--until-seq", str(seq), "--into", f"file:{kept}/bucket"]
    subprocess.run([*SEB, "restore", *given, *into], check=True, capture_output=True)


def test_a_stream_ends_if_the_log_has_other_records_now_than_it_has_read(
    spark, tmp_path: Path
) -> None:
    """Also once the log has grown past the checkpoint: else it skips what was stored up to there.
    Its group stays where it was restored, since a new checkpoint begins there."""
    port, lost, kept = free_port(), tmp_path / "lost", tmp_path / "kept"
    sinks = {name: Sink() for name in ("ahead", "planned", "behind", "new")}

    def read(name: str, group: str = "") -> list[int]:
        asked = {"topics": "t", "group": group or name}
        run(spark, house, tmp_path / name, sinks[name], **asked)
        return sinks[name].offsets

    lost.mkdir()
    with serving(lost, port=port) as first:
        house = Restarted(port, first.data / "admin.key")
        house.produce("t", 10)
        for name in ("ahead", "planned", "behind"):
            assert read(name) == list(range(10))
        seq = house.status()["journal"]["seq"]
        house.produce("t", 10)
        assert read("ahead") == list(range(20))
        sinks["planned"].fail_at = 1
        with pytest.raises(PySparkException, match="the sink fails"):
            read("planned")
        sinks["planned"].fail_at = None
        house.appliance.close()
    restore(lost, kept, seq)
    with serving(kept, "--take-over", port=port):
        house.produce("t", 15)
        for name in ("ahead", "planned"):
            with pytest.raises(PySparkException, match="restored as of an earlier time"):
                read(name)
            assert house.committed(name, "t") == 10
        assert read("new", group="ahead") == list(range(10, 25))
        assert read("behind") == list(range(25))
        house.appliance.close()
