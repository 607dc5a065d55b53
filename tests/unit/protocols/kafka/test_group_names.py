"""Group ids of Kafka as names of ours, and back."""

from __future__ import annotations

import random

import pytest

from seb_appliance.broker.topics.names import check_group_name
from seb_appliance.errors import BadNameError
from seb_appliance.protocols.kafka.groups.names import group_of, id_of

PARTS = ["a", "Z", "0", "-", "_", ".", "..", " ", "/", "é", "_20", "_2E", "kafka-id.", "\0", "🙂"]


@pytest.mark.parametrize(
    ("group_id", "name"),
    [
        ("billing", "billing"),
        ("team.billing-2_x", "team.billing-2_x"),
        ("my group", "kafka-id.my_20group"),
        ("a..b.", "kafka-id.a_2E.b_2E"),
        (".", "kafka-id._2E"),
        ("é", "kafka-id._C3_A9"),
        ("kafka-id.x", "kafka-id.x"),  # no other id has this name
        ("kafka-id.a_20b", "kafka-id.kafka-id.a_5F20b"),
    ],
)
def test_a_group_id_that_is_a_name_keeps_it_and_any_other_is_spelled_out(group_id, name):
    assert group_of(group_id) == name
    assert id_of(name) == group_id


def test_every_group_id_has_a_name_of_its_own_and_every_name_an_id():
    drawn = random.Random(7)
    names = dict[str, str]()
    for _ in range(20_000):
        text = "".join(drawn.choices(PARTS, k=drawn.randint(1, 5)))
        name = group_of(text)
        assert check_group_name(name) == name
        assert names.setdefault(name, text) == text
        assert id_of(name) == text
        assert group_of(id_of(text)) == text or not _is_name(text)


def test_what_is_too_long_or_empty_has_no_name():
    for group_id in ("", " " * 60, "x" * 129, "é" * 1_000_000):
        with pytest.raises(BadNameError):
            check_group_name(group_of(group_id))


def _is_name(text: str) -> bool:
    try:
        check_group_name(text)
    except BadNameError:
        return False
    return True
