"""All subscriptions of an appliance that writes: their workers, and every change of them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import ClassVar, Final, get_args
from weakref import WeakValueDictionary

import msgspec

from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.api.server.options import SecretBox
from seb_appliance.broker.access.audit import THE_APPLIANCE, Actor
from seb_appliance.broker.broker import Broker
from seb_appliance.errors import NotFoundError, QueueNotFoundError
from seb_appliance.formats.queues.queues import QueueSettings, RetryRule
from seb_appliance.protocols.subscriptions import limits as push_limits
from seb_appliance.protocols.subscriptions.bodies import Body
from seb_appliance.protocols.subscriptions.delivering import Outcome, Sent, Tools, Worker
from seb_appliance.protocols.subscriptions.sending import Sender
from seb_appliance.protocols.subscriptions.subscriptions import (
    KIND,
    State,
    StoredSubscription,
    Subscription,
    SubscriptionWanted,
    encoded,
    headers_of,
    secrets_of,
    shown,
    subscription_of,
    wanted_state,
)
from seb_appliance.tasks import Job

# A receiver may be down for a day and lose nothing: about 30 hours lie between the first and the
# last attempt at a record.
_RETRY: Final = RetryRule(min_ms=1_000, max_ms=3_600_000)
_ATTEMPTS: Final = 40
_log = logging.getLogger(__name__)
_TEST: Final = b'{"specversion":"1.0","id":"%b","source":"/v1/subscriptions/%b","type":"seb.test"}'
_TEST_TYPES: Final = {
    "value": "application/json",
    "event": "application/cloudevents+json",
    "events": "application/cloudevents-batch+json",
    "records": "application/json",
}


def no_such_subscription(name: str) -> NotFoundError:
    return NotFoundError(f"There is no subscription {name[:100]!r} that you may manage.")


class Subscriptions(Job):
    """Workers run from `start` to `stop`, which a standby does not call; they are there, and can be
    asked, as long as their subscription."""

    name: ClassVar[str] = "subscriptions"

    def __init__(
        self,
        broker: Broker,
        box: SecretBox,
        sender: Sender,
        bucket_id: bytes,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        on_its_way = broker.shares.declare("pushes", push_limits.AT_ONCE_MAX, "requests")
        body_bytes = broker.shares.declare(
            "push_bytes", push_limits.BODIES_BYTES_MAX, "bytes of requests"
        )
        self._broker = broker
        self._box = box
        self._random_bytes = random_bytes
        self._workers: dict[str, Worker] = {}
        self._counts: Counter[Outcome] = Counter()
        self._changed = asyncio.Event()
        self._roused: set[str] = set()
        # A change replaces the whole document, so there is one of each at a time.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tools = Tools(
            broker,
            box,
            sender,
            bucket_id,
            on_its_way,
            body_bytes,
            self._counts,
            self._disable,
            self._note_failing,
        )

    # --- workers ---

    async def _run(self) -> None:
        self._broker.documents.watch(KIND, self._changed.set)
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            rows = {row.name: row for row in self._broker.documents.of_kind(KIND)}
            for name in [name for name in self._workers if name not in rows]:
                await self._workers.pop(name).stop()
            for name, row in rows.items():
                found = subscription_of(row)
                worker = self.worker(found)
                if worker.running is found and name not in self._roused:
                    continue
                if name in self._roused:
                    self._roused.discard(name)
                    worker.rouse()
                await worker.run(found)

    async def stop(self) -> None:
        await self.close()
        stopping = [worker.stop(push_limits.STOP_S) for worker in self._workers.values()]
        await asyncio.gather(*stopping)
        self._tools.sender.close()

    def worker(self, subscription: Subscription) -> Worker:
        """It may not run yet."""
        found = self._workers.get(subscription.name)
        if found is None:
            found = self._workers[subscription.name] = Worker(subscription, self._tools)
        return found

    # --- changes ---

    def _turn(self, name: str) -> asyncio.Lock:
        """Of changes of this one; those of others do not wait for it."""
        return self._turns.setdefault(name, asyncio.Lock())

    def all(self) -> list[Subscription]:
        """By name."""
        return [subscription_of(row) for row in self._broker.documents.of_kind(KIND)]

    def find(self, name: str) -> Subscription | None:
        """As of the last applied entry."""
        row = self._broker.documents.get(KIND, name)
        return None if row is None else subscription_of(row)

    async def save(
        self,
        name: str,
        wanted: SubscriptionWanted,
        by: Actor,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[bool, str | None]:
        """Whether it is new, and its secret if that is a random one. Its queue is made if it does
        not exist. `check`: whether it may be, which is asked when its turn has come: somebody else
        may have made it meanwhile. Raises BadRequestError, QueueNotFoundError, and what `check` and
        a change of a queue raise."""
        async with self._turn(name):
            if check is not None:
                await check()
            before = self.find(name)
            stored, secret = wanted_state(
                wanted, None if before is None else before.settings, self._box, by.owner
            )
            await self._set_queue(name, wanted, by)
            return await self._put(name, stored, by), secret

    async def _set_queue(self, name: str, wanted: SubscriptionWanted, by: Actor) -> None:
        try:
            settings = self._broker.queues.get(name).settings
        except QueueNotFoundError:
            if wanted.topics is None:
                raise
            settings = QueueSettings(topics=(), max_deliveries=_ATTEMPTS, retry=_RETRY)
        if wanted.topics is not None and wanted.topics != settings.topics:
            settings = msgspec.structs.replace(settings, topics=wanted.topics)
            await self._broker.queues.put(name, settings, by)

    async def _put(self, name: str, stored: StoredSubscription, by: Actor) -> bool:
        audited = {**shown(stored), "state": stored.state, "why": stored.why}
        return await self._broker.documents.put(KIND, name, encoded(stored), by, audited)

    async def remove(self, name: str, by: Actor) -> None:
        """Its queue stays. Raises NotFoundError."""
        async with self._turn(name):
            await self._broker.documents.remove(KIND, name, by)

    async def set_state(self, name: str, state: State, why: str, by: Actor) -> None:
        """`active` also ends the rest of one whose receiver failed. Raises NotFoundError."""
        await self._change(name, by, state=state, why=why, failing_since_us=0)
        if state == "active":
            self._roused.add(name)
            self._changed.set()

    async def _change(self, name: str, by: Actor, **members: object) -> None:
        async with self._turn(name):
            found = self.find(name)
            if found is None:
                raise no_such_subscription(name)
            stored = msgspec.structs.replace(found.settings, **members)
            if stored != found.settings:
                await self._put(name, stored, by)

    async def _disable(self, name: str, why: str) -> None:
        _log.warning("the subscription %s is disabled: %s", name, why)
        await self.set_state(name, "disabled", why, THE_APPLIANCE)

    async def _note_failing(self, name: str, since_us: int) -> None:
        await self._change(name, THE_APPLIANCE, failing_since_us=since_us)

    # --- a test ---

    async def test(self, name: str) -> Sent:
        """Send a test request now, whatever state it is in. Raises NotFoundError, NotReadyError,
        StandbyError, and what a share raises."""
        if self._broker.standby is not None:
            raise self._broker.standby.again()
        found = self.find(name)
        if found is None:
            raise no_such_subscription(name)
        worker = self.worker(found)
        settings = found.settings
        message = f"test_{self._random_bytes(16).hex()}"
        event = _TEST % (message.encode(), name.encode())
        content = {"events": b"[%b]" % event, "records": b'{"records":[],"test":true}'}
        body = Body(content.get(settings.body, event), _TEST_TYPES[settings.body])
        private = secrets_of(settings, self._box), headers_of(settings, self._box)
        with self._tools.on_its_way.reserve(settings.owner, 1):
            sent, _ = await worker.post(found, message, body, private, ("", 0, 0, 1), {})
        return sent

    # --- metrics ---

    def samples(self) -> Iterator[Sample]:
        text = "Requests of subscriptions to their receivers, by outcome."
        for outcome in get_args(Outcome):
            labels = {"outcome": outcome}
            yield Sample("seb_push_requests_total", text, "counter", self._counts[outcome], labels)
        workers = list(self._workers.values())
        states: Counter[str] = Counter(one.settings.state for one in self.all())
        states["failing"] = sum(one.is_failing for one in workers)
        text = (
            "Subscriptions, by state. Those that fail now, and may be disabled some day, are also "
            "active."
        )
        for state in ("active", "failing", "paused", "disabled"):
            labels = {"state": state}
            yield Sample("seb_subscriptions", text, "gauge", states[state], labels)
        on_its_way = sum(one.on_its_way for one in workers)
        yield Sample("seb_push_requests", "Requests on their way now.", "gauge", on_its_way)
