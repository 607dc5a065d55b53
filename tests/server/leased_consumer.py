"""A consumer of group g that holds a lease: `leased_consumer.py PORT API-KEY HOLDER RECORDS`.

It takes the lease (waiting until it is free), reads, says so on stdout, waits for a line on stdin
as its work, commits, and says what came of it.
"""

from __future__ import annotations

import json
import sys
import time
from http.client import HTTPConnection
from typing import Any

TTL_MS = 1_000


def call(method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
    headers = {"Authorization": f"Bearer {sys.argv[2]}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def main(holder: str, count: str) -> None:
    status, lease = call("POST", "/v1/groups/g/lease", {"holder": holder, "ttl_ms": TTL_MS})
    while status == 409:
        time.sleep(lease["expires_in_ms"] / 1000)
        status, lease = call("POST", "/v1/groups/g/lease", {"holder": holder, "ttl_ms": TTL_MS})
    _, read = call("GET", f"/v1/groups/g/topics/t/records?max_records={count}")
    print("read", read["next_offset"], flush=True)
    sys.stdin.readline()
    commit = {"offsets": {"t": read["next_offset"]}, "generation": lease["generation"]}
    status, answer = call("PUT", "/v1/groups/g/offsets", commit)
    print("commit", status, answer.get("code"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[3:])
