"""Shared subscriptions: each message that matches goes to one client of a group.

A share reads the logs by a cursor of its own. While a session that outlives its connection belongs
to it, the cursor is the committed offsets of a consumer group, as that of a session.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, deque
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol

from seb_appliance.broker.read.waiting import FollowerOfMany
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.errors import GroupNotFoundError, SebError
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import Code, MqttError, Publish, Subscription
from seb_appliance.protocols.mqtt.messages.filters import Filters
from seb_appliance.protocols.mqtt.messages.grants import word
from seb_appliance.protocols.mqtt.messages.reading import Logs, Offsets, Row, Turns
from seb_appliance.protocols.mqtt.messages.records import share_of
from seb_appliance.protocols.mqtt.sending.dispatching import Subscriber
from seb_appliance.protocols.mqtt.sending.outgoing import Outgoing, merged
from seb_appliance.protocols.mqtt.sessions import Session, Sessions
from seb_appliance.protocols.mqtt.unfinished import Place

_log = logging.getLogger(__name__)
_READ_AT_ONCE: Final = 100  # records: what is read is not sent before a client has room


class Name(NamedTuple):
    """SharedSubscriptions of different API keys have nothing to do with each other."""

    api_key_id: str
    group: str
    topic_filter: str


def check_shared(api_key_id: str, topic_filter: str) -> Name:
    """Of `$share/GROUP/FILTER`. Raises MqttError."""
    return Name(api_key_id, *share_of(topic_filter))


class Member(Subscriber, Protocol):
    """A connection."""

    session: Session

    @property
    def has_left(self) -> bool: ...


class Share:
    """`next_offsets`: where it reads on; a topic that is missing there is newer than the share.
    `keepers`: sessions that outlive their connections."""

    def __init__(self, name: Name, next_offsets: Offsets, shares: SharedSubscriptions) -> None:
        self.name = name
        self.next_offsets = next_offsets
        self.keepers = set[Session]()
        self.is_over = False
        self._members = dict[Member, Subscription]()
        self._turns = deque[Member]()
        self._full = dict[Outgoing, Member]()  # those of whom `has_room` follows
        self._shares = shares
        self._filter = Filters[None]()
        self._filter.put(name.topic_filter, self, None)
        self._out = set[Place]()  # messages that are not acknowledged
        self._returned = list[Place]()  # a heap of those that another client must get
        self._resent: Place | None = None  # the one that was taken from it
        self._room = asyncio.Event()
        self._follower: FollowerOfMany | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_stored(self) -> bool:
        return bool(self.keepers)

    @property
    def is_used(self) -> bool:
        return bool(self.keepers or self._members)

    @property
    def group(self) -> str:
        api_key_id, group, topic_filter = self.name
        said = f"{word(group)}/{topic_filter}".encode()
        return f"mqtt-share.{api_key_id}._x{hashlib.sha256(said).hexdigest()[:40]}"

    @property
    def acknowledged(self) -> Offsets:
        """All messages before them are done with."""
        found = dict(self.next_offsets)
        resent = () if self._resent is None else (self._resent,)
        for topic_id, offset in self._out.union(self._returned, resent):
            found[topic_id] = min(found.get(topic_id, offset), offset)
        return found

    # --- clients ---

    def join(self, member: Member, asked: Subscription) -> None:
        if member not in self._members:
            self._turns.append(member)
        self._members[member] = asked
        member.outgoing.shares.add(self)
        self.wake()
        if self._reading is None:
            self._reading = asyncio.create_task(self._run(), name="mqtt share")

    def leave(self, member: Member) -> None:
        if self._members.pop(member, None) is None:
            return
        if self._full.pop(member.outgoing, None) is None:
            self._turns.remove(member)
        member.outgoing.shares.discard(self)
        if not self._members and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def wake(self) -> None:
        """A client may have room."""
        self._room.set()

    def has_room(self, outgoing: Outgoing) -> None:
        """The client may."""
        member = self._full.pop(outgoing, None)
        if member is not None:
            self._turns.append(member)
        self.wake()

    def done(self, place: Place) -> None:
        """The message is acknowledged."""
        self._out.discard(place)
        self._shares.acknowledged(self)

    def give_back(self, place: Place) -> None:
        """Its client has gone without an acknowledgement."""
        if place in self._out:
            self._out.remove(place)
            heappush(self._returned, place)
            self.wake()
            if self._follower is not None:
                self._follower.wake()

    # --- the log ---

    async def _run(self) -> None:
        """A failure ends the connections of its clients, who come again."""
        following = self._shares.logs.follow(self.name.topic_filter, self.name.api_key_id)
        try:
            with await following as follower:
                self._follower = follower
                while not follower.stopping:
                    await self._send_returned()
                    changed = list(follower.changed.values())
                    follower.changed.clear()
                    for topic in changed:
                        await self._send_new(topic)
                    if not (follower.changed or self._returned):
                        await follower.wait()
        except SebError as error:
            _log.warning("an MQTT share cannot be served: %s", error)
            self._failed(error.detail)
        except Exception:
            _log.exception("an MQTT share cannot be served")
            self._failed("an internal error")
        finally:
            self._follower = None

    def _failed(self, reason: str) -> None:
        self._reading = None
        for member in tuple(self._members):
            member.end(reason, Code.UNAVAILABLE)

    async def _send_new(self, topic: Topic) -> None:
        """Some of what is new in it; if there is more, it is still among the changed ones."""
        assert self._follower is not None
        if topic.deleted:
            self._follower.drop(topic)
            self.next_offsets.pop(topic.topic_id, None)
            return
        topic_id, turns, logs = topic.topic_id, Turns(), self._shares.logs
        begin = self.next_offsets.setdefault(topic_id, 0)
        if begin >= topic.log_end_offset:
            return
        found = await logs.read(topic_id, begin, _READ_AT_ONCE)
        if found is None:
            return
        rows, after = found
        for row in rows:
            await turns.step()
            await self._send_returned()
            await self._send(topic_id, row)
            self.next_offsets[topic_id] = row.offset + 1
        self.next_offsets[topic_id] = after
        self._shares.acknowledged(self)
        if after < topic.log_end_offset:
            self._follower.changed[topic_id] = topic

    async def _send_returned(self) -> None:
        while self._returned:
            place = self._resent = heappop(self._returned)
            try:
                row = await self._shares.logs.record(*place)
                if row is not None:
                    await self._send(place.topic_id, row)
            except BaseException:
                heappush(self._returned, place)
                raise
            finally:
                self._resent = None

    async def _send(self, topic_id: int, row: Row) -> None:
        """Once a client has room."""
        found = self._shares.logs.as_publish(topic_id, row)
        if found is None or not self._filter.match(found[0].topic):
            return
        while (outcome := self._offer(found[0], Place(topic_id, row.offset))) is None:
            self._room.clear()
            await self._room.wait()
        self._shares.counts[outcome] += 1

    def _offer(self, message: Publish, place: Place) -> str | None:
        """What became of it; None if no client has room. The clients take turns."""
        for member in list(self._turns):
            sent = merged(message, [self._members[member]])
            outcome = member.outgoing.offer(sent, self, place)
            if outcome is not None:
                self._turns.remove(member)
                self._turns.append(member)
                if outcome == "sent" and sent.qos:
                    self._out.add(place)
                return outcome
            if not member.outgoing.may_send(sent):  # not looked at again for each message
                self._turns.remove(member)
                self._full[member.outgoing] = member
        return None


class SharedSubscriptions:
    """All shares of a port."""

    def __init__(self, logs: Logs, sessions: Sessions, counts: Counter[str]) -> None:
        self.logs = logs
        self.counts = counts
        self._sessions = sessions
        self._room = logs.broker.shares.declare(
            "mqtt_shares", mqtt_limits.SHARES_MAX, "MQTT shared subscriptions"
        )
        self._all = dict[Name, Share]()
        self._ending = dict[str, asyncio.Task[None]]()  # by group
        sessions.ended = self._session_ended

    @property
    def count(self) -> int:
        return len(self._all)

    def start(self) -> None:
        """After the sessions."""
        found = [(one, *row) for one in self._sessions.all() for row in one.shared.items()]
        oldest_first = sorted(found, key=lambda row: sum(row[2][1].values()))
        for session, topic_filter, (_, since) in oldest_first:
            name = check_shared(session.client[0], topic_filter)
            self._room.take_anyway(name.api_key_id, name not in self._all)
            self._of(name, since).keepers.add(session)

    async def stop(self) -> None:
        await asyncio.gather(*self._ending.values(), return_exceptions=True)

    async def subscribe(self, member: Member, asked: Subscription) -> None:
        """From the log end on, if the share is new. Raises MqttError."""
        name, since = check_shared(member.session.client[0], asked.topic_filter), Offsets()
        if name not in self._all:
            async for topic in self.logs.all_in_slices(name.topic_filter):
                since[topic.topic_id] = topic.log_end_offset
            if member.has_left:
                raise MqttError(Code.UNSPECIFIED, "the client has left")
        self.join(member, asked, since)

    def join(self, member: Member, asked: Subscription, since: Offsets) -> None:
        """`since`: where it begins, if the share is new. Raises MqttError."""
        session = member.session
        name = check_shared(session.client[0], asked.topic_filter)
        if name not in self._all and not self._room.try_take(name.api_key_id, 1):
            raise MqttError(Code.QUOTA, "there are too many shared subscriptions")
        share = self._of(name, since)
        session.shared[asked.topic_filter] = asked, dict(share.next_offsets)
        if session.is_kept:
            share.keepers.add(session)
        share.join(member, asked)
        self.acknowledged(share)

    def unsubscribe(self, member: Member, topic_filter: str) -> bool:
        """Whether there was such a subscription."""
        if member.session.shared.pop(topic_filter, None) is None:
            return False
        share = self._all[check_shared(member.session.client[0], topic_filter)]
        share.leave(member)
        share.keepers.discard(member.session)
        self._end_if_unused(share)
        return True

    def forget(self, member: Member) -> None:
        """The connection is closed."""
        for share in self._shares_of(member.session):
            share.leave(member)
            self._end_if_unused(share)

    def acknowledged(self, share: Share) -> None:
        self._sessions.acknowledged(share)

    # --- inside ---

    def _of(self, name: Name, since: Offsets) -> Share:
        share = self._all.get(name)
        if share is not None:
            return share
        share = self._all[name] = Share(name, dict(since), self)
        done = {}
        if share.group not in self._ending:
            done = self.logs.broker.groups.committed_of(share.group)
        for topic in self.logs.all(name.topic_filter) if done else ():
            if topic.name in done:
                share.next_offsets[topic.topic_id] = done[topic.name].offset
        return share

    def _session_ended(self, session: Session) -> None:
        for share in self._shares_of(session):
            share.keepers.discard(session)
            self._end_if_unused(share)

    def _shares_of(self, session: Session) -> list[Share]:
        names = [check_shared(session.client[0], one) for one in session.shared]
        return [self._all[name] for name in names if name in self._all]

    def _end_if_unused(self, share: Share) -> None:
        if share.is_used or share.is_over:
            return
        share.is_over = True
        del self._all[share.name]
        self._room.give_back(share.name.api_key_id, 1)
        group = share.group
        task = self._ending[group] = asyncio.create_task(self._remove(group), name="mqtt share")
        task.add_done_callback(lambda _: self._ending.pop(group, None))

    async def _remove(self, group: str) -> None:
        try:
            await self.logs.broker.groups.delete(group)
        except GroupNotFoundError:
            return
        except SebError as error:
            _log.warning("the group %s of an MQTT share is not deleted: %s", group, error)
