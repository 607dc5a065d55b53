"""Two appliances and a Spark cluster join two topics exactly once, while machines are lost.

    python examples/many-machines/run.py [--orders 12000] [--kills 6] [--seed 1]

Needs Java 17 and `pip install 'seb-appliance[spark]'`, 2 GB of memory and some minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.dataset as tables
from machines import PATIENCE_S, PYTHON, Machine, appliance, cluster

REQUESTS = 20  # of a round and a topic
BETWEEN_S = 0.25
STILL_S = 600  # a job that starts on a busy machine takes up to five minutes


class Client:
    """Of one appliance. It asks until it is answered: the appliance may be lost just now."""

    def __init__(self, url: str, key_file: Path) -> None:
        self._place, self._key_file = urlsplit(url).netloc, key_file
        self._requests = Counter[str]()

    def ask(
        self, method: str, path: str, body: str = "", more: dict[str, str] | None = None
    ) -> dict:
        headers = {"Authorization": f"Bearer {self._key_file.read_text().strip()}", **(more or {})}
        until_s = time.monotonic() + PATIENCE_S
        while True:
            connection = HTTPConnection(self._place, timeout=30)
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                content = response.read()
                if response.status < 300:
                    return json.loads(content)
                if response.status < 500:
                    sys.exit(f"{method} {path}: {content.decode()}")
            except (OSError, HTTPException):
                pass
            finally:
                connection.close()
            if time.monotonic() > until_s:
                sys.exit(f"{method} {path}: no answer for {PATIENCE_S} s")
            time.sleep(0.2)

    def produce(self, topic: str, numbers: range, cents: int) -> None:
        """A record for each number, once, however often a request is repeated."""
        step = -(-len(numbers) // REQUESTS)
        for part in (numbers[at : at + step] for at in range(0, len(numbers), step)):
            records = [{"key": f"{n}", "value": str(n * cents)} for n in part]
            numbered = {
                "Content-Type": "application/x-ndjson",
                "Producer-Id": "run.py",
                "Producer-Epoch": "0",
                "Producer-Seq": str(self._requests[topic]),
            }
            body = "\n".join(map(json.dumps, records))
            self.ask("POST", f"/v1/topics/{topic}/records", body, numbered)
            self._requests[topic] += 1
            time.sleep(BETWEEN_S)

    def count(self, topic: str) -> int:
        return int(self.ask("GET", f"/v1/topics/{topic}")["log_end_offset"])

    def records(self, topic: str) -> Iterator[dict]:
        offset, end = 0, self.count(topic)
        while offset < end:
            answer = self.ask("GET", f"/v1/topics/{topic}/records?offset={offset}&until={end}")
            yield from answer["records"]
            offset = answer["next_offset"]


def verdict(shop: Client, folder: Path, orders: int) -> bool:
    """Whether each order is in the table and in the topic once, with both amounts."""
    rows = tables.dataset(folder / "table", format="parquet").to_table().to_pylist()
    table = [(row["orders_key"], row["orders_cents"], row["payments_cents"]) for row in rows]
    receipts = [(record["key"], json.loads(record["value"])) for record in shop.records("receipts")]
    topic = [(key, value["orders_cents"], value["payments_cents"]) for key, value in receipts]
    wanted = {(f"{n}", n * 100, n * 99) for n in range(orders)}
    exact = True
    for name, found in (("table", table), ("topic", topic)):
        lost, doubled = len(wanted - set(found)), len(found) - len(set(found))
        wrong = len(set(found) - wanted)
        print(f"{name}: {len(found):,} rows, {lost} lost, {doubled} doubled, {wrong} wrong")
        exact = exact and not lost + doubled + wrong
    return exact


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orders", type=int, default=12_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and the machines end, too
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seb-machines-")))
        shop_machine, *shop_place = appliance("shop", folder)
        bank_machine, *bank_place = appliance("bank", folder)
        master, others = cluster(folder)
        job = Path(__file__).with_name("job.py")
        command = [sys.executable, job, master, folder, *shop_place, *bank_place]
        driver = Machine("job", [[*map(str, command)]], folder, more=PYTHON)
        machines = [shop_machine, bank_machine, *others, driver]
        shop, bank = Client(*shop_place), Client(*bank_place)

        for machine in machines[:-1]:
            stack.callback(machine.kill)
            machine.start()
        for client, topic in ((shop, "orders"), (bank, "payments"), (shop, "receipts")):
            client.ask("PUT", f"/v1/topics/{topic}", "{}", {"Content-Type": "application/json"})
        stack.callback(driver.kill)
        driver.start()
        print("started: " + ", ".join(machine.name for machine in machines), flush=True)

        victims = [others[1], others[0], shop_machine, driver, others[2], bank_machine]
        bounds = [arguments.orders * n // (arguments.kills + 1) for n in range(arguments.kills + 2)]
        for number, (start, end) in enumerate(pairwise(bounds)):
            victim = victims[(number - 1) % len(victims)] if number else None
            begun = time.monotonic()
            with ThreadPoolExecutor() as threads:
                producing = [
                    threads.submit(bank.produce, "payments", range(start, end), 99),
                    threads.submit(shop.produce, "orders", range(start, end), 100),
                ]
                if victim is not None:
                    time.sleep(moments.uniform(0, 2 * REQUESTS * BETWEEN_S))
                    victim.kill()
                    victim.start()
                for one in producing:
                    one.result()
            caught_up(shop, end, driver)
            what = f"lost {victim.name}, " if victim else ""
            print(f"{what}{end:,} receipts after {time.monotonic() - begun:.0f} s", flush=True)
        exact = verdict(shop, folder, arguments.orders)
    print("each order exactly once ✓" if exact else "not exactly once ✗")
    return 0 if exact else 1


def caught_up(shop: Client, count: int, driver: Machine) -> None:
    """Wait for the receipts, and start the job again when it has ended, as a scheduler does: it
    goes on at its checkpoint."""
    moved, seen = time.monotonic(), shop.count("receipts")
    while seen < count:
        if driver.ended:
            print("the job ended, and is started again", flush=True)
            driver.start()
        if time.monotonic() - moved > STILL_S:
            sys.exit(f"no progress:\n{driver.log.read_text()[-4000:]}")
        time.sleep(0.5)
        before, seen = seen, shop.count("receipts")
        if seen > before:
            moved = time.monotonic()


if __name__ == "__main__":
    sys.exit(main())
