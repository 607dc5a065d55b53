"""At a limit a request is taken; one step beyond it is refused as docs/LIMITS.md says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from seb_appliance import limits
from tests.http.test_produce import make_batch
from tests.support.appliance import RunningAppliance

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORDS = "/v1/topics/limited/records"
Request = tuple[str, str, dict[str, Any]]


@dataclass(frozen=True)
class Edge:
    """`ask(n)` makes a request with `n` of what is limited; `most` are taken, or `least`."""

    limit: str
    ask: Callable[[Any], Request]
    status: int
    code: str
    most: Any = None
    beyond: Any = None
    taken: int = field(default=200)

    @property
    def edge(self) -> Any:
        return getattr(limits, self.limit) if self.most is None else self.most

    @property
    def step(self) -> Any:
        return self.edge + 1 if self.beyond is None else self.beyond


def produce(**record: Any) -> Request:
    return "POST", RECORDS, {"json": {"records": [{"value": 1, **record}]}}


def query(path: str) -> Callable[[Any], Request]:
    return lambda n: ("GET", path.format(n), {})


def topic(setting: str) -> Callable[[Any], Request]:
    return lambda n: ("PATCH", "/v1/topics/limited", {"json": {setting: n}})


def api_key(**members: Any) -> Request:
    new = {"name": "n", "grants": [{"operation": "produce"}], **members}
    return "POST", "/v1/api-keys", {"json": new}


def commit(**members: Any) -> Request:
    body = {"offsets": {"limited": 1}, "allow_backward": True, **members}
    return "PUT", "/v1/groups/limited/offsets", {"json": body}


def lease(ttl_ms: int) -> Request:
    return "POST", "/v1/groups/leased/lease", {"json": {"holder": "h", "ttl_ms": ttl_ms}}


def ahead(hours: int) -> Request:
    time = datetime.now(UTC) + timedelta(hours=hours)
    return produce(timestamp=time.isoformat().replace("+00:00", "Z"))


BAD = (400, "bad_parameter")
BAD_JSON = (400, "bad_json")
BAD_REQUEST = (400, "bad_request")
LARGE = (413, "record_too_large")
MANY = (413, "request_too_large")
EDGES = [
    Edge("RECORD_BYTES_DEFAULT", lambda n: ("POST", RECORDS, {"content": b"x" * n}), *LARGE,
         taken=201),
    Edge("REQUEST_BYTES_MAX", lambda n: ("POST", RECORDS, {"content": b"[" + b" " * (n - 1)}),
     *MANY,
         taken=413),
    Edge("RECORD_KEY_BYTES_MAX", lambda n: produce(key="k" * n), *LARGE, taken=201),
    Edge("RECORD_HEADERS_MAX", lambda n: produce(headers={str(i): "" for i in range(n)}), *LARGE,
         taken=201),
    Edge("RECORD_HEADERS_BYTES_MAX", lambda n: produce(headers={"a": "x" * (n - 6)}), *LARGE,
         taken=201),
    Edge("RECORDS_PER_REQUEST_MAX",
         lambda n: ("POST", RECORDS, {"json": {"records": [{"value": 1}] * n}}), *MANY, taken=201),
    Edge("RECORDS_IN_BATCHES_MAX",
         lambda n: ("POST", RECORDS, {"content": make_batch([b""] * n),
                                      "headers": {"content-type": "application/vnd.seb.batch"}}),
         *MANY, taken=201),
    Edge("TIMESTAMP_AHEAD_US_MAX", ahead, *BAD, most=23, beyond=25, taken=201),
    Edge("NAME_LENGTH_MAX", lambda n: ("PUT", f"/v1/topics/{'a' * n}", {}), 400, "bad_name",
         taken=201),
    Edge("IDEMPOTENCY_KEY_CHARACTERS_MAX",
         lambda n: ("POST", RECORDS, {"content": b"x", "headers": {"idempotency-key": "k" * n}}),
         *BAD, taken=201),
    Edge("GRANTS_PER_API_KEY_MAX",
         lambda n: api_key(grants=[{"operation": "produce", "topics": f"t{i}"} for i in range(n)]),
         *BAD_JSON, taken=201),
    Edge("API_KEY_NAME_LENGTH_MAX", lambda n: api_key(name="n" * n), *BAD_JSON, taken=201),
    Edge("API_KEY_DESCRIPTION_LENGTH_MAX", lambda n: api_key(description="d" * n), *BAD_JSON,
         taken=201),
    Edge("COMMIT_METADATA_CHARACTERS_MAX", lambda n: commit(metadata={"limited": "m" * n}),
         *BAD_JSON),
    Edge("GROUPS_PER_PAGE_MAX", query("/v1/groups?limit={}"), *BAD),
    Edge("AUDIT_PER_PAGE_MAX", query("/v1/audit?limit={}"), *BAD),
    Edge("KEYS_PER_PAGE_MAX", query("/v1/topics/limited/keys?limit={}"), *BAD),
    Edge("FETCH_RECORDS_MAX", query(RECORDS + "?max_records={}"), *BAD),
    Edge("FETCH_BYTES_MAX", query(RECORDS + "?max_bytes={}"), *BAD),
    Edge("WAIT_MS_MAX", query(RECORDS + "?wait={}ms"), *BAD),
    Edge("OFFSET_MAX", query(RECORDS + "?offset={}"), *BAD, taken=416),
    Edge("PRESIGN_MS_MAX", query("/v1/topics/limited/manifest?presign={}ms"), *BAD),
    Edge("PATTERNS_PER_FOLLOWER_MAX",
         lambda n: ("HEAD", f"/v1/records?topics={','.join(['limited'] * n)}", {}), *BAD),
    Edge("RESET_PATTERNS_MAX",
         lambda n: ("POST", "/v1/groups/limited/reset",
                    {"json": {"to": "latest", "topics": ["limited"] * n, "dry_run": True}}),
         *BAD_JSON),
    Edge("LEASE_TTL_MS_MAX", lease, *BAD_JSON),
    Edge("LEASE_TTL_MS_MIN", lease, *BAD_JSON, beyond=limits.LEASE_TTL_MS_MIN - 1),
    Edge("LINGER_MS_MAX", topic("linger_ms"), *BAD_REQUEST),
    Edge("RECORD_BYTES_MAX", topic("max_record_bytes"), *BAD_REQUEST),
    Edge("RETENTION_MS_MIN", topic("retention_ms"), *BAD_REQUEST,
         beyond=limits.RETENTION_MS_MIN - 1),
    Edge("DIRTY_RATIO_MAX", topic("dirty_ratio"), *BAD_REQUEST, beyond=0.995),
    Edge("DIRTY_RATIO_MIN", topic("dirty_ratio"), *BAD_REQUEST, beyond=0.005),
]  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited(seb: RunningAppliance) -> RunningAppliance:
    await seb.client.put("/v1/topics/limited", json={"key_index": "latest"})
    await seb.client.post(RECORDS, json={"records": [{"value": 1, "key": "a"}] * 2})
    await seb.client.put("/v1/groups/limited/offsets", json={"offsets": {"limited": 1}})
    return seb


async def told(seb: RunningAppliance, request: Request) -> httpx2.Response:
    method, path, more = request
    return await seb.client.request(method, path, **more)


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.limit)
async def test_a_request_at_its_limit_is_taken_and_one_beyond_it_refused(
    limited: RunningAppliance, edge: Edge
) -> None:
    answer = await told(limited, edge.ask(edge.edge))
    assert answer.status_code == edge.taken, answer.text[:500]
    answer = await told(limited, edge.ask(edge.step))
    assert answer.status_code == edge.status, answer.text[:500]
    if answer.request.method != "HEAD":
        assert (answer.json()["code"], answer.json()["side_effects"]) == (edge.code, "none")


FULL: dict[str, tuple[Callable[[RunningAppliance], Awaitable[httpx2.Response]], int, str]] = {
    "TOPICS_MAX": (lambda seb: seb.client.put("/v1/topics/one-more"), *BAD_REQUEST),
    "API_KEYS_MAX": (lambda seb: told(seb, api_key()), *BAD_REQUEST),
    "WAITING_READERS_MAX": (
        lambda seb: seb.client.get(f"{RECORDS}?offset=latest&wait=1s"), 503, "overloaded",
    ),
    "KEY_VIEWS_MAX": (
        lambda seb: seb.client.get(f"{RECORDS}?view=latest&max_records=1"), 503, "overloaded",
    ),
    "EXTERNAL_COMPACTIONS_MAX": (
        lambda seb: seb.client.post("/v1/topics/limited/compactions"), 409, "compaction_refused",
    ),
}  # fmt: skip


@pytest.mark.parametrize("limit", FULL)
async def test_what_there_is_enough_of_is_not_made(
    limited: RunningAppliance, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    ask, status, code = FULL[limit]
    shares = {f"{share.name.upper()}_MAX": share for share in limited.appliance.broker.shares}
    if limit in shares:
        monkeypatch.setattr(shares[limit], "limit", 0)
    else:
        monkeypatch.setattr(limits, limit, 0)
    answer = await ask(limited)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.json()["side_effects"] == "none"


async def test_an_overlap_of_a_month_is_the_longest(limited: RunningAppliance) -> None:
    made = (await told(limited, api_key())).json()
    path = f"/v1/api-keys/{made['api_key_id']}/rotate"
    assert (await limited.client.post(path, json={"overlap": "30d"})).status_code == 200
    answer = await limited.client.post(
        path, json={"overlap": f"{limits.API_KEY_OVERLAP_MS_MAX + 1}ms"}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")


async def test_a_user_agent_is_noted_up_to_its_limit(limited: RunningAppliance) -> None:
    agent = "a" * 10 * limits.USER_AGENT_CHARACTERS_MAX
    await limited.client.put("/v1/topics/agent", headers={"user-agent": agent})
    (action,) = (await limited.client.get("/v1/audit?limit=1")).json()["audit"]
    assert action["user_agent"] == agent[: limits.USER_AGENT_CHARACTERS_MAX]
