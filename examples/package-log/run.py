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
LINES_PER_REQUEST = 1_000
SAMPLE = Path(__file__).parent / "sample"


class Broker:
    """The two requests of this example, over one connection."""

    def __init__(self, url: str, key: str) -> None:
        self.connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
        self.key = key

    def request(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> dict:
        headers = {"Authorization": f"Bearer {self.key}"}
        if content_type:
            headers["Content-Type"] = content_type
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        answer = json.loads(response.read())
        if response.status >= 300:
            sys.exit(f"{method} {path}: {response.status} {answer['code']}: {answer['detail']}")
        return answer

    def produce(self, records: list[dict]) -> dict:
        """Append records; the answer comes once they are in the bucket."""
        body = b"\n".join(json.dumps(record).encode() for record in records)
        return self.request("POST", f"/v1/topics/{TOPIC}/records", body, "application/x-ndjson")

    def consume(self, offset: int, end: int) -> Iterator[dict]:
        """The records from `offset` up to `end`, exclusive."""
        while offset < end:
            path = f"/v1/topics/{TOPIC}/records?offset={offset}&until={end}"
            answer = self.request("GET", path)
            yield from answer["records"]
            offset = answer["next_offset"]


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
    log, table, architecture = what_to_read(arguments.log)
    broker = Broker(arguments.url, arguments.key_file.read_text().strip())

    lines = list(package_log.log_lines(log))
    started = time.monotonic()
    answers = [
        broker.produce([record_of(line) for line in lines[at : at + LINES_PER_REQUEST]])
        for at in range(0, len(lines), LINES_PER_REQUEST)
    ]
    seconds = time.monotonic() - started
    print(f"{log.name}: {len(lines):,} lines → topic {TOPIC} … acknowledged in {seconds:.1f} s")

    first, end = answers[0]["offset"], answers[-1]["last_offset"] + 1
    records = list(broker.consume(first, end))
    values = [record["value"] for record in records]
    keys = [record["key"] for record in records]
    if values != lines or keys != [package_log.package_of(line) for line in lines]:
        print("what was read back is not what was written ✗")
        return 1
    rebuilt = package_log.rebuild(values, architecture)
    result = package_log.compare(rebuilt, package_log.dpkg_table(table, architecture))
    agrees = "dpkg-query agrees on every one ✓"
    if result.differing:
        agrees = f"dpkg-query differs on {len(result.differing)} ✗"
    print(
        f"read back {len(records):,} records · {len(rebuilt):,} packages the log speaks of, "
        f"{agrees} · {result.older:,} are older than the log"
    )
    print("\n".join(result.differing), end="\n" if result.differing else "")
    return 1 if result.differing else 0


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
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
