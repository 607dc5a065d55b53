"""An older release that finds events which it does not know stops, with a sentence."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, get_args

import msgspec
import pytest

from seb_appliance.errors import BadBatchError
from seb_appliance.formats import contents
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
