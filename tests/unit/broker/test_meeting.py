"""Topics that are new or change, and those who read them."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance import limits, tasks
from seb_appliance.broker.meeting import Meetings, Readers
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.formats.topic_settings import TopicSettings


class Guest:
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.met: list[int] = []


def topic_of(topic_id: int) -> Topic:
    return Topic(topic_id, f"t{topic_id}", 0, TopicSettings())


async def test_everybody_meets_each_topic_once_and_owners_take_turns() -> None:
    greedy, good = [Guest("greedy") for _ in range(100)], Guest("good")
    order: list[Guest] = []

    def meet(guest: Guest, topic: Topic) -> None:
        guest.met.append(topic.topic_id)
        order.append(guest)

    meetings = Meetings(lambda: [*greedy, good], meet)
    for topic_id in (1, 2, 3):
        meetings.add(topic_of(topic_id))
    assert order == []
    done = 0
    while len(order) < 3 * 101:
        await asyncio.sleep(0)
        assert len(order) - done <= limits.WAKES_PER_TURN, "others run in between"
        done = len(order)
    assert all(guest.met == [1, 2, 3] for guest in (*greedy, good))
    assert max(i for i, guest in enumerate(order) if guest is good) < 10


async def test_readers_of_topics_that_change_in_one_moment_are_told_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "SLICE_S", 0)
    guests = [Guest("greedy") for _ in range(20)]
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    def told(guest: Guest, topic: Topic) -> None:
        guest.met.append(topic.topic_id)
        if guest is guests[0]:
            raise ValueError("a bug in one of them")

    readers = Readers(told)
    topics = [topic_of(topic_id) for topic_id in range(5)]
    for guest in guests:
        for topic in topics:
            readers.add(guest, topic.topic_id)
    readers.remove(guests[-1], [4])
    for topic in (*topics, *topics):
        readers.changed(topic)
    done = 0
    while done < 99:
        await asyncio.sleep(0)
        count = sum(len(guest.met) for guest in guests)
        assert count - done <= 1, "others run in between"
        done = count
    assert all(guest.met == [0, 1, 2, 3, 4] for guest in guests[:-1])
    assert guests[-1].met == [0, 1, 2, 3]
    topics[1].deleted = True
    readers.changed(topics[1])
    while done < 119:
        await asyncio.sleep(0)
        done = sum(len(guest.met) for guest in guests)
    readers.changed(topics[1])
    await asyncio.sleep(0)
    assert sum(len(guest.met) for guest in guests) == done, "a deleted topic has no readers"
