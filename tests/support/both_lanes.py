"""Two appliances with the same topics and API keys: one with the fast lane, one without."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.lanes import Lane, masked

STAND_IN = f"seb_{'x' * 59}"  # as long as an API key
LIMITED = {"requests_per_second": 1_000}
BATCH = batch.encode(
    Columns(int64s([7, 8, 9]), BinaryColumn.of([b"a", b"b", b"c"])), base_offset=0, created_us=9
)


@dataclass(frozen=True)
class Case:
    """`head` without its request line's method, host and key; None for `key`: the admin's."""

    name: str
    method: str = "POST"
    path: str = "/v1/topics/t/records"
    headers: tuple[str, ...] = ()
    body: bytes = b""
    host: str = "Host: x"
    key: str | None = None
    version: str = "HTTP/1.1"
    sized: bool = True
    taken: bool = False  # by the fast lane
    answers: int = 1
    raw: bytes = field(default=b"", repr=False)

    def request(self, keys: dict[str, str]) -> bytes:
        lines = [f"{self.method} {self.path} {self.version}", self.host]
        token = keys[self.key or "admin"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        lines += self.headers
        if self.sized and (self.method == "POST" or (self.body and self.method == "PUT")):
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*filter(None, lines), "", ""]).encode() + self.body + self.raw


@dataclass(frozen=True)
class Both:
    fast: RunningAppliance
    slow: RunningAppliance
    keys: dict[str, dict[str, str]]  # by lane, then by name

    async def answers(self, case: Case, *cuts: int) -> tuple[bytes, bytes]:
        """Of both lanes; the request is cut at `cuts`."""
        found = []
        for name, seb in (("fast", self.fast), ("slow", self.slow)):
            request = case.request(self.keys[name])
            edges = [0, *sorted(cut % len(request) for cut in cuts), len(request)]
            pieces = [request[a:b] for a, b in pairwise(edges) if b > a]
            lane = Lane(seb)
            found.append(masked(await lane.answers(*pieces, count=case.answers)))
            lane.leave()
        return found[0], found[1]

    async def all_answers(self, pieces: list[bytes]) -> tuple[bytes, bytes]:
        """Of both lanes to whatever comes in these pieces, with the admin key for `STAND_IN`."""
        found = []
        edges = list(accumulate(map(len, pieces), initial=0))
        for name, seb in (("fast", self.fast), ("slow", self.slow)):
            data = b"".join(pieces).replace(STAND_IN.encode(), self.keys[name]["admin"].encode())
            lane = Lane(seb)
            said = await lane.all_answers(*(data[a:b] for a, b in pairwise(edges)))
            found.append(masked(said) + (b" and hung up" if lane.closed else b""))
            lane.leave()
        return found[0], found[1]


@contextlib.asynccontextmanager
async def both_lanes(folder: Path) -> AsyncIterator[Both]:
    """`folder` is for their data directories."""
    async with contextlib.AsyncExitStack() as stack:
        lanes: dict[str, RunningAppliance] = {}
        keys: dict[str, dict[str, str]] = {}
        for name in ("fast", "slow"):
            running = running_appliance(
                folder / name,
                fast_lane=name == "fast",
                max_record_bytes="4KiB",
                max_request_bytes="1MiB",
            )
            lanes[name] = seb = await stack.enter_async_context(running)
            await seb.client.put("/v1/topics/t", json={})
            seb_batch = {"content-type": "application/vnd.seb.batch"}
            await seb.client.post("/v1/topics/fixed/records", content=BATCH, headers=seb_batch)
            keys[name] = {"admin": seb.admin_key, "none": "", "wrong": "seb_wrong"}
            for who, grants, quotas in (
                ("producer", ["produce"], {}),
                ("consumer", ["consume"], {}),
                ("limited", ["produce", "consume"], LIMITED),
            ):
                new = {"name": who, "grants": [{"operation": o, "topics": "**"} for o in grants]}
                made = await seb.client.post("/v1/api-keys", json=new | {"quotas": quotas})
                keys[name][who] = made.json()["secret"]
        yield Both(lanes["fast"], lanes["slow"], keys)
