"""What compressing batches costs and saves: levels, and a whole appliance with and without.

python benchmarks/compression.py [SECONDS]
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView, From, NewRecords, ReadRequest
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats import batch
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.topic_settings import Compression, TopicSettings
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.setting_sources import load
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.memory import MemoryStore

ADMIN = ApiKeyView("bench", "bench", (Grant(operation="admin"),), 0)
REQUESTS_AT_ONCE = 256
RECORDS_PER_REQUEST = 32
RECORDS = 65_536  # different ones
RECORD_BYTES = 256
dice = random.Random(7)


def sensor_reading() -> bytes:
    """Some 256 bytes of JSON as machines send them: names that repeat, numbers that do not."""
    fields = {
        "id": f"{dice.getrandbits(64):016x}",
        "time": f"2026-11-21T10:{dice.randrange(60):02}:07.{dice.randrange(10**6):06}Z",
        "device": f"thermo-{dice.randrange(500):04}",
        "room": dice.choice(["kitchen", "hall", "attic", "cellar"]),
        "temperature": round(dice.gauss(21, 3), 2),
        "humidity": round(dice.uniform(20, 80), 1),
        "battery": dice.randrange(101),
        "signal": -dice.randrange(30, 99),
        "firmware": f"2.14.{dice.randrange(9)}",
        "ok": dice.random() < 0.98,
        "trace": f"{dice.getrandbits(32):08x}",
    }
    return json.dumps(fields).encode()


KINDS: dict[str, Callable[[], bytes]] = {
    "JSON": sensor_reading,
    "random": lambda: dice.randbytes(RECORD_BYTES),
}


def best_s(work: Callable[[], object], tries: int) -> float:
    took = []
    for _ in range(tries):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def levels(values: list[bytes]) -> None:
    """Of batches that hold so many records: size, and speed of compressing and of decoding."""
    for count in (2, 16, 256, 4_096, 32_768):
        columns = Columns(int64s(range(count)), BinaryColumn.of(values[:count]))
        plain = batch.encode(columns, base_offset=0, created_us=0)
        tries = max(3, min(500, 4_000_000 // len(plain)))
        told = [f"{count:6,} records, {len(plain):9,} B"]
        told += [level_of(plain, level, tries) for level in (1, 3)]
        plain_s = best_s(partial(batch.decode, plain), tries)
        print("  ", "; ".join(told), f"; plain back {plain_s * 1e6:,.0f} µs", sep="")


def level_of(plain: bytes, level: int, tries: int) -> str:
    packed = batch.compress(plain, level)
    packing_s = best_s(partial(batch.compress, plain, level), tries)
    decoding_s = best_s(partial(batch.decode, packed), tries)
    return (
        f"level {level}: {len(packed) / len(plain):4.0%}, {packing_s * 1e6:6,.0f} µs "
        f"(back {decoding_s * 1e6:6,.0f})"
    )


async def run(values: list[bytes], compression: Compression, seconds: float) -> None:
    """Produce for so long without HTTP, then read all of it as a consumer does."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load(flags={"bucket": "memory:", "data": folder}, environment={})
        appliance = await Appliance.open(
            settings, CountedStore(MemoryStore()), NO_FAILPOINTS, lambda *_: None
        )
        await appliance.start()
        broker = appliance.broker
        await broker.topics.create("t", TopicSettings(compression=compression))
        until_s, used_s = time.monotonic() + seconds, time.process_time()

        async def produce(number: int) -> int:
            n = number
            while time.monotonic() < until_s:
                at = n * RECORDS_PER_REQUEST % (RECORDS - RECORDS_PER_REQUEST)
                records = NewRecords(values[at : at + RECORDS_PER_REQUEST])
                await broker.appends.append(
                    ADMIN, "t", records, broker.pending.reserve(OPERATOR, 1)
                )
                n += REQUESTS_AT_ONCE
            return (n - number) // REQUESTS_AT_ONCE * RECORDS_PER_REQUEST

        made = sum(await asyncio.gather(*map(produce, range(REQUESTS_AT_ONCE))))
        used_s = time.process_time() - used_s
        stored = broker.topics.get("t").bytes
        began, offset = time.perf_counter(), 0
        while offset < made:
            request = ReadRequest(From(offset=offset), max_records=10_000, max_bytes=4 << 20)
            offset = (await broker.read("t", request)).next_offset
        read_s = time.perf_counter() - began
        print(
            f"  {compression}: {made / seconds:9,.0f} records/s in, {used_s / made * 1e6:.2f} µs "
            f"of processor and {stored / made:5.1f} B stored each; {made / read_s:11,.0f}/s decoded"
        )
        await appliance.drain()
        await appliance.close()


def main() -> None:
    seconds = float(sys.argv[1]) if sys.argv[1:] else 5.0
    for kind, make in KINDS.items():
        values = [make() for _ in range(RECORDS)]
        print(f"{kind}, {sum(map(len, values)) / len(values):.0f} B a record")
        levels(values)
        for compression in ("none", "zstd", "none", "zstd"):
            asyncio.run(run(values, compression, seconds))


if __name__ == "__main__":
    main()
