"""A take-over in mode A races a writer in force for the next key, and wins."""

from contextlib import suppress

import pytest

from seb_appliance.errors import FencedError
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.appliances import Appliance
from tests.support.faulty_store import FaultyStore, after, before


@pytest.fixture
def store():
    return FaultyStore(MemoryStore())


@pytest.fixture
async def one(store, tmp_path):
    """The writer: entries 1 (epoch), 2 to 10 (numbers 2 to 10)."""
    appliance = await Appliance(store, tmp_path / "one").start()
    for number in range(2, 11):
        await appliance.append(number)
    return appliance


@pytest.fixture
def two(one, store, tmp_path):
    return Appliance(store, tmp_path / "two")


@pytest.mark.parametrize("moment", [before, after])
async def test_a_writer_that_stores_an_entry_at_each_list_is_taken_over(one, two, store, moment):
    """Its windows come faster than a start can list, read and put."""
    numbers = iter(range(11, 1000))

    async def store_another():
        with suppress(FencedError):
            await one.append(next(numbers))

    store.on("list_after", "", moment(store_another), times=900)
    await two.start(take_over=True)
    last = two.replica.numbers[-1]
    assert two.replica.numbers == list(range(2, last + 1))
    assert last < 40  # and not when it had nothing more to store
    with pytest.raises(FencedError):
        await one.append(1000)


async def test_a_writer_that_stores_an_entry_whenever_a_start_applies_is_taken_over(
    one, two, monkeypatch
):
    """Who does anything between GET and PUT loses the race, on a slow disk again and again."""
    numbers = iter(range(11, 1000))
    apply = two.replica.apply

    async def apply_slowly(entries):
        with suppress(FencedError):
            await one.append(next(numbers))
        await apply(entries)

    monkeypatch.setattr(two.replica, "apply", apply_slowly)
    await two.start(take_over=True)
    assert two.replica.numbers == list(range(2, 13))
    with pytest.raises(FencedError):
        await one.append(1000)
