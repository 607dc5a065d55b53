"""An older release that finds events which it does not know stops, with a sentence."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, get_args

import msgspec
import pytest

from seb_appliance.errors import BadBatchError
from seb_appliance.formats import contents
from seb_appliance.formats.operations import Event, TableDropped, TableEvent
from tests.support.lake import SET, Story, data_file

_OLDER: Any = reduce(or_, [one for one in get_args(Event) if one not in get_args(TableEvent)])


class OlderContents(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    operations: list[_OLDER]
    sections: list[Any]
    results: list[Any] = []


@pytest.mark.parametrize("event", ["table_set", "table_committed", "table_dropped"])
def test_a_release_before_tables_stops_at_their_events(event: str, monkeypatch: pytest.MonkeyPatch):
    story = Story()
    story.commit(data_file(0, 9))
    events = [SET, story.events[-1][0], TableDropped(table_id=SET.table_id)]
    (made,) = [one for one in events if one.__struct_config__.tag == event]
    encoded = contents.encode_contents(contents.Contents([made], []))
    assert contents.decode_contents(encoded).operations == [made]
    monkeypatch.setattr(contents, "_decoder", msgspec.msgpack.Decoder(OlderContents))
    with pytest.raises(BadBatchError, match=f"{event}.*a newer release wrote it, install"):
        contents.decode_contents(encoded)
