"""An older release that finds events which it does not know stops, with a sentence."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, get_args

import msgspec
import pytest

from seb_appliance.errors import BadBatchError
from seb_appliance.formats import contents
from seb_appliance.formats.contents import (
    COUNTS_RECORDS,
    ProducerAppend,
    QualifiedSeq,
    Section,
)
from seb_appliance.formats.operations import (
    DelayEvent,
    DelaysPassed,
    Event,
    QueueDeleted,
    QueueEvent,
    QueueProgressed,
    QueueSet,
    RecordsDelayed,
    TableDropped,
    TableEvent,
)
from seb_appliance.formats.queues.queues import Delay, OffsetRange, QueueSettings
from tests.support.lake import SET, Story, data_file


def older_than(newer: Any) -> Any:
    """The contents of an entry, as a release knew them that lacked these events."""
    known = [one for one in get_args(Event) if one not in get_args(newer)]
    members = [
        ("operations", list[reduce(or_, known)]),  # type: ignore[misc]
        ("sections", list[Any]),
        ("results", list[Any], []),
    ]
    return msgspec.defstruct("OlderContents", members, array_like=True, forbid_unknown_fields=True)


def events_of_tables() -> list[Any]:
    story = Story()
    story.commit(data_file(0, 9))
    return [SET, story.events[-1][0], TableDropped(table_id=SET.table_id)]


class OlderSeq(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    seq: int
    checksum: int


class OlderProducerAppend(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """As a release knew it in which producers counted requests only."""

    producer_id: str
    epoch: int
    numbered: int | OlderSeq
    offset: int
    count: int
    timestamp_us: int


def section_with(numbered: int | QualifiedSeq) -> Section:
    append = ProducerAppend("p 1", 0, numbered, 0, 2, 1)
    return Section(1, 0, 1, 2, 0, 8, 0, 1, producers=(append,))


@pytest.mark.parametrize(
    ("numbered", "is_read"),
    [(3, True), (QualifiedSeq(3, 8), True), (QualifiedSeq(3, COUNTS_RECORDS), False)],
)
def test_a_release_in_which_producers_count_requests_stops_at_one_that_counts_records(
    numbered: int | QualifiedSeq, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = [section_with(numbered)]
    encoded = contents.encode_contents(contents.Contents([], sections))
    assert contents.decode_contents(encoded).sections == sections
    members = [*((name, int) for name in Section.__struct_fields__[:-1])]
    older = msgspec.defstruct(
        "OlderSection",
        [*members, ("producers", tuple[OlderProducerAppend, ...], ())],
        array_like=True,
        forbid_unknown_fields=True,
    )
    kind = msgspec.defstruct(
        "OlderContents",
        [("operations", list[Any]), ("sections", list[older]), ("results", list[Any], [])],  # type: ignore[valid-type]
        array_like=True,
        forbid_unknown_fields=True,
    )
    monkeypatch.setattr(contents, "_decoder", msgspec.msgpack.Decoder(kind))
    if is_read:
        assert contents.decode_contents(encoded).sections[0].producers[0].producer_id == "p 1"
        return
    with pytest.raises(BadBatchError, match="a newer release wrote it, install"):
        contents.decode_contents(encoded)


EVENTS = [
    *((TableEvent, event) for event in events_of_tables()),
    (QueueEvent, QueueSet(queue="q", settings=QueueSettings(topics=("t",)), owner="")),
    (QueueEvent, QueueProgressed(queue="q", topic_id=1, acked=[OffsetRange(0, 1)])),
    (QueueEvent, QueueDeleted(queue="q")),
    (DelayEvent, RecordsDelayed(topic_id=1, delays=(Delay(0, 1, 1),))),
    (DelayEvent, DelaysPassed(topic_id=1, until_us=1)),
]


@pytest.mark.parametrize(
    ("newer", "event"), EVENTS, ids=[event.__struct_config__.tag for _, event in EVENTS]
)
def test_a_release_that_does_not_know_an_event_stops_at_it(
    newer: Any, event: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = contents.encode_contents(contents.Contents([event], []))
    assert contents.decode_contents(encoded).operations == [event]
    monkeypatch.setattr(contents, "_decoder", msgspec.msgpack.Decoder(older_than(newer)))
    tag = event.__struct_config__.tag
    with pytest.raises(BadBatchError, match=f"{tag}.*a newer release wrote it, install"):
        contents.decode_contents(encoded)
