"""New topics, and those who compare them with their patterns."""

from __future__ import annotations

import asyncio

from seb_appliance import limits
from seb_appliance.broker.meeting import Meetings
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
