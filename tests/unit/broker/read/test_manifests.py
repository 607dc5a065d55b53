"""A manifest says when its range was compacted last, and not when another was."""

from __future__ import annotations

import pytest

from seb_appliance.broker.read.manifests import _compacted_seq
from seb_appliance.broker.topics.topic import Run, Topic
from seb_appliance.formats.topic_settings import TopicSettings


@pytest.mark.parametrize(
    ("start", "end", "seq"),
    [(0, 10, 5), (10, 20, 0), (9, 10, 5), (5, 25, 7), (30, 40, 0), (3, 3, 0)],
)
def test_the_newest_compaction_of_a_range_is_told(start: int, end: int, seq: int) -> None:
    topic = Topic(1, "orders", 0, TopicSettings(), runs=[Run(0, 9, 5), Run(20, 29, 7)])
    assert _compacted_seq(topic, start, end) == seq


def test_a_fork_has_the_compactions_of_its_parent_below_where_it_forked() -> None:
    parent = Topic(1, "orders", 0, TopicSettings(), runs=[Run(0, 9, 5), Run(20, 29, 7)])
    fork = Topic(2, "try", 0, TopicSettings(), runs=[Run(15, 18, 9)], fork_offset=15, parent=parent)
    assert _compacted_seq(fork, 0, 15) == 5
    assert _compacted_seq(fork, 0, 40) == 9
    assert _compacted_seq(fork, 19, 40) == 0
