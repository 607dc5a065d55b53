"""What is read is a topic that was looked at before, not another one of its name."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark_seb import tables
from pyspark_seb.arrow.columns import spark_schema
from pyspark_seb.errors import TopicChangedError
from pyspark_seb.frames import Loaded, described
from pyspark_seb.jobs.frame import Run
from pyspark_seb.options import TopicRange
from pyspark_seb.tables import Pinned, table_and_log


def session(topic_id: int) -> Any:
    """Where a load of the topic `t` finds this one."""
    loaded = Loaded(None, {}, [TopicRange("t", topic_id, 0, 5)])
    frame = SimpleNamespace(
        schema=described(spark_schema(), loaded), mapInArrow=lambda *_: "the log"
    )
    reader = SimpleNamespace(options=lambda **_: SimpleNamespace(load=lambda: frame))
    conf = SimpleNamespace(set=lambda *_: None)
    return SimpleNamespace(read=SimpleNamespace(format=lambda _: reader), conf=conf)


def test_a_job_reads_the_topic_that_it_looked_at() -> None:
    assert Run(argparse.Namespace(), session(1)).records({}, {"t": 1})
    with pytest.raises(TopicChangedError, match="created again"):
        Run(argparse.Namespace(), session(2)).records({}, {"t": 1})


def test_a_table_goes_with_the_log_of_its_own_topic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "seb.key").write_text("seb_abcdefgh_secret_0000\n")
    given = {"url": "http://127.0.0.1:1", "tokenFile": str(tmp_path / "seb.key")}
    pinned = Pinned(None, "", True, 0, (), 0, 5, topic_id=1)
    monkeypatch.setattr(tables, "pin", lambda *_: pinned)
    assert table_and_log(session(1), "t", given) == "the log"  # type: ignore[comparison-overlap]
    with pytest.raises(TopicChangedError, match="created again"):
        table_and_log(session(2), "t", given)
