"""How fast the Python client is: python -m benchmarks.client URL KEY_FILE [RECORDS]

Give the appliance and this a processor each (`taskset -c`). Values are 200 bytes of hexadecimal
digits, which halve under zstd.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from seb_appliance.client import Admin, Consumer, Producer

VALUE_BYTES = 200
TOPIC = "benchmark.client"


def main() -> None:
    url, key = sys.argv[1], Path(sys.argv[2]).read_text().strip()
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 300_000
    randomness = random.Random(1)
    values = [randomness.randbytes(VALUE_BYTES // 2).hex().encode() for _ in range(1_000)]
    for compression in ("zstd", "none"):
        begun_s = time.perf_counter()
        with Producer(url, key, compression=compression) as producer:
            for i in range(count):
                producer.send(TOPIC, values[i % 1_000])
        tell(f"produce, {compression}", count, begun_s)
        begun_s = time.perf_counter()
        with Consumer(url, key, TOPIC, follow=False) as consumer:
            read = sum(1 for _ in consumer)
        assert read == count
        tell(f"consume, {compression}", count, begun_s)
        with Admin(url, key) as admin:
            admin.delete_topic(TOPIC)


def tell(what: str, count: int, begun_s: float) -> None:
    print(f"{what}: {count / (time.perf_counter() - begun_s):,.0f} records/s")


if __name__ == "__main__":
    main()
