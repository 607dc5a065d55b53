"""What forks and their parents do to each other's names, as each of them goes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import LoadedState, TopicRow
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.errors import ForkRefusedError, NameHeldError
from seb_appliance.formats.entry import ORIGIN
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.fakes import FakeClock, FakeJournal, FakeKeyIndex, FakeSource, FakeState, settle
from tests.unit.broker.conftest import House

AS_SET = TopicSettings()


async def fork(house: House, name: str, parent: str) -> None:
    await house.done(house.broker.topics.fork(name, parent))


async def delete(house: House, name: str) -> None:
    await house.done(house.broker.topics.delete(name))


async def is_held(house: House, name: str) -> bool:
    try:
        await house.done(house.broker.topics.create(name, AS_SET))
    except NameHeldError:
        return True
    return False


async def test_a_topic_whose_forks_have_gone_is_deleted_as_any_other(house: House) -> None:
    await house.appended("p", b"0")
    await fork(house, "f", "p")
    await delete(house, "f")
    assert await house.values("p") == [b"0"]
    await delete(house, "p")
    assert not await is_held(house, "p")


async def test_a_topic_is_held_until_the_last_of_several_forks_goes(house: House) -> None:
    await house.appended("p", b"0")
    for name in ("f", "g"):
        await fork(house, name, "p")
    await delete(house, "p")
    await delete(house, "f")
    assert await is_held(house, "p")
    assert await house.values("g") == [b"0"]
    await delete(house, "g")
    assert not await is_held(house, "p")


async def test_a_fork_that_was_deleted_makes_room_for_another(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FORKS_PER_TOPIC_MAX", 1)
    await house.appended("p", b"0")
    await fork(house, "f", "p")
    with pytest.raises(ForkRefusedError):
        await fork(house, "g", "p")
    await delete(house, "f")
    await fork(house, "g", "p")
    assert await house.values("g") == [b"0"]


async def test_after_a_restart_names_are_held_and_depths_counted_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FORK_DEPTH_MAX", 2)
    rows = [
        TopicRow(1, "p", 0, AS_SET, deleted=True),
        TopicRow(2, "f", 0, AS_SET, parent_id=1),
        TopicRow(3, "g", 0, AS_SET, parent_id=2),
    ]
    clock = FakeClock()
    journal, source, state = FakeJournal(clock), FakeSource(), FakeState()
    with ThreadPoolExecutor(1) as executor:
        broker = Broker(
            LoadedState(ORIGIN, next_topic_id=4, topics=rows),
            journal,
            source,
            state,
            BrokerSettings(linger_ms=10),
            FakeKeyIndex(),
            clock=clock,
            executor=executor,
            random_bytes=lambda n: b"\x07" * n,
        )
        broker.start()
        await settle()
        house = House(broker, clock, journal, source, state)
        assert await is_held(house, "p")
        with pytest.raises(ForkRefusedError):
            await fork(house, "h", "g")
        await delete(house, "g")
        assert await is_held(house, "p")
        await delete(house, "f")
        assert not await is_held(house, "p")
        await broker.stop()
