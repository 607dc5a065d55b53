"""A start from the bucket alone reads whatever was taken, were it as large as anybody may ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seb_appliance.api.encoding.answers import parse_time
from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.streams.admission import WantedStream
from seb_appliance.errors import BadRequestError
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.limits import OFFSET_MAX
from tests.support.tidied import Place

LAST_US = parse_time("9999-12-31T23:59:59.999999Z")
LARGEST = {
    "retention_ms": OFFSET_MAX,
    "retention_bytes": OFFSET_MAX,
    "min_compaction_lag_ms": OFFSET_MAX,
    "tombstone_retention_ms": OFFSET_MAX,
}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    await place.start()
    yield place
    await place.appliance.close()


async def start_from_the_bucket(place: Place) -> None:
    await place.appliance.close()
    for file in place.folder.glob("*.sqlite*"):
        file.unlink()
    await place.start()


async def test_the_largest_numbers_that_are_taken_are_read_again(place: Place) -> None:
    await place.produce("t", 1)
    settings = (await place.broker.topics.change("t", LARGEST)).settings
    most = Quotas(requests_per_second=OFFSET_MAX, bytes_in_per_second=OFFSET_MAX)
    grants = (Grant(operation="produce"),)
    key, _ = await place.broker.access.create("key", grants, LAST_US, quotas=most)
    reservation = place.broker.pending.reserve(OPERATOR, 1)
    wanted = WantedStream(expires_us=LAST_US)
    await place.broker.streams.create("s", wanted, [b"x"], reservation, THE_APPLIANCE)
    await start_from_the_bucket(place)
    assert place.broker.topics.get("t").settings == settings
    assert place.broker.access.get(key.api_key_id) == key
    assert place.broker.streams.get("s").state.expires_us == LAST_US


@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("number", [OFFSET_MAX + 1, 2**63, 2**64, 10**30])
async def test_a_larger_setting_is_refused(place: Place, name: str, number: int) -> None:
    await place.produce("t", 1)
    with pytest.raises(BadRequestError):
        await place.broker.topics.change("t", {name: number})
