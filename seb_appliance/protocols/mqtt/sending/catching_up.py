"""What a session's client has missed is read from the logs and sent, until only new records are
left: those come from the dispatcher."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from seb_appliance.errors import SebError
from seb_appliance.protocols.mqtt.codec import Subscription
from seb_appliance.protocols.mqtt.messages.filters import Filters
from seb_appliance.protocols.mqtt.messages.reading import Logs, Row, Turns
from seb_appliance.protocols.mqtt.sending.dispatching import Dispatcher
from seb_appliance.protocols.mqtt.sending.outgoing import Outgoing, merged
from seb_appliance.protocols.mqtt.sessions import Position, Session, Subscribed
from seb_appliance.protocols.mqtt.unfinished import Place, Sent

_Filters = Filters[Subscribed]
_NAME: Final = "mqtt session"
_FEW: Final = 16  # records that are read for a client that takes one at a time
_MANY: Final = 256  # for one that takes as many as there are


class CatchingUp:
    """Of one connection."""

    def __init__(
        self, session: Session, outgoing: Outgoing, dispatcher: Dispatcher, counts: Counter[str]
    ) -> None:
        self._session = session
        self._outgoing = outgoing
        self._dispatcher = dispatcher
        self._logs: Logs = dispatcher.logs
        self._counts = counts
        self._reading = dict[int, asyncio.Task[None]]()  # by topic id
        self._resuming: asyncio.Task[None] | None = None
        outgoing.feed = self

    def resume(self) -> None:
        """Sends again what the session's client has not acknowledged, and then what it missed."""
        session = self._session
        for topic_filter in session.subscriptions:
            for topic in self._logs.all(topic_filter):
                session.position(topic.topic_id)
        is_new = not (session.subscriptions or session.sent)
        for at in session.positions.values():
            at.is_live = is_new
        if not is_new:
            self._resuming = asyncio.create_task(self._resume(), name=_NAME)

    def read_on(self, topic_id: int, at: Position) -> None:
        """From its position on, until nothing but new records is left."""
        at.is_live = False
        task = asyncio.create_task(self._read(topic_id, at), name=_NAME)
        self._reading[topic_id] = task
        task.add_done_callback(lambda _: self._reading.pop(topic_id, None))

    def close(self) -> None:
        """Nothing more is sent from now on."""
        for task in (self._resuming, *self._reading.values()):
            if task is not None:
                task.cancel()
        for topic_id, at in self._session.positions.items():
            if at.is_live:
                done_offset = self._dispatcher.progress(topic_id).done_offset
                at.next_offset = max(at.next_offset, done_offset)
                at.is_live = False

    # --- inside ---

    async def _resume(self) -> None:
        try:
            for packet_id, sent in list(self._session.sent.items()):
                while not self._outgoing.was_sent(packet_id) and not await self._send_again(
                    packet_id, sent
                ):
                    pass
        except SebError as error:
            self._outgoing.fail(error.detail)
            return
        for topic_id, at in list(self._session.positions.items()):
            if topic_id not in self._reading:
                self.read_on(topic_id, at)

    async def _send_again(self, packet_id: int, sent: Sent) -> bool:
        """Whether it is done with."""
        await self._outgoing.room(again=True)
        if sent.is_received:
            return self._outgoing.send_again(sent, packet_id)
        found = None
        if sent.place is not None:
            topic_id, offset = sent.place
            row = await self._logs.record(topic_id, offset)
            found = row and self._logs.as_publish(topic_id, row)
        if found is None:  # it has expired, or was replaced
            self._session.sent.drop(packet_id)
            return True
        return self._outgoing.send_again(sent, packet_id, found[0])

    async def _read(self, topic_id: int, at: Position) -> None:
        subscriptions, filters, most = dict[str, Subscribed](), _Filters(), _FEW
        try:
            while at.next_offset < self._dispatcher.progress(topic_id).begun_offset:
                await self._outgoing.room()
                async with self._dispatcher.catching_up:
                    found = await self._logs.read(topic_id, at.next_offset, most)
                    if found is None:
                        break
                    if subscriptions != self._session.subscriptions:
                        subscriptions = dict(self._session.subscriptions)
                        filters = self._filters_of(subscriptions)
                    has_sent_all = await self._send_all(topic_id, at, *found, filters)
                most = min(2 * most, _MANY) if has_sent_all else _FEW
        except SebError as error:
            self._outgoing.fail(error.detail)
        else:
            at.is_live = True

    def _filters_of(self, subscriptions: dict[str, Subscribed]) -> _Filters:
        filters = _Filters()
        for topic_filter, value in subscriptions.items():
            filters.put(topic_filter, self._session, value)
        return filters

    async def _send_all(
        self, topic_id: int, at: Position, rows: list[Row], after: int, filters: _Filters
    ) -> bool:
        """False once the client takes no more: the others are read again when it does, because
        thousands of clients may take nothing for long."""
        turns = Turns()
        for row in rows:
            await turns.step()
            if not await self._send(topic_id, at, row, filters):
                return False
        at.next_offset = max(at.next_offset, after)
        return True

    async def _send(self, topic_id: int, at: Position, row: Row, filters: _Filters) -> bool:
        """Whether it is done with: sent, or not for the client. QoS 0 is not kept for one that was
        away."""
        found = self._logs.as_publish(topic_id, row)
        if found is None or row.offset < at.next_offset:
            return True
        message, origin = found
        wanted = list[Subscription]()
        for matched in filters.steps(message.topic):
            if matched is None:
                await asyncio.sleep(0)
                continue
            _, (one, since) = matched
            is_own = one.no_local and origin == self._session.client[1]
            if row.offset >= since.get(topic_id, 0) and not is_own:
                wanted.append(one)
        if message.qos and any(one.qos for one in wanted):
            sent = merged(message, wanted)
            if not self._outgoing.may_send(sent):
                return False
            outcome = self._outgoing.send(sent, Place(topic_id, row.offset))
            self._counts[outcome] += 1
        at.next_offset = row.offset + 1
        return True
