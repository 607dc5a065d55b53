"""Waiting readers and followers: woken once, by a change, the time, or the stop."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance import tasks
from seb_appliance.broker.read.waiting import Followers, Part, RecentParts, WaitingReaders
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.errors import ShuttingDownError
from seb_appliance.formats.operations import TopicSettings
from tests.support.fakes import FakeClock, settle


def topic_of(topic_id: int) -> Topic:
    return Topic(topic_id, f"t{topic_id}", 0, TopicSettings())


async def test_a_reader_is_woken_once_and_gives_its_share_back() -> None:
    readers, woken = WaitingReaders(FakeClock(), AllShares()), []
    topic = topic_of(1)
    readers.tell(topic, 10, "key", lambda: woken.append(1))
    readers.wake([topic_of(2)])
    await settle()
    assert woken == []
    readers.wake([topic])
    readers.wake([topic])
    await settle()
    assert (woken, readers.shares.used) == ([1], 0)


async def test_a_reader_that_left_is_not_woken() -> None:
    readers, woken = WaitingReaders(FakeClock(), AllShares()), []
    topic = topic_of(1)
    waiter = readers.tell(topic, 10, "key", lambda: woken.append(1))
    waiter.leave()
    readers.wake([topic])
    readers.stop()
    await settle()
    assert (woken, readers.shares.used) == ([], 0)


async def test_nobody_may_follow_an_appliance_that_stops() -> None:
    followers = Followers(FakeClock(), AllShares())
    followers.stop()
    with pytest.raises(ShuttingDownError):
        followers.follow(topic_of(1), "key")
    assert followers.count == 0


async def test_a_follower_of_many_meets_a_topic_that_is_new() -> None:
    followers = Followers(FakeClock(), AllShares())
    with followers.follow_many(lambda name: name == "t2", 1, "key") as follower:
        followers.wake([topic_of(2), topic_of(3)])
        await settle()
        assert list(follower.changed) == [2]
        followers.wake([topic_of(4)])
    await settle()  # who has left meets nothing more
    assert (followers.count, dict(followers.readers.by_topic)) == (0, {})


async def test_followers_are_told_of_many_changes_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "SLICE_S", 0)
    followers = Followers(FakeClock(), AllShares())
    topics = [topic_of(i) for i in range(1, 6)]
    many = [followers.follow_many(lambda _: True, 5, "key") for _ in range(4)]
    for follower in many:
        for topic in topics:
            follower.meet(topic)
        follower.changed.clear()
    followers.wake(topics)
    done = 0
    while done < 20:
        await asyncio.sleep(0)
        told = sum(len(follower.changed) for follower in many)
        assert told - done <= 1, "others run in between"
        done = told
    for follower in many:
        follower.__exit__(None, None, None)
    assert (followers.count, dict(followers.readers.by_topic)) == (0, {})


async def encoded(parts: RecentParts, offset: int) -> Part:
    async def encode() -> Part:
        return Part(b"x", 1, offset + 1)

    return await parts.made_once((1, "", offset), encode)


async def test_the_part_longest_unused_goes_first() -> None:
    parts = RecentParts(bytes_max=2)
    for offset in (0, 1):
        await encoded(parts, offset)
    parts.get((1, "", 0))
    await encoded(parts, 2)
    assert [parts.get((1, "", offset)) is None for offset in (0, 1, 2)] == [False, True, False]


async def test_who_asks_for_a_part_while_it_is_encoded_gets_the_same_one() -> None:
    parts, begun, may_end = RecentParts(bytes_max=9), [], asyncio.Event()

    async def encode() -> Part:
        begun.append(1)
        await may_end.wait()
        return Part(b"x", 1, 1)

    asking = [asyncio.create_task(parts.made_once((1, "", 0), encode)) for _ in range(3)]
    await settle()
    asking[0].cancel()  # its client has left
    await settle()
    may_end.set()
    first, second = await asyncio.gather(*asking[1:])
    assert first is second is parts.get((1, "", 0))
    assert begun == [1]


async def test_a_part_that_could_not_be_encoded_is_encoded_again() -> None:
    parts = RecentParts(bytes_max=9)

    async def fail() -> Part:
        raise ShuttingDownError("now")

    with pytest.raises(ShuttingDownError):
        await parts.made_once((1, "", 0), fail)
    assert (await encoded(parts, 0)).encoded == b"x"
