"""Delta's log of a table."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from seb_appliance.formats.lake.tables import TIMESTAMP, ColumnStats
from seb_appliance.lake import delta
from seb_appliance.lake.rows import LARGEST_US, SMALLEST_US
from seb_appliance.lake.types import single_value
from tests.support.lake import Story, data_file

EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def stats_of(us: int) -> dict[str, Any]:
    """What Delta tells of a file whose only time this is."""
    bound = single_value("timestamp", us)
    story = Story()
    file = replace(data_file(0, 0), stats=(ColumnStats(TIMESTAMP.field_id, 0, bound, bound),))
    story.commit(file)
    log = delta.printed(story.table.head, story.table.listed(), None)[0]
    actions = [json.loads(line) for line in log.body.splitlines()]
    (added,) = (one["add"] for one in actions if "add" in one)
    return dict(json.loads(added["stats"]))


@pytest.mark.parametrize("us", [SMALLEST_US, -1, 0, 1_999, LARGEST_US - 999])
def test_the_bounds_of_a_time_are_milliseconds_around_it(us: int) -> None:
    found, time = stats_of(us), EPOCH + timedelta(microseconds=us)
    lower, upper = (datetime.fromisoformat(found[of]["timestamp"]) for of in BOUNDS)
    assert lower <= time <= upper
    assert upper - lower <= timedelta(milliseconds=1)


def test_a_time_at_the_very_end_of_the_calendar_has_no_bounds() -> None:
    found = stats_of(LARGEST_US)
    assert [found[of] for of in BOUNDS] == [{}, {}]
    assert found["numRecords"] == 1


BOUNDS = ("minValues", "maxValues")
