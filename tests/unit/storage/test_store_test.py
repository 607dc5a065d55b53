"""The start-up store test finds out what a store can promise."""

import os
import random

import pytest

from seb_appliance.errors import StoreUnusableError
from seb_appliance.storage import layout
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import ObjectRange, list_all
from tests.support.appliances import Appliance, HurriedClock
from tests.support.faulty_store import (
    FaultyStore,
    denied,
    flipped_bit,
    lost_answer,
    shows_nothing,
    unavailable,
)
from tests.support.stores import run_store_test


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


async def run(store, clock=None):

    return await run_store_test(
        store,
        clock=clock or HurriedClock(),
        random_bytes=os.urandom,
        jitter=random.Random(1).random,
    )


def failed(report):
    return [check.name for check in report.checks if not check.passed]


async def test_a_good_store_gets_mode_a_and_nothing_is_left_behind(store):
    report = await run(store)
    assert (report.mode, failed(report), report.warnings, report.failure) == ("A", [], (), "")
    assert await list_all(store, "") == []


async def test_501_means_mode_b(store):
    store.creates = "501"
    report = await run(store)
    assert (report.mode, report.warnings, report.failure) == ("B", (), "")


async def test_a_store_that_overwrites_gets_mode_b_and_a_loud_warning(store):
    store.creates = "overwrites"
    report = await run(store)
    assert report.mode == "B"
    assert "overwrites" in report.warnings[0]


async def test_mode_b_puts_and_lists_200_times(store):
    store.creates = "501"
    await run(store)
    assert store.count("put", "claim-") == 200
    assert store.count("list_after", "claim-") == 200


async def test_mode_a_does_not_pay_for_that(store):
    await run(store)
    assert store.count("put", "claim-") == 0


async def test_one_missing_object_in_a_list_makes_mode_b_impossible(store, tmp_path):
    store.creates = "501"
    store.on("list_after", "claim-", shows_nothing, skip=117)
    report = await run(store)
    assert "1 of 200 objects were missing" in report.failure
    store.on("list_after", "claim-", shows_nothing)
    with pytest.raises(StoreUnusableError, match="were missing in the LIST"):
        await Appliance(store, tmp_path).start()


async def test_several_winners_of_a_race_mean_mode_b(store):
    async def wins(store, key, request):
        await store.inner.put(key, b"somebody")

    store.on("create", "race-2", wins, times=4)
    report = await run(store)
    assert report.mode == "B"
    assert failed(report) == ["one winner of a race"]


async def test_lost_answers_are_no_failure(store):
    store.on("create", "once", lost_answer)
    store.on("create", "race-1", lost_answer, times=2)
    store.on("put", "list-", unavailable, times=3)
    assert (await run(store)).mode == "A"


async def test_a_damaged_range_is_fatal(store):
    store.on("get_range", "range", flipped_bit, skip=1)
    assert (await run(store)).failure == "wrong bytes or size for 100+300"


async def test_a_range_with_a_wrong_size_is_fatal(store):
    async def lies(store, key, request):
        part = await request()
        return ObjectRange(part.data, len(part.data))

    store.on("get_range", "range", lies, times=3)
    assert "wrong bytes or size" in (await run(store)).failure


async def test_an_answer_that_ignores_the_range_is_fatal_within_seconds(store):
    store.on("get_range", "range", unavailable, times=100)
    clock = HurriedClock()
    report = await run(store, clock)
    assert report.failure == "503 SlowDown"
    assert clock.now_s - 1000 < 10


async def test_two_lost_answers_to_a_range_are_no_failure(store):
    store.on("get_range", "range", unavailable, times=2)
    assert (await run(store)).failure == ""


async def test_a_list_without_order_is_fatal(store):
    async def backwards(store, key, request):
        return (await request())[::-1]

    store.on("list_after", "list-", backwards)
    assert "LIST" in failed(await run(store))


async def test_versioning_means_mode_b_and_a_warning(store):
    store.configuration = ["versioning is on"]
    report = await run(store)
    assert (report.mode, report.warnings) == ("B", ("versioning is on",))


async def test_lifecycle_expiry_is_a_warning_only(store):
    store.configuration = ["lifecycle rules expire objects"]
    report = await run(store)
    assert (report.mode, report.warnings) == ("A", ("lifecycle rules expire objects",))


async def test_a_clock_that_is_off_is_a_warning(store):
    store.date_ahead_s = 1_800_000_000.0 - 400.0  # HurriedClock began there
    report = await run(store)
    assert "400 s ahead of the store's" in report.warnings[0]


async def test_a_store_that_denies_is_unusable(store):
    store.on("create", layout.PROBE, denied)
    with pytest.raises(StoreUnusableError, match="InvalidAccessKeyId"):
        await run(store)
