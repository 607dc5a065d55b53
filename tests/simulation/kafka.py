"""A transactional producer of the Kafka protocol that copies a topic: what it reads, it writes and
commits in one transaction. Each step is a request of its own; some transactions are aborted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from random import Random
from typing import Final, TypeVar

from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.values import ApiKeyView, From, NewRecords, ReadRequest
from seb_appliance.errors import GroupNotFoundError, SebError
from seb_appliance.protocols.kafka.apis.producing import stamp_of
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError
from seb_appliance.protocols.kafka.records.incoming import ProducerOf
from seb_appliance.protocols.kafka.server import Server
from seb_appliance.protocols.kafka.transactional_ids import Identity
from seb_appliance.protocols.kafka.transactions import Transactions
from tests.simulation.clients import COPIED, is_refusal, rows_of
from tests.simulation.history import Call
from tests.simulation.log import Log
from tests.simulation.process import NotServingError
from tests.simulation.world import NoAnswerError, World

T = TypeVar("T")

GROUP: Final = "copier"
INPUT: Final = "orders"
OUTPUTS: Final = (COPIED, "feed")
_TIMEOUTS_MS: Final = (60_000, 60_000, 1_000)
_ATTEMPTS: Final = 8  # of a request
_SENT: Final = 4  # times, of one that is sent again while nobody answers
_NOBODY: Final[Identity] = (-1, -1)
_FENCED: Final = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_WAIT: Final = (ErrorCode.CONCURRENT_TRANSACTIONS,)  # the same request will be answered later


class _AnewError(Exception):
    """The producer has to begin anew, perhaps elsewhere. `told`: the answer, if there is one."""

    def __init__(self, told: Exception | None = None) -> None:
        super().__init__(told)
        self.told = told


class Copier:
    """`sequences`: which comes next, by topic, of the producer `identity` at `machine`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._draws = Random(world.draws.getrandbits(64))
        self._servers: dict[Broker, Server] = {}
        self._machine = world.machines[0]
        self._identity = _NOBODY
        self._may_go_on = False  # with the identity that it has, once it has aborted
        self._sequences: dict[str, int] = {}
        self._transactions = 0

    async def work(self) -> None:
        while not self._world.over:
            try:
                await self._begin()
                self._may_go_on = True
                offset = await self._ask(_committed)
                while not self._world.over:
                    offset = await self._copy_some(offset)
                    await self._pause(1.0)
            except _AnewError as error:
                # A request that has no answer may be done later, in the next transaction.
                self._may_go_on &= error.told is not None
                if isinstance(error.told, KafkaError) and error.told.code in _FENCED:
                    self._identity, self._may_go_on = _NOBODY, False
                self._machine = self._draws.choice(self._world.machines)
                await self._pause(0.5)

    async def _begin(self) -> None:
        """Abort what is open and go on; or begin again, as the same producer or as a new one.
        Raises _AnewError."""
        if self._may_go_on and self._draws.random() < 0.6:
            await self._ask(lambda broker: self._end(broker, commits=False))
            return
        timeout_ms = self._draws.choice(_TIMEOUTS_MS)
        given = self._draws.choice([self._identity, _NOBODY])
        self._identity = await self._ask(
            lambda broker: self._of(broker).begin(_key(broker), GROUP, timeout_ms, given)
        )
        self._sequences = dict.fromkeys(OUTPUTS, 0)

    async def _copy_some(self, offset: int) -> int:
        """One transaction, from this offset of the input on. Returns the next one. Raises
        _AnewError."""
        most = self._draws.choice([1, 3, 10])
        rows = await self._ask(lambda broker: _read(broker, offset, most))
        if not rows:
            return offset
        self._transactions += 1
        number, now_s = self._transactions, self._world.loop.time()
        calls = []
        for topic in OUTPUTS:
            marks = tuple(b"K%s:%d:%d" % (topic[:1].encode(), number, at) for at in rows)
            calls.append(Call(topic, marks, now_s, outcome="refused", together=-number))
        self._world.history.calls += calls
        await self._ask(
            lambda broker: self._of(broker).add_partitions(
                _key(broker), GROUP, self._identity, set(OUTPUTS)
            )
        )
        for call in calls:
            await self._hold(call, rows)
        end = rows[-1] + 1
        await self._pause(0.5)
        await self._ask(
            lambda broker: self._of(broker).commit_offsets(
                _key(broker),
                GROUP,
                self._identity,
                Commit(GROUP, {INPUT: end}, allow_backward=True),
            )
        )
        if self._draws.random() < 0.25:
            await self._ask(lambda broker: self._end(broker, commits=False))
            return offset
        await self._commit(calls)
        return end

    async def _hold(self, call: Call, rows: list[int]) -> None:
        """In one request or two; now and then the last one is sent again."""
        cut = self._draws.randrange(len(rows) + 1)
        for begin, until in ((0, cut), (cut, len(rows))):
            if begin == until:
                continue
            values = [
                b"%s %d" % (mark, at)
                for mark, at in zip(call.marks[begin:until], rows[begin:until], strict=True)
            ]
            seq, count = self._sequences[call.topic], until - begin
            stamp = stamp_of(ProducerOf(*self._identity, seq, count), "key")

            hold = partial(self._held, call.topic, values, stamp)

            for _ in range(self._draws.choice([1, 1, 1, 2])):
                await self._ask(hold, _SENT)
            self._sequences[call.topic] += count

    def _held(self, topic: str, values: list[bytes], stamp: ProducerStamp, broker: Broker) -> None:
        records = NewRecords(list(values))
        self._of(broker).hold(_key(broker), GROUP, self._identity, topic, records, stamp)

    async def _commit(self, calls: list[Call]) -> None:
        try:
            await self._ask(lambda broker: self._end(broker, commits=True), _SENT)
        except _AnewError as error:
            told = error.told
            if isinstance(told, KafkaError):
                refused = told.code is not ErrorCode.UNKNOWN_PRODUCER_ID  # which says nothing of it
            else:
                refused = told is not None and is_refusal(told)
            for call in calls:
                call.outcome = "refused" if refused else "unknown"
            raise
        for call in calls:
            call.outcome, call.offset = "acked", -1
            call.answered_s = self._world.loop.time()
        self._world.note("copier", "committed", self._transactions)

    async def _end(self, broker: Broker, *, commits: bool) -> None:
        await self._of(broker).end(_key(broker), GROUP, self._identity, commits=commits)

    # --- requests ---

    def _of(self, broker: Broker) -> Transactions:
        """The transactions of a process."""
        if broker not in self._servers:
            self._servers[broker] = Server(broker, random_bytes=self._draws.randbytes)
        return self._servers[broker].transactions

    async def _ask(
        self,
        work: Callable[[Broker], Awaitable[T] | T],
        attempts: int = 1,
    ) -> T:
        """Send it until there is an answer which is not to wait. Raises _AnewError, with the answer
        if it was sent once only.

        What is not answered must not be done later, in another transaction. Requests that are sent
        again keep their order on their way, and after others the producer gets a new epoch."""

        async def done(broker: Broker) -> T:
            found = work(broker)
            return await found if isinstance(found, Awaitable) else found

        sent = 0
        for _ in range(_ATTEMPTS):
            process = self._machine.process
            if process is None or not process.writes:
                await self._look_elsewhere()
                continue
            try:
                told, _ = await self._world.ask(done, self._machine)
            except NotServingError:  # nothing was sent
                await self._look_elsewhere()
            except NoAnswerError:
                sent += 1
                if sent == attempts:
                    raise _AnewError from None
                await self._pause(0.3)
            except (KafkaError, SebError) as error:
                if not isinstance(error, KafkaError) or error.code not in _WAIT:
                    raise _AnewError(None if sent else error) from None
                await self._pause(0.3)
            else:
                return told
        raise _AnewError(None if sent else NotServingError())

    async def _look_elsewhere(self) -> None:
        self._machine = self._draws.choice(self._world.machines)
        await self._pause(1.0)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._draws.random())


def _key(broker: Broker) -> ApiKeyView:
    """One that every appliance knows."""
    return broker.access.let_in_anybody()


def _committed(broker: Broker) -> int:
    """0: nothing yet."""
    try:
        found = broker.groups.committed_of(GROUP)
    except GroupNotFoundError:
        return 0
    return found[INPUT].offset if INPUT in found else 0


async def _read(broker: Broker, offset: int, most: int) -> list[int]:
    """Offsets of the next records."""
    request = ReadRequest(From(offset=offset), max_records=most)
    return [at for at, _, _ in rows_of(await broker.read(INPUT, request))]


def copied(broker: Broker, log: Log) -> Iterator[str]:
    """P20: each record of the input below the committed offset was copied once, in order, and no
    other."""
    end = _committed(broker)
    for topic_id, name in log.names.items():
        if name not in OUTPUTS:
            continue
        found = [
            int((record.value or b"").split(b" ")[1])
            for record in log.of(topic_id)
            if record.mark.startswith(b"K")
        ]
        if found != list(range(end)):
            yield f"P20 {name} has copies of {found}, and {end} were committed"
