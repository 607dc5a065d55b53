"""Rows of `seb bench mqtt`: so many publishers and subscribers, with QoS 0 or 1."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from seb_appliance.bench.connecting import BenchError
from seb_appliance.bench.meters import Curve, Latencies
from seb_appliance.bench.mqtt.client import HEAD, Client
from seb_appliance.bench.plan import MQTT_SHAPES

WARM_UP_S: Final = 0.5
_DRAIN_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`in_flight`: messages of a publisher that are not acknowledged (QoS 1) and received by all
    subscribers. So nobody is sent more than it takes."""

    shape: str
    publishers: int
    subscribers: int
    qos: int
    payload_bytes: int
    in_flight: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class Broker:
    name: str
    host: str
    port: int
    password: str | None


class MqttRow(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of a broker. `in_per_s`: that were done with; `out`: that were
    received by subscribers. `latency`: from sending to the acknowledgement, or with QoS 0 to the
    last subscriber. `wrong`: lost, twice, or out of order."""

    broker: str
    shape: str
    qos: int
    publishers: int
    subscribers: int
    seconds: float
    in_per_s: float
    out_per_s: float
    latency: Curve | None
    received: int
    wrong: int


class _Publisher:
    """Sends the next message as soon as one is done with."""

    def __init__(self, number: int, work: Work, meter: _Meter) -> None:
        self.number = number
        self.sent = 0
        self.done = 0
        self._work = work
        self._meter = meter
        self._ends = work.subscribers + (work.qos > 0)  # of a message, until it is done with
        self._left = deque[list[float]]()  # ends that are missing, and when it was sent
        self._acked = 0
        self.publish: Callable[[bytes], None] = lambda _: None
        self._tail = b"x" * (work.payload_bytes - HEAD.size)

    def fill(self) -> None:
        while not self._meter.is_over and self.sent - self.done < self._work.in_flight:
            self._left.append([self._ends, self._meter.now_s()])
            self.publish(HEAD.pack(self.number, self.sent) + self._tail)
            self.sent += 1

    def acked(self) -> None:
        self._end(self._acked, is_ack=True)
        self._acked += 1

    def received(self, number: int) -> None:
        self._end(number, is_ack=False)

    def all_done(self) -> None:
        """Of messages that nobody acknowledges or receives."""
        self._meter.done += len(self._left)
        self.done += len(self._left)
        self._left.clear()

    def _end(self, number: int, *, is_ack: bool) -> None:
        at = number - self.done
        if not 0 <= at < len(self._left):
            return  # the subscriber says what is wrong
        waiting = self._left[at]
        waiting[0] -= 1
        if (is_ack or not self._work.qos) and (is_ack or not waiting[0]):
            self._meter.took(self._meter.now_s() - waiting[1])
        while self._left and not self._left[0][0]:
            self._left.popleft()
            self.done += 1
            self._meter.done += 1
        self.fill()


class _Meter:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.latencies = Latencies()
        self.is_measuring = False
        self.is_over = False
        self.done = 0
        self.received = 0
        self.wrong = 0

    def took(self, seconds: float) -> None:
        if self.is_measuring:
            self.latencies.add(seconds)


class _Subscriber:
    def __init__(self, publishers: list[_Publisher], meter: _Meter) -> None:
        self._publishers = publishers
        self._meter = meter
        self.expected = [0] * len(publishers)

    def received(self, payload: bytes) -> None:
        publisher, number = HEAD.unpack_from(payload)
        self._meter.received += 1
        expected = self.expected[publisher]
        if number != expected:
            self._meter.wrong += 1
        self.expected[publisher] = number + 1
        self._publishers[publisher].received(number)


async def measure(
    work: Work,
    broker: Broker,
    now_s: Callable[[], float] = time.perf_counter,
    drain_s: float = _DRAIN_S,
) -> MqttRow:
    """Raises BenchError."""
    meter, prefix = _Meter(now_s), f"bench/{secrets.token_hex(4)}"
    publishers = [_Publisher(number, work, meter) for number in range(work.publishers)]
    subscribers = [_Subscriber(publishers, meter) for _ in range(work.subscribers)]
    name = broker.name
    clients = [Client(name, one.received) for one in subscribers]
    clients += [Client(name, lambda _: None, one.acked) for one in publishers]
    pinging: list[asyncio.Task[None]] = []
    try:
        for number, client in enumerate(clients):
            await _connect(client, broker, f"{prefix}/{number}")
        for client in clients[: work.subscribers]:
            await client.subscribe(f"{prefix}/+", work.qos)
        for one, client in zip(publishers, clients[work.subscribers :], strict=True):
            one.publish = client.publisher(f"{prefix}/{one.number}", work.qos)
            if work.subscribers or work.qos:
                one.fill()
            else:
                pinging.append(asyncio.create_task(_ping_through(one, client, meter)))
        await asyncio.sleep(WARM_UP_S)
        began_s, done, received = now_s(), meter.done, meter.received
        meter.is_measuring = True
        await asyncio.sleep(work.duration_s)
        meter.is_measuring = False
        seconds = now_s() - began_s
        done, received = meter.done - done, meter.received - received
        meter.is_over = True
        await asyncio.gather(*pinging)
        await _drain(publishers, clients, now_s, now_s() + drain_s)
        lost = sum(one.sent - one.done for one in publishers)
    finally:
        for task in pinging:
            task.cancel()
        for client in clients:
            client.close()
    return MqttRow(
        broker=broker.name,
        shape=work.shape,
        qos=work.qos,
        publishers=work.publishers,
        subscribers=work.subscribers,
        seconds=round(seconds, 3),
        in_per_s=round(done / seconds, 1),
        out_per_s=round(received / seconds, 1),
        latency=meter.latencies.curve(),
        received=meter.received,
        wrong=meter.wrong + lost,
    )


async def _connect(client: Client, broker: Broker, name: str) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(lambda: client, broker.host, broker.port)
    except OSError as error:
        where = f"{broker.host}:{broker.port}"
        raise BenchError(f"no MQTT broker answers at {where} ({error})", reachable=False) from error
    await client.enter(name, broker.password)


async def _ping_through(publisher: _Publisher, client: Client, meter: _Meter) -> None:
    """Nothing tells of these messages but that a later ping is answered."""
    while not meter.is_over:
        publisher.fill()
        await client.ping()
        publisher.all_done()


async def _drain(
    publishers: list[_Publisher],
    clients: list[Client],
    now_s: Callable[[], float],
    give_up_s: float,
) -> None:
    while any(one.sent > one.done for one in publishers) and now_s() < give_up_s:
        for one in clients:
            one.check()
        await asyncio.sleep(0.01)


def works(
    shapes: Sequence[str], levels: Sequence[int], *, publishers: int | None, **given: Any
) -> list[Work]:
    """`publishers`: of the shape `in`."""
    return [
        Work(
            shape=shape,
            publishers=publishers or many if shape == "in" else many,
            subscribers=subscribers,
            qos=qos,
            **given,
        )
        for shape, (many, subscribers) in MQTT_SHAPES.items()
        for qos in levels
        if shape in shapes
    ]
