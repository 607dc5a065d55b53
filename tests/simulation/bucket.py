"""One bucket, and the network between it and several processes: late, lost and false answers.

A request travels, takes effect at one instant, and its answer travels back. What has left a process
arrives although the process died meanwhile. `Weather` says how often what goes wrong.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from seb_appliance.broker.lake.names import HINT
from seb_appliance.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreConflictError,
    StoreDeniedError,
    StoreUncertainError,
    StoreUnsupportedError,
)
from seb_appliance.storage import layout
from seb_appliance.storage.stores.object_store import (
    Durability,
    LocalStore,
    ObjectInfo,
    ObjectRange,
)
from tests.simulation.clock import BOOT_S, START_US
from tests.simulation.loop import Owner, SimulatedLoop
from tests.simulation.trace import Trace

NEVER_REPLACED = (layout.JOURNAL, layout.TABLES)


@dataclass(slots=True)
class Weather:
    """Probabilities, of each request, and seconds. `late_s`: how long after its caller gave up a
    request may take effect."""

    one_way_s: float = 0.01
    lost_request: float = 0.0
    lost_answer: float = 0.0
    late: float = 0.0
    late_s: float = 30.0
    refused: float = 0.0  # 503, without effect
    false_412: float = 0.0
    conflict: float = 0.0
    flipped: float = 0.0
    cut: float = 0.0
    away: bool = False  # nothing is answered
    denied: bool = False

    @property
    def faulted(self) -> float:
        return (
            self.lost_request
            + self.lost_answer
            + self.late
            + self.refused
            + self.false_412
            + self.conflict
            + self.flipped
            + self.cut
        )


class Bucket:
    """`first_stored`: what each key held first, also of objects that are gone. `overwritten`: keys
    of the journal and of tables that were stored with other bytes while they were there. `steps`:
    what took effect, in order: "stored", "read" or "deleted", and a key. `date_offset_us`: by how
    much the Date of its answers is ahead."""

    def __init__(self, *, creates_only_if_absent: bool) -> None:
        self.creates_only_if_absent = creates_only_if_absent
        self.objects: dict[str, bytes] = {}
        self.first_stored: dict[str, bytes] = {}
        self.overwritten: list[str] = []
        self.steps: list[tuple[str, str]] = []
        self.date_offset_us = 0
        self._keys: list[str] = []

    def put(self, key: str, body: bytes) -> None:
        before = self.objects.get(key)
        if before is None:
            insort(self._keys, key)
        elif before != body and key.startswith(NEVER_REPLACED) and not key.endswith(HINT):
            self.overwritten.append(key)
        self.objects[key] = body
        self.first_stored.setdefault(key, body)
        self.steps.append(("stored", key))

    def create(self, key: str, body: bytes) -> None:
        if not self.creates_only_if_absent:
            raise StoreUnsupportedError("501", key=key)
        if key in self.objects:
            raise ObjectExistsError("412", key=key)
        self.put(key, body)

    def get(self, key: str) -> bytes:
        try:
            body = self.objects[key]
        except KeyError:
            raise ObjectMissingError("404", key=key) from None
        self.steps.append(("read", key))
        return body

    def list_after(self, prefix: str, after: str, limit: int) -> list[ObjectInfo]:
        begin = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        page = []
        for key in self._keys[begin : begin + limit]:
            if not key.startswith(prefix):
                break
            page.append(ObjectInfo(key=key, size=len(self.objects[key])))
        return page

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]
            self.steps.append(("deleted", key))


class Network:
    """Between all processes and one bucket. `latest_s`: when the last of the requests lands that
    nobody waits for any more."""

    def __init__(self, loop: SimulatedLoop, bucket: Bucket, draws: Random, trace: Trace) -> None:
        self.weather = Weather()
        self.requests = 0
        self.faults: Counter[str] = Counter()
        self.latest_s = 0.0
        self._loop = loop
        self._bucket = bucket
        self._draws = draws
        self._trace = trace

    def send(
        self,
        owner: Owner,
        method: str,
        key: str,
        effect: Callable[[], Any],
        body: bytes,
        answer: asyncio.Future[Any],
    ) -> None:
        """Carry a request out, or what becomes of it, and settle `answer`."""
        if owner.dead:
            return
        self.requests += 1
        self._trace.note(self._loop.time(), owner.name, method, key, crc32(body))
        fate = owner.host.to_bucket or self._fate(method, key)
        one_way_s = self.weather.one_way_s * (0.2 + 1.6 * self._draws.random())
        back_s = self.weather.one_way_s * (0.2 + 1.6 * self._draws.random())
        if fate != "ok":
            self.faults[fate] += 1
            self._trace.note(self._loop.time(), owner.name, "fault", fate)
        if fate in ("ok", "flipped", "cut"):
            damage = fate if fate != "ok" else ""
            self._loop.later(one_way_s, self._land, effect, key, back_s, answer, damage)
        elif fate in ("refused", "conflict", "false_412", "denied"):
            self._loop.later(one_way_s + back_s, _settle, answer, None, _error(fate, key))
        else:
            gives_up_s = one_way_s + 0.2 + 2.0 * self._draws.random() ** 2
            self._loop.later(gives_up_s, _settle, answer, None, _error(fate, key))
            if fate == "lost_answer":
                self._loop.later(one_way_s, self._land_unheard, effect, key)
            elif fate == "late":
                late_s = gives_up_s + self.weather.late_s * self._draws.random() ** 2
                self.latest_s = max(self.latest_s, self._loop.time() + late_s)
                self._loop.later(late_s, self._land_unheard, effect, key)

    def _fate(self, method: str, key: str) -> str:
        weather = self.weather
        if weather.away:
            return "lost_request"
        if weather.denied:
            return "denied"
        draw = self._draws.random()
        if draw >= weather.faulted:
            return "ok"
        for name in ("lost_request", "lost_answer", "late", "refused"):
            draw -= getattr(weather, name)
            if draw < 0:
                return name
        writes = method in ("create", "put")
        for name in ("false_412", "conflict", "flipped", "cut"):
            draw -= getattr(weather, name)
            if draw < 0:
                if name in ("flipped", "cut"):
                    return name if method == "get_range" else "refused"
                if method == "create" or (name == "conflict" and writes):
                    return name
                return "refused"
        return "ok"

    def _land(
        self,
        effect: Callable[[], Any],
        key: str,
        back_s: float,
        answer: asyncio.Future[Any],
        damage: str,
    ) -> None:
        found, error = self._carried_out(effect, key)
        if damage and isinstance(found, ObjectRange) and found.data:
            found = _damaged(found, damage, self._draws)
        self._loop.later(back_s, _settle, answer, found, error)

    def _land_unheard(self, effect: Callable[[], Any], key: str) -> None:
        self._carried_out(effect, key)

    def _carried_out(self, effect: Callable[[], Any], key: str) -> tuple[Any, Exception | None]:
        try:
            found, error = effect(), None
        except Exception as refusal:
            found, error = None, refusal
        self._trace.note(self._loop.time(), "bucket", type(error).__name__, key)
        return found, error


def _settle(answer: asyncio.Future[Any], found: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(found)


def _error(fate: str, key: str) -> Exception:
    if fate == "false_412":
        return ObjectExistsError("412, and not true", key=key)
    if fate == "conflict":
        return StoreConflictError("409", key=key)
    if fate == "denied":
        return StoreDeniedError("403", key=key)
    return StoreUncertainError("503" if fate == "refused" else "no answer", key=key)


def _damaged(found: ObjectRange, damage: str, draws: Random) -> ObjectRange:
    if damage == "cut":
        return ObjectRange(found.data[: draws.randrange(len(found.data))], found.total_size)
    data = bytearray(found.data)
    data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
    return ObjectRange(bytes(data), found.total_size)


class BucketClient(LocalStore):
    """`ObjectStore` for one process."""

    durability: Durability = "s3"
    description = "simulated:"

    def __init__(self, network: Network, bucket: Bucket, owner: Owner) -> None:
        self._network = network
        self._bucket = bucket
        self._owner = owner

    async def _ask(
        self, method: str, key: str, effect: Callable[[], Any], body: bytes = b""
    ) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._network.send(self._owner, method, key, effect, body, answer)
        found = await answer
        self.date_ahead_s = (START_US + self._bucket.date_offset_us) / 1e6 - BOOT_S
        return found

    async def create(self, key: str, body: bytes) -> None:
        await self._ask("create", key, lambda: self._bucket.create(key, body), body)

    async def put(self, key: str, body: bytes) -> None:
        await self._ask("put", key, lambda: self._bucket.put(key, body), body)

    async def get(self, key: str) -> bytes:
        return bytes(await self._ask("get", key, lambda: self._bucket.get(key)))

    async def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        def effect() -> ObjectRange:
            body = self._bucket.get(key)
            return ObjectRange(body[start : start + length], len(body))

        found: ObjectRange = await self._ask("get_range", key, effect)
        return found

    async def list_after(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        found: list[ObjectInfo] = await self._ask(
            "list_after", prefix, lambda: self._bucket.list_after(prefix, after, limit)
        )
        return found

    async def head(self, key: str) -> ObjectInfo:
        size: int = await self._ask("head", key, lambda: len(self._bucket.get(key)))
        return ObjectInfo(key=key, size=size)

    async def delete(self, key: str) -> None:
        await self._ask("delete", key, lambda: self._bucket.delete(key))

    async def close(self) -> None: ...
