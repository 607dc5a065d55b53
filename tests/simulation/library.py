"""P22: programs that use the product's own client library, with several requests in flight.

The producer, its numbers and its retries are the product's. A request ends here and not in a
socket: it is read as the HTTP API reads it, and asked of a broker; requests may overtake others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from random import Random

from seb_appliance import limits
from seb_appliance.api.encoding.conditions import producer_of
from seb_appliance.api.encoding.problems import problem_body, problem_headers
from seb_appliance.api.encoding.record_bodies import parse_batches
from seb_appliance.api.routes.records.produce import produced
from seb_appliance.broker.append.appends import Conditions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import Appended
from seb_appliance.client.batching import Delivery
from seb_appliance.client.failures import (
    ApplianceError,
    ClientError,
    no_answer,
    refusal,
    unreachable,
)
from seb_appliance.client.producing import AsyncProducer
from seb_appliance.client.transport import Answer, Caller, Endpoint, Request
from seb_appliance.errors import SebError
from tests.simulation.clients import ADMIN
from tests.simulation.clock import SimulatedClock
from tests.simulation.history import Call
from tests.simulation.log import Log
from tests.simulation.process import NotServingError
from tests.simulation.world import Machine, NoAnswerError, World

URL, API_KEY = "http://appliance.example", "seb_test"
_PATIENCE_S = [4.0, 15.0, 40.0]
_BATCH_BYTES = 120
_BY_HEALTH = 0.85  # of requests, that a proxy sends where it is told that a writer is


class Programs:
    """`names`: of the programs; their records begin with it and are numbered."""

    def __init__(self, world: World) -> None:
        self.names = ["c0", "c1"]
        self._topic_ids: dict[str, int] = {}  # as answers told them
        self._world = world
        self._draws = Random(world.draws.getrandbits(64))

    async def run(self, name: str) -> None:
        world, draws = self._world, self._draws
        clock = SimulatedClock(world.loop)
        producer = AsyncProducer(
            URL,
            API_KEY,
            batch_bytes=_BATCH_BYTES,
            clock=clock,
            random=draws.random,
            producer_id=lambda: name,
        )
        patience_s = draws.choice(_PATIENCE_S)
        producer._caller = _Caller(world, draws, clock, patience_s, self._topic_ids)
        number, waiting = 0, list[asyncio.Task[None]]()
        while not world.over:
            await asyncio.sleep(2.5 * draws.random())
            for _ in range(draws.choice([1, 2, 8])):
                topic = draws.choice(["orders", "orders", "feed"])
                mark = b"%s:%d" % (name.encode(), number)
                number += 1
                call = Call(topic, (mark,), world.loop.time())
                world.history.calls.append(call)
                padding = b"." * draws.choice([0, 40])
                delivery = await producer.send(topic, mark + b" " + padding)
                waiting.append(world.loop.task_of(None, self._told(call, delivery)))
        await asyncio.gather(*waiting)
        await self._close(producer)

    async def _told(self, call: Call, delivery: Delivery) -> None:
        try:
            offset = await delivery
        except ApplianceError as error:
            call.outcome = "refused" if error.side_effects == "none" else "unknown"
            self._world.note("program", "is told", call.marks, error.code, call.outcome)
            return
        call.outcome, call.answered_s = "acked", self._world.loop.time()
        call.offset = -1 if offset is None else offset
        call.topic_id = self._topic_ids[call.topic]
        self._world.note("program", "has stored", call.marks, offset)

    async def _close(self, producer: AsyncProducer) -> None:
        try:
            await producer.close()
        except ClientError:
            return  # of records that were told of already

    def violations(self, log: Log) -> Iterator[str]:
        """P22: the records of one program are in a topic in the order in which it sent them."""
        for topic_id, records in log.records.items():
            for name in self.names:
                begin = name.encode() + b":"
                found = [int(r.mark[len(begin) :]) for r in records if r.mark.startswith(begin)]
                for before, after in pairwise(found):
                    if after <= before:
                        yield f"P22 {name} sent {after} before {before}; topic {topic_id} differs"


class _Caller(Caller):
    """With simulated connections."""

    def __init__(
        self,
        world: World,
        draws: Random,
        clock: SimulatedClock,
        patience_s: float,
        topic_ids: dict[str, int],
    ) -> None:
        endpoint = Endpoint(URL, API_KEY)
        super().__init__(endpoint, clock, draws.random, connections=8, patience_s=patience_s)
        self._world = world
        self._draws = draws
        self._topic_ids = topic_ids

    async def once(self, request: Request, sent: asyncio.Lock | None = None) -> Answer:
        if sent is not None:
            async with sent:
                await asyncio.sleep(0.001 * self._draws.random())
        try:
            (appended, conditions), _ = await self._world.ask(
                lambda broker: _appended(broker, request), self._where()
            )
        except NotServingError:
            raise unreachable(URL, "the connection was refused") from None
        except NoAnswerError:
            raise no_answer(URL, "no answer in time") from None
        except SebError as error:
            given = {name.decode(): value.decode() for name, value in problem_headers(error)}
            headers = given | {"seb-version": "1"}
            raise refusal(URL, error.status, headers, problem_body(error, "")) from None
        self._topic_ids[appended.topic] = appended.topic_id
        status, answered, body = produced(appended, conditions)
        return Answer(status, {n.decode(): v.decode() for n, v in answered}, body, True)

    def _where(self) -> Machine | None:
        writers = [
            machine
            for machine in self._world.machines
            if machine.process is not None
            and machine.process.writes
            and not machine.host.to_clients
        ]
        by_health = bool(writers) and self._draws.random() < _BY_HEALTH
        return self._draws.choice(writers) if by_health else None


async def _appended(broker: Broker, request: Request) -> tuple[Appended, Conditions]:
    first, *lines = request.head.rstrip().split(b"\r\n")
    topic = first.split(b" ")[1].split(b"/")[3].decode()
    headers = {name.lower(): value for name, _, value in (ln.partition(b": ") for ln in lines)}
    conditions = Conditions(producer=producer_of(headers, ADMIN.api_key_id))
    records = parse_batches(request.body, limits.REQUEST_BYTES_MAX)
    room = broker.pending.reserve(OPERATOR, len(request.body))
    appended = await broker.appends.append(ADMIN, topic, records, room, None, conditions)
    return appended, conditions
