"""Every line of this machine's package log through the broker, and the packages rebuilt from it.

    python run.py --url http://127.0.0.1:51313 --key-file seb-data/local/admin.key

Producing and consuming are plain HTTP: `Broker` below is all the client that it takes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import package_log

TOPIC = "demo.packages"
SETTINGS = {"cleanup": "compact", "key_index": "latest"}
LINES_PER_REQUEST = 10_000
SAMPLE = Path(__file__).parent / "sample"


class Broker:
    """The requests of this example, over one connection."""

    def __init__(self, url: str, key: str) -> None:
        self.connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
        self.key = key

    def request(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> dict:
        """The answer of an appliance that did what was asked."""
        status, answer = self.ask(method, path, body, content_type)
        if status >= 300:
            sys.exit(f"{method} {path}: {status} {answer['code']}: {answer['detail']}")
        return answer

    def ask(
        self, method: str, path: str, body: bytes = b"", content_type: str = ""
    ) -> tuple[int, dict]:
        """The status and the answer, whatever they are."""
        headers = {"Authorization": f"Bearer {self.key}"}
        if content_type:
            headers["Content-Type"] = content_type
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())

    def prepare(self) -> None:
        """The topic, with an index of its record keys, whatever there was."""
        path, body = f"/v1/topics/{TOPIC}", json.dumps(SETTINGS).encode()
        if self.ask("PUT", path, body, "application/json")[0] == 409:  # it has other settings
            self.request("PATCH", path, body, "application/json")

    def produce(self, lines_of_json: bytes) -> dict:
        """Append records; the answer comes once they are in the bucket."""
        path = f"/v1/topics/{TOPIC}/records"
        return self.request("POST", path, lines_of_json, "application/x-ndjson")

    def consume(self, offset: int, end: int) -> Iterator[dict]:
        """The records from `offset` up to `end`, exclusive."""
        while offset < end:
            path = f"/v1/topics/{TOPIC}/records?offset={offset}&until={end}"
            answer = self.request("GET", path)
            yield from answer["records"]
            offset = answer["next_offset"]

    def view(self) -> Iterator[dict]:
        """The newest record of each record key, as of one offset, in the order of offsets."""
        path = f"/v1/topics/{TOPIC}/records?view=latest"
        while (first := self.ask("GET", f"{path}&fresh=true"))[0] == 503:
            time.sleep(0.5)  # the index has not caught up with so many records
        answer = first[1]
        yield from answer["records"]
        while answer["next_cursor"] is not None:
            answer = self.request("GET", f"{path}&cursor={answer['next_cursor']}")
            yield from answer["records"]


def record_of(line: str) -> dict:
    """A line as a record: keyed by its package, with its own timestamp."""
    members = {
        "value": line,
        "key": package_log.package_of(line),
        "timestamp": package_log.timestamp_of(line),
    }
    return {name: member for name, member in members.items() if member is not None}


def main() -> int:
    arguments = parse_arguments()
    log, text, architecture = what_to_read(arguments.log)
    table = package_log.dpkg_table(text, architecture)
    broker = Broker(arguments.url, arguments.key_file.read_text().strip())
    broker.prepare()

    lines = list(package_log.log_lines(log))
    begin, end = produce(broker, lines, arguments.times, log.name)

    records = list(broker.consume(end - len(lines), end))  # the last time
    values = [record["value"] for record in records]
    keys = [record["key"] for record in records]
    if values != lines or keys != [package_log.package_of(line) for line in lines]:
        print("what was read back is not what was written ✗")
        return 1
    rebuilt = package_log.rebuild(values, architecture)
    told = f"read back {len(records):,} records · {len(rebuilt):,} packages the log speaks of"
    differing = compare(rebuilt, table, told)

    started = time.monotonic()
    newest = list(broker.view())
    seconds = time.monotonic() - started
    rebuilt = package_log.rebuild((record["value"] for record in newest), architecture)
    told = f"view=latest of {end - begin:,} records: {len(newest):,} record keys in {seconds:.1f} s"
    differing += compare(rebuilt, table, f"{told} · {len(rebuilt):,} packages")
    return 1 if differing else 0


def produce(broker: Broker, lines: list[str], times: int, name: str) -> tuple[int, int]:
    """Append all lines, so many times; the first offset, and the one after the last."""
    bodies = [
        b"\n".join(json.dumps(record_of(line)).encode() for line in lines[at:][:LINES_PER_REQUEST])
        for at in range(0, len(lines), LINES_PER_REQUEST)
    ]
    started = time.monotonic()
    answers = [broker.produce(body) for _ in range(times) for body in bodies]
    seconds = time.monotonic() - started
    often = f", {times:,} times" if times > 1 else ""
    print(f"{name}: {len(lines):,} lines{often} → topic {TOPIC} … acknowledged in {seconds:.1f} s")
    return answers[0]["offset"], answers[-1]["last_offset"] + 1


def compare(rebuilt: dict, table: dict, told: str) -> int:
    """Say whether dpkg has the same packages; on how many it differs."""
    result = package_log.compare(rebuilt, table)
    agrees = "dpkg-query agrees on every one ✓"
    if result.differing:
        agrees = f"dpkg-query differs on {len(result.differing)} ✗"
    print(f"{told}, {agrees} · {result.older:,} are older than the log")
    print("\n".join(result.differing), end="\n" if result.differing else "")
    return len(result.differing)


def what_to_read(log: Path) -> tuple[Path, str, str]:
    """The log, dpkg's table as text, and the machine's architecture: this machine's, or those of
    the sample where this one keeps no such log."""
    if not log.is_file() or not log.stat().st_size:
        sample = SAMPLE / "dpkg.log"
        print(f"no {log} here: reading {sample.name} of the example's folder sample/")
        return sample, (SAMPLE / "dpkg-query.txt").read_text(), "amd64"

    def output_of(*command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    table = output_of("dpkg-query", "-W", "-f", package_log.FORMAT)
    return log, table, output_of("dpkg", "--print-architecture").strip()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:51313")
    parser.add_argument("--key-file", type=Path, default=Path("seb-data/local/admin.key"))
    parser.add_argument("--log", type=Path, default=Path("/var/log/dpkg.log"))
    parser.add_argument("--times", type=int, default=1, help="Append the log so many times.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
