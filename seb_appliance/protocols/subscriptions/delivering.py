"""One subscription at work: takes records from its queue, sends them, and ends their deliveries."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from seb_appliance.api.server.options import SecretBox
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.queues.by_place import Place as QueuePlace
from seb_appliance.broker.queues.takers import Lent, Taken
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.errors import (
    ConfigurationError,
    OverloadedError,
    QueueNotFoundError,
    SebError,
    ShareExceededError,
    ShuttingDownError,
)
from seb_appliance.protocols.subscriptions import limits as push_limits
from seb_appliance.protocols.subscriptions.bodies import (
    Body,
    body_of,
    first_of,
    head_of,
    id_of,
    offsets_of,
)
from seb_appliance.protocols.subscriptions.sending import Answered, DeliveryError, Sender
from seb_appliance.protocols.subscriptions.settings import OF_ONE
from seb_appliance.protocols.subscriptions.subscriptions import (
    Subscription,
    headers_of,
    secrets_of,
)
from seb_appliance.tasks import Background

_log = logging.getLogger(__name__)
# `put_off`: the receiver asked to be left alone for a while; nothing is counted against the record.
Outcome = Literal["delivered", "put_off", "failed", "gone", "test"]
_OK: Final = range(200, 300)
_GONE: Final = 410
_MAY_ASK_FOR_TIME: Final = (429, 503)
_TAKE_MS: Final = 60_000
_LEASE_MARGIN_MS: Final = 30_000
_NOTED_AFTER_US: Final = 3_600_000_000  # a shorter failure is not stored
_NO_ROOM_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sent:
    """One line of the log. `status`: 0 for no answer. `topic`, `offset`: of the first record; "" of
    a test. `detail`: the beginning of the answer, or why there is none."""

    at_us: int
    webhook_id: str
    topic: str
    offset: int
    records: int
    attempt: int
    request_bytes: int
    status: int
    took_ms: int
    outcome: Outcome
    detail: str


@dataclass(frozen=True, slots=True)
class Tools:
    """What all subscriptions share. `on_its_way` counts requests, `body_bytes` those of their
    bodies, apart from the answers to readers: a slow receiver holds them for long. `disable` and
    `note_failing` store a change of the subscription of this name."""

    broker: Broker
    box: SecretBox
    sender: Sender
    bucket_id: bytes
    on_its_way: Shares
    body_bytes: Shares
    counts: Counter[Outcome]
    disable: Callable[[str, str], Coroutine[None, None, None]]
    note_failing: Callable[[str, int], Coroutine[None, None, None]]


def retry_after_s(headers: Mapping[str, str], now_us: int) -> float | None:
    """What the receiver asks for, at most PUSH_RETRY_AFTER_S_MAX; None if it asks for nothing."""
    said = headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        seconds = float(said[:9])
    else:
        try:
            seconds = parsedate_to_datetime(said).timestamp() - now_us / 1_000_000
        except (ValueError, TypeError, OverflowError):
            return None
    if not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), push_limits.RETRY_AFTER_S_MAX)


class Worker:
    """Runs from `run` to `stop`. `log`: the last deliveries, in memory. `failing_since_us`: 0 while
    it works. `failure`: why it does not even send, "" if it does."""

    def __init__(self, subscription: Subscription, tools: Tools) -> None:
        self.subscription = subscription
        self.running: Subscription | None = None  # what it was told to run
        self.log: deque[Sent] = deque(maxlen=push_limits.LOG_KEPT)
        self.failing_since_us = subscription.settings.failing_since_us
        self.failure = ""
        self._tools = tools
        self._clock, self._log_clock = tools.broker.clock, tools.broker.log_clock
        self._failures = 0  # in a row
        self._rests_until_s = 0.0
        self._next_s = 0.0  # when the rate allows the next request
        self._sending: set[asyncio.Task[None]] = set()
        self._storing: set[asyncio.Task[None]] = set()  # what became of a request
        self._moved = asyncio.Event()  # a request has ended
        self._loop: Background | None = None

    @property
    def on_its_way(self) -> int:
        return len(self._sending)

    @property
    def is_failing(self) -> bool:
        """Active, but its requests fail, or cannot even be sent."""
        is_active = self.subscription.settings.state == "active"
        return is_active and bool(self.failing_since_us or self.failure)

    # --- life ---

    async def run(self, subscription: Subscription) -> None:
        """With these settings from now on. Requests on their way end with the former ones."""
        if self._loop is not None:
            await self._loop.close()
        self.subscription = self.running = subscription
        self._loop = None
        self.failure = ""
        if subscription.settings.state == "active":
            name = f"subscription {subscription.name}"
            self._loop = Background(name, self._clock, is_essential=False)
            self._loop.begin(self._run)

    def rouse(self) -> None:
        """Try now, whatever failed before."""
        self._failures, self._rests_until_s = 0, 0.0
        self.failing_since_us = 0

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take nothing more. Requests on their way may end within `grace_s`."""
        if self._loop is not None:
            await self._loop.close()
        tasks = self._sending | self._storing
        if tasks and grace_s:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._wait_for_room()
                await self._send_next()
            except ShuttingDownError:
                return
            except (SebError, ConfigurationError) as error:
                # There may be room, a bucket, the queue, or the key of its secrets again later.
                self.failure = str(error)
                pauses = isinstance(error, QueueNotFoundError)
                await self._clock.sleep(push_limits.REST_S_MAX if pauses else _NO_ROOM_S)

    async def _wait_for_room(self) -> None:
        """Until one more request may be sent."""
        while True:
            self._moved.clear()
            now_s = self._clock.monotonic_s()
            wait_s = max(self._rests_until_s, self._next_s) - now_s
            # While the receiver fails, one request finds out whether it still does.
            at_once = 1 if self._failures else self.subscription.settings.concurrency
            if len(self._sending) >= at_once or not self._may_have_one():
                await self._moved.wait()
            elif wait_s > 0:
                await self._clock.sleep(wait_s)
            else:
                return

    def _may_have_one(self) -> bool:
        """One request of each subscription is free: no slow receiver takes another's place."""
        owner = self.subscription.settings.owner
        return not self._sending or self._tools.on_its_way.has_room(owner, 1)

    async def _send_next(self) -> None:
        """Raises SebError."""
        subscription, broker = self.subscription, self._tools.broker
        settings = subscription.settings
        secrets = secrets_of(settings, self._tools.box)
        headers = headers_of(settings, self._tools.box)
        most = 1 if settings.body in OF_ONE else settings.batch
        lease_ms = settings.timeout_ms + _LEASE_MARGIN_MS
        self.failure = ""
        taken = await broker.queues.take(
            subscription.name, most, _TAKE_MS, lease_ms, settings.owner
        )
        if not taken:
            return
        room = Reservation(self._tools.on_its_way, settings.owner)
        if not self._sending:
            room.grow_anyway(1)
        elif not room.try_grow(1):  # somebody else was quicker
            broker.queues.undo(subscription.name, taken)
            return
        if settings.rate is not None:
            now_s = self._clock.monotonic_s()
            self._next_s = max(self._next_s, now_s) + 1 / settings.rate
        work = self._deliver(subscription, taken, room, (secrets, headers))
        task = asyncio.create_task(work, name=f"delivery of {subscription.name}")
        self._sending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._storing.discard(task)
        self._moved.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": "a delivery has failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    # --- one request ---

    async def _deliver(
        self,
        subscription: Subscription,
        taken: Sequence[Taken],
        room: Reservation,
        private: tuple[Sequence[str], Mapping[str, str]],
    ) -> None:
        queues, settings = self._tools.broker.queues, subscription.settings
        ended, lent = False, [one.without_records() for one in taken]
        name = id_of(self._tools.bucket_id, subscription.name, taken)
        try:
            with room, self._tools.body_bytes.reserve(settings.owner, 0) as held:
                body = await body_of(settings.body, taken, held)
                del taken  # and its batches, which may be thousands of times as large as the body
                sent = await self._send(subscription, name, lent, body, private)
            await self._end(subscription, lent, sent)
            ended = True
        except (ShareExceededError, OverloadedError) as error:
            self.failure = str(error)
            self._rests_until_s = self._clock.monotonic_s() + _NO_ROOM_S
        except SebError as error:  # the bucket: the lease ends, and the record is sent again
            if not isinstance(error, ShuttingDownError):
                _log.warning("subscription %s: %s", subscription.name, error)
        finally:
            if not ended:
                queues.undo(subscription.name, lent)

    async def _send(
        self,
        subscription: Subscription,
        name: str,
        taken: Sequence[Lent],
        body: Body,
        private: tuple[Sequence[str], Mapping[str, str]],
    ) -> tuple[Sent, Answered | None]:
        first, attempt = first_of(taken), max(o.attempt for one in taken for o in one.deliveries)
        more = {"Seb-Topic": first.topic, "Seb-Offset": str(first.offset)}
        more["Seb-Attempt"] = str(attempt)
        count = sum(len(one.deliveries) for one in taken)
        return await self.post(
            subscription, name, body, private, (first.topic, first.offset, count, attempt), more
        )

    async def post(
        self,
        subscription: Subscription,
        name: str,
        body: Body,
        private: tuple[Sequence[str], Mapping[str, str]],
        of: tuple[str, int, int, int],
        more: Mapping[str, str],
    ) -> tuple[Sent, Answered | None]:
        """Send, and write the log. `of`: topic, offset, records, attempt."""
        secrets, headers = private
        at_us, began_s = self._clock.wall_us(), self._clock.monotonic_s()
        head = await head_of(name, secrets, at_us // 1_000_000, body, {**headers, **more})
        timeout_s = subscription.settings.timeout_ms / 1_000
        answered: Answered | None = None
        try:
            answered = await self._tools.sender.post(
                subscription.target,
                head,
                body.content,
                timeout_s,
                subscription.name,
                subscription.settings.owner,
            )
            detail = bytes(answered.body).decode(errors="replace").strip()
        except DeliveryError as error:
            detail = str(error)
        took_ms = round((self._clock.monotonic_s() - began_s) * 1_000)
        status = 0 if answered is None else answered.status
        outcome = self._outcome(answered) if of[0] else "test"
        sent = Sent(
            at_us,
            name,
            *of,
            len(body.content),
            status,
            took_ms,
            outcome,
            detail[: push_limits.ANSWER_CHARACTERS_KEPT],
        )
        self.log.append(sent)
        self._tools.counts[outcome] += 1
        return sent, answered

    def _outcome(self, answered: Answered | None) -> Outcome:
        if answered is None:
            return "failed"
        if answered.status in _OK:
            return "delivered"
        if answered.status == _GONE:
            return "gone"
        asks = retry_after_s(answered.headers, self._clock.wall_us())
        puts_off = answered.status in _MAY_ASK_FOR_TIME and asks is not None
        return "put_off" if puts_off else "failed"

    async def _end(
        self,
        subscription: Subscription,
        taken: Sequence[Lent],
        found: tuple[Sent, Answered | None],
    ) -> None:
        """Raises what an acknowledgement raises."""
        sent, answered = found
        queues, name, owner = (
            self._tools.broker.queues,
            subscription.name,
            subscription.settings.owner,
        )
        if sent.outcome == "delivered":
            self._failures = 0
            self._store_apart()
            await queues.ack(name, self._tokens(name, taken), owner)
            await self._works()
        elif sent.outcome == "failed":
            self._fails()
            self._store_apart()
            await queues.retry(name, self._tokens(name, taken), None, owner)
            await self._look_at_failing(sent)
        else:
            queues.undo(name, taken)
            if sent.outcome == "gone":
                await self._tools.disable(name, "The receiver answered 410 Gone.")
            elif answered is not None:
                asked_s = retry_after_s(answered.headers, self._clock.wall_us()) or 0.0
                self._fails(asked_s)
                await self._look_at_failing(sent)

    def _store_apart(self) -> None:
        """While windows are stretched, what became of a request waits for long: it holds up no
        other request."""
        task = asyncio.current_task()
        if task in self._sending and self._tools.broker.linger.stretched_s:
            self._sending.discard(task)
            self._storing.add(task)
            self._moved.set()

    def _tokens(self, name: str, taken: Sequence[Lent]) -> list[str]:
        token = self._tools.broker.queues.token
        leases = [out.lease for one in taken for out in one.deliveries]
        places = [QueuePlace(*place) for place in offsets_of(taken)]
        return [token(name, place, lease) for place, lease in zip(places, leases, strict=True)]

    # --- a receiver that works, or does not ---

    async def _works(self) -> None:
        if self.failing_since_us:
            self.failing_since_us = 0
            if self.subscription.settings.failing_since_us:
                await self._tools.note_failing(self.subscription.name, 0)

    def _fails(self, asked_s: float = 0.0) -> None:
        """Rest for longer and longer, so that a receiver that is down costs few attempts."""
        self._failures += 1
        rest_s = min(2.0 ** min(self._failures - 1, 10), push_limits.REST_S_MAX)
        if self._failures <= self.subscription.settings.concurrency and not asked_s:
            rest_s = 0.0  # it may be the record
        until_s = self._clock.monotonic_s() + max(rest_s, asked_s)
        self._rests_until_s = max(self._rests_until_s, until_s)
        self.failing_since_us = self.failing_since_us or self._log_clock.created_us()

    async def _look_at_failing(self, sent: Sent) -> None:
        settings, name = self.subscription.settings, self.subscription.name
        for_us = self._log_clock.age_us(self.failing_since_us)
        if for_us >= settings.disable_after_ms * 1_000:
            last = f"{sent.status} {sent.detail}" if sent.status else sent.detail
            days = for_us / 86_400_000_000
            await self._tools.disable(name, f"Every request failed for {days:.1f} days: {last}")
        elif for_us >= _NOTED_AFTER_US and not settings.failing_since_us:
            await self._tools.note_failing(name, self.failing_since_us)
