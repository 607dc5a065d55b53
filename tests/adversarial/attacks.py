"""Requests with queries and bodies at their limits, for every operation of the OpenAPI document."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from urllib.parse import quote, urlencode

from seb_appliance import limits, zstd
from seb_appliance.ops.serve.protocols import openapi_json

DOCUMENT: Final[dict[str, Any]] = json.loads(openapi_json())
TOPIC: Final = "big"  # it has records: see test_slices.py
GROUP: Final = "readers"

_PATTERN: Final = ".".join(["**", "*"] * 20 + ["a"])[: limits.NAME_LENGTH_MAX]
PATTERNS: Final = [f"{_PATTERN[:-4]}.a{i}" for i in range(limits.PATTERNS_PER_FOLLOWER_MAX)]
_PATH: Final = {
    "topic": TOPIC,
    "group": GROUP,
    "offset": "70000",
    "path": "a-stream",
    "asset": "no-such-asset",
    "compaction": "1",
    "api_key_id": "aaaaaaaa",
}
# The most expensive values of query parameters, by name; those that are not here are left out.
_QUERY: Final[dict[str, list[str]]] = {
    "pattern": [_PATTERN],
    "topics": ["**", ",".join(PATTERNS)],
    "topic-name": [TOPIC],
    "offset": ["0"],
    "until": ["1000000"],
    "max_records": [str(limits.FETCH_RECORDS_MAX)],
    "max-records": ["10000"],
    "max_bytes": [str(limits.FETCH_BYTES_MAX)],
    "max-bytes": [str(limits.FETCH_BYTES_MAX)],
    "limit": ["500"],
    "prefix": ["k", "k" * 4_000],
    "key": ["k1", "k" * 4_000],
    "view": ["latest"],
    "values": ["text", "json", "base64"],
    "format": ["json", "ndjson", "batch", "cloudevents", "arrow"],
    "actor": ["a" * 4_000],
    "subject": ["a" * 4_000],
    "group": [GROUP],
}
# What other attacks still need is not deleted.
_SPARED: Final = {
    "DELETE /v1/topics/{topic}": {"topic": "t1"},
    "POST /v1/topics/{topic}/trim": {"topic": "t2"},
    "DELETE /v1/groups/{group}": {"group": "others"},
}
_LARGE: Final = frozenset(
    {"offset", "max_records", "max-records", "max_bytes", "max-bytes", "limit", "topic-name"}
)
_MANY: Final = limits.RECORDS_PER_REQUEST_MAX


@dataclass(frozen=True)
class Attack:
    name: str
    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def attacks() -> Iterator[Attack]:
    for template, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            yield from _of_operation(template, method.upper(), operation)


def _of_operation(template: str, method: str, operation: dict[str, Any]) -> Iterator[Attack]:
    path = template
    for name, value in (_PATH | _SPARED.get(f"{method} {template}", {})).items():
        path = path.replace(f"{{{name}}}", quote(value))
    named = [p["name"] for p in operation.get("parameters", []) if p.get("in") == "query"]
    largest = [(name, _QUERY[name][0]) for name in named if name in _LARGE]
    others = [(n, value) for n in named if n not in _LARGE for value in _QUERY.get(n, [])]
    # Many do not go together, so that all at once would only be refused.
    for some in (*((),), *itertools.combinations(others, 1), *itertools.combinations(others, 2)):
        query = urlencode([*largest, *some], safe="*,")
        yield Attack(f"{method} {template} ?{query}"[:200], method, f"{path}?{query}")
    query = urlencode(largest)
    for kind in operation.get("requestBody", {}).get("content", {}):
        for name, body in [*_hostile().items(), *_bodies_of(template)]:
            headers = {"Content-Type": kind if kind != "*/*" else "application/json"}
            if name.startswith("zstd"):
                headers["Content-Encoding"] = "zstd"
            if kind == "multipart/form-data":
                headers["Content-Type"] += "; boundary=b"
            yield Attack(
                f"{method} {template} {kind} {name}",
                method,
                f"{path}?{query}" if query else path,
                headers,
                body,
            )


def _bodies_of(template: str) -> Iterator[tuple[str, bytes]]:
    """What the route takes, as much of it as it takes."""
    for part, bodies in _fitting().items():
        if template.endswith(part):
            yield from bodies.items()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _records(one: bytes, count: int = _MANY) -> bytes:
    return b'{"records":[%b]}' % b",".join([one] * count)


@cache
def _hostile() -> dict[str, bytes]:
    """Bodies for any route. They take a second and 100 MB: not when a test is only collected."""
    return {
        "64 KiB of digits": b'{"records":[{"value":[%b]}]}' % b",".join([b"1" * 308] * 205),
        "64 KiB of lists": b"[" * 32_000 + b"]" * 32_000,
        "16 MB of lists": b"[" * 8_000_000,
        "16 MB of empty lists": b"[%b]" % b",".join([b"[]"] * 5_000_000),
        "16 MB of members": b"{%b}" % b",".join(b'"%d":0' % i for i in range(1_200_000)),
        "zstd of 16 MB of digits": zstd.compress(
            b'{"records":[{"value":[%b]}]}' % b",".join([b"1" * 308] * 54_000)
        ),
        "zstd of 1e300": zstd.compress(
            b'{"records":[{"value":[%b]}]}' % b",".join([b"1e300"] * 10**6)
        ),
        "not UTF-8": b'{"a":"' + b"\xff" * 15_000_000 + b'"}',
        "16 MB of zeros": bytes(16_000_000),
        "lines": b'{"value":0}\n' * _MANY,
        "long lines": (b'{"value":[%b]}\n' % (b"[" * 400 + b"]" * 400)) * _MANY,
    }


_HEADERS: Final = b",".join(b'"h%d":""' % i for i in range(limits.RECORD_HEADERS_MAX))
_EVENT: Final = {"specversion": "1.0", "id": "1", "source": "a", "type": "t"}


@cache
def _fitting() -> dict[str, dict[str, bytes]]:
    """Bodies that fit a route, by the end of its path."""
    return {
        "/records": {
            "many records": _records(b'{"value":0}'),
            "many headers": _records(b'{"value":0,"headers":{%b}}' % _HEADERS),
            "many nested": _records(b'{"value":%b}' % (b"[" * 500 + b"]" * 500)),
            "many keys": _records(b'{"key":"k","value":"%b"}' % (b"v" * 1_000)),
            "many escapes": _records(b'{"key":"k","value":"%b"}' % (b"\\n" * 500)),
            "many events": _json([{**_EVENT, **{f"a{i}": "x" for i in range(20)}}] * _MANY),
            "sizes": b'--b\r\nContent-Disposition: form-data; name="sizes"\r\n\r\n'
            + _json([0] * _MANY)
            + b'\r\n--b\r\nContent-Disposition: form-data; name="records"\r\n\r\n\r\n--b--\r\n',
        },
        "/transactions": {
            "many topics": _json({"produce": {f"t{i}": [{"value": 0}] * 100 for i in range(100)}}),
            "a large commit": _json(
                {"commit": {"group": GROUP, "offsets": {f"t{i}": 0 for i in range(_MANY)}}}
            ),
        },
        "/offsets": {
            "many topics": _json({"offsets": {f"t{i}": 0 for i in range(_MANY)}}),
            "members that name nothing": b'{"offsets":{"a":0},"metadata":{%b}}'
            % b",".join(b'"%d":""' % i for i in range(300_000)),
            "long names": _json({"offsets": {"a" * 80 + str(i): 0 for i in range(_MANY)}}),
            "much metadata": _json(
                {
                    "offsets": {f"t{i}": 0 for i in range(900)},
                    "metadata": {f"t{i}": "m" * 4_000 for i in range(900)},
                }
            ),
        },
        "/reset": {"many patterns": _json({"topics": [*PATTERNS * 10], "to": "earliest"})},
        "/tickets": {"many patterns": _json({"topics": ",".join(PATTERNS)})},
        "/api-keys": {
            "many grants": _json(
                {
                    "name": "n",
                    "grants": [
                        {"operation": "consume", "topics": pattern, "groups": pattern}
                        for pattern in PATTERNS
                    ],
                }
            )
        },
        "/segments": {"many names": _json({"objects": [f"segments/{i}" for i in range(8_000)]})},
        "/stream/{path}": {"many items": _json([0] * _MANY)},
    }
