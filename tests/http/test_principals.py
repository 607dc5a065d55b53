"""Every operation of the OpenAPI document, asked by everybody: who has no grant for it is refused
and told nothing, and who has one is let in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio

from seb_appliance.clock import Clock, SystemClock
from seb_appliance.ops.serve.protocols import openapi_json
from tests.http.bad_input import nothing_happens
from tests.http.principals import ASKS, GRANTS, LET_IN, PRINCIPALS, STRANGERS, Ask, Need
from tests.support.appliance import RunningAppliance, running_appliance

pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = {"get", "put", "post", "patch", "delete"}
# Lists: whoever has a key gets an answer, and others' things are not in it.
LISTS: dict[str, Need] = {"listTopics": "see", "listGroups": "see group", "listInlets": "manage",
                          "listQueues": "see queue", "listSubscriptions": "manage"}  # fmt: skip
OF_MANY = {"readMany", "makeTicket"}
ELSEWHERE = ("other", "neighbour")  # whose topics are others
# Of a group, as if it were not there, to who may see none of its topics.
NOT_THERE = {
    "getGroup", "resetGroup", "deleteGroup", "getQueue", "deleteQueue", "takeRecords",
    "resetQueue", "redriveQueue",
    "ackDeliveries", "retryDeliveries", "rejectDeliveries", "extendDeliveries",
    "getSubscription", "deleteSubscription", "listDeliveries", "testSubscription",
    "pauseSubscription", "resumeSubscription", "replaySubscription",
}  # fmt: skip
# To whoever may not manage its topic, or consume it.
NOT_THERE_AT_ALL = {
    "getInlet", "deleteInlet", "icebergTable", "icebergMetrics",
    "getStreamSubscription", "deleteStreamSubscription", "linkStreams", "unlinkStream", "claimWake",
}  # fmt: skip
LEASES = {"takeLease", "releaseLease"}  # of a group that is not there are anybody's
# `text/plain`: the Go broker's, metrics, and what the stream of these tests says of itself.
NO_PAGES = ("application/json", "application/problem+json", "application/octet-stream",
            "application/jwk-set+json",
            "text/plain", "text/javascript", "multipart/form-data", "application/vnd.")  # fmt: skip
ABSENT = {
    "topic": "target.absent", "group": "target.absent", "queue": "target.absent",
    "path": "target/absent",
    "api_key_id": "abcdefgh", "inlet": "target.absent", "table": "target.absent",
    "subscription": "target.absent",
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Route:
    operation: str
    method: str
    path: str

    def __str__(self) -> str:
        return self.operation


def routes() -> Iterator[Route]:
    for path, item in msgspec.json.decode(openapi_json())["paths"].items():
        for method in METHODS & item.keys():
            yield Route(item[method]["operationId"], method.upper(), path)


ROUTES = sorted(routes())
# What the fast lane answers is asked without it, too.
IN_BOTH_LANES = [
    route
    for route in ROUTES
    if route.operation in {"produce", "consume", "commitOffsets", "appendToStream"}
    or route.path == "/records"
]


@dataclass(frozen=True)
class House:
    seb: RunningAppliance
    clients: dict[str, httpx2.AsyncClient]  # by principal


@dataclass(frozen=True)
class Later(SystemClock):
    """Two hours later than it is."""

    clock: Clock

    def wall_us(self) -> int:
        return self.clock.wall_us() + 2 * 3_600_000_000


async def make_key(seb: RunningAppliance, operations: tuple[str, ...], **more: Any) -> Any:
    name = more.get("name", "")
    topics = "other.**" if name in ELSEWHERE else "target.**"
    patterns = {"topics": topics, "groups": "other.**" if name == "other" else "target.**"}
    grants = [{"operation": operation, **patterns} for operation in operations]
    answer = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def tokens_of(seb: RunningAppliance) -> dict[str, str | None]:
    """The tokens of all principals. One expires in an hour, and then it is two hours later."""
    soon = datetime.now(UTC) + timedelta(hours=1)
    expired = await make_key(seb, ("admin",), expires=soon.isoformat())
    revoked = await make_key(seb, ("admin",))
    await seb.client.delete(f"/v1/api-keys/{revoked['api_key_id']}")
    with_grants = {
        name: (await make_key(seb, grants, name=name))["secret"] for name, grants in GRANTS.items()
    }
    # Of an id that there is, with a checksum that is right: only the secret is not its own now.
    wrong = (await make_key(seb, ("admin",)))["secret"].split("_")
    rotated = await seb.client.post(f"/v1/api-keys/{wrong[1]}/rotate", json={"overlap": "0s"})
    assert rotated.status_code == 200
    access = seb.appliance.broker.access
    access._clock = Later(access._clock)
    strangers = {
        "none": None,
        "wrong": "_".join(wrong),
        "expired": expired["secret"],
        "revoked": revoked["secret"],
    }
    return {**strangers, **with_grants, "admin": seb.admin_key}


@asynccontextmanager
async def open_house(data: Path, *, fast_lane: bool) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        seb = await stack.enter_async_context(running_appliance(data, fast_lane=fast_lane))
        clients = {
            name: await stack.enter_async_context(seb.client_with(token))
            for name, token in (await tokens_of(seb)).items()
        }
        assert tuple(clients) == PRINCIPALS
        yield House(seb, clients)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with open_house(tmp_path_factory.mktemp("seb"), fast_lane=True) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house_without_lane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with open_house(tmp_path_factory.mktemp("seb"), fast_lane=False) as opened:
        yield opened


async def prepared(seb: RunningAppliance, route: Route) -> dict[str, str]:
    """A topic, group and API key for one operation alone: what stands in its path and body."""
    operation, path, generation = route.operation, route.path, 0
    topic = group = f"target.{operation}"
    if path.startswith("/v1/stream/"):
        made = await seb.client.put(
            f"/v1/stream/target/{operation}", content=b"x", headers={"content-type": "text/plain"}
        )
    else:
        await seb.client.put(f"/v1/topics/{topic}", json={"key_index": "history"})
        record = {"records": [{"key": "k", "value": "target"}]}
        made = await seb.client.post(f"/v1/topics/{topic}/records", json=record)
        commit = {"offsets": {topic: 0}}
        await seb.client.put(f"/v1/groups/{group}/offsets", json=commit)
    assert made.status_code == 201, made.text
    if operation == "releaseLease":
        lease = {"holder": "h", "ttl_ms": 60_000}
        taken = await seb.client.post(f"/v1/groups/{group}/lease", json=lease)
        generation = taken.json()["generation"]
    if path.startswith("/v1/inlets"):
        inlet = {"topic": topic, "verify": {"scheme": "github"}, "secrets": ["a secret"]}
        await seb.client.put(f"/v1/inlets/{topic}", json=inlet)
    if path.startswith("/v1/queues"):
        await seb.client.put(f"/v1/queues/{topic}", json={"topics": [topic]})
    if path.startswith("/v1/subscriptions"):
        # It finds nothing to send, and could not: others would see its attempts in the journal.
        later, nowhere = {"topics": [topic], "start": "latest"}, {"url": "http://127.0.0.1:9/"}
        await seb.client.put(f"/v1/queues/{topic}", json=later)
        await seb.client.put(f"/v1/subscriptions/{topic}", json=nowhere)
        await seb.client.post(f"/v1/subscriptions/{topic}/pause")
    if "{subscription}" in path and operation != "setStreamSubscription":
        wakes = {"type": "pull-wake", "streams": [topic.replace(".", "/")], "wake_stream": "w"}
        await seb.client.put(f"/v1/stream/__ds/subscriptions/{topic}", json=wakes)
    of_key = "{api_key_id}" in path
    return {
        "topic": topic,
        "group": group,
        "queue": topic,
        "path": topic.replace(".", "/"),
        "api_key_id": (await make_key(seb, ("consume",)))["api_key_id"] if of_key else "",
        "generation": str(generation),
        "inlet": topic,
        "subscription": topic,
        "connection": "1",
        "entry": "1",
        "table": topic,
        "namespace": "topics",
        "secret": "a-secret-in-a-path",
        "offset": "0",
        "compaction": "none",
        "asset": "schema.js",
    }


def filled(value: Any, names: dict[str, str]) -> Any:
    """`value` with `{topic}` and the like replaced, in the keys of objects too."""
    if isinstance(value, dict):
        return {filled(key, names): filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    return value.format(**names) if isinstance(value, str) else value


async def asked(
    client: httpx2.AsyncClient, route: Route, ask: Ask, names: dict[str, str]
) -> httpx2.Response:
    url = filled(f"{route.path}?{ask.query}" if ask.query else route.path, names)
    body: dict[str, Any] = {} if ask.json is None else {"json": filled(ask.json, names)}
    if ask.content is not None:
        body["content"] = ask.content
    answer = await client.request(route.method, url, headers=filled(ask.headers, names), **body)
    check_is_no_page(answer, route)
    return answer


def check_is_no_page(answer: httpx2.Response, route: Route) -> None:
    """What holds what others wrote is nothing that a browser shows as a page, or guesses to be."""
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "form-action" in policy
    if not answer.headers.get("content-type", "").startswith(NO_PAGES):
        assert route.operation == "schemaPage" or not answer.content, answer.headers


def words(answer: httpx2.Response, names: dict[str, str]) -> str:
    """What a refusal says, without the names that were asked for and the id of the request."""
    text = answer.text.replace(answer.headers["seb-request-id"], "")
    for name in sorted(names.values(), key=len, reverse=True):
        text = text.replace(name, "…") if len(name) > 1 else text
    return text


async def test_every_operation_has_a_row_and_no_row_is_too_many() -> None:
    assert sorted(ASKS) == sorted(route.operation for route in ROUTES)


async def check_refused(
    house: House, principal: str, route: Route, names: dict[str, str], ask: Ask
) -> None:
    """Whether what was asked for is there or not, the answer is one."""
    client = house.clients[principal]
    answer = await asked(client, route, ask, names)
    if route.operation in OF_MANY and principal in ELSEWHERE:
        # It may consume something: what it gets is without what it may not.
        assert answer.status_code < 300
        assert "value" not in answer.text
        return
    expected = 401 if principal in STRANGERS or ask.need == "secret" else 403
    unseen = NOT_THERE if principal == "neighbour" else set()
    if expected == 403 and route.operation in NOT_THERE_AT_ALL | unseen:
        expected = 404
    assert answer.status_code == expected, f"{principal}: {answer.text}"
    if principal == "neighbour" and route.operation in LEASES:
        return
    absent = names | ABSENT
    elsewhere = await asked(client, route, ask, absent)
    assert elsewhere.status_code == expected, f"{principal}: {elsewhere.text}"
    assert words(elsewhere, absent) == words(answer, names), principal


async def check(house: House, route: Route) -> None:
    ask = ASKS[route.operation]
    names = await prepared(house.seb, route)
    let_in = [name for name in PRINCIPALS if name in LET_IN[ask.need]]
    async with nothing_happens(house.seb):
        for name in PRINCIPALS:
            if name not in let_in:
                await check_refused(house, name, route, names, ask)
    for number, name in enumerate(let_in):
        answer = await asked(house.clients[name], route, ask, names)
        assert answer.status_code not in (401, 403), f"{name}: {answer.text}"
        assert answer.status_code < 500, f"{name}: {answer.text}"
        if number == 0:
            assert answer.status_code == ask.status, f"{name}: {answer.text}"
        if route.operation in LISTS:
            sees = name in LET_IN[LISTS[route.operation]]
            assert ("target" in answer.text) == sees, f"{name}: {answer.text}"


@pytest.mark.parametrize("route", ROUTES, ids=str)
async def test_an_operation_is_for_those_who_have_its_grant(house: House, route: Route) -> None:
    await check(house, route)


@pytest.mark.parametrize("route", IN_BOTH_LANES, ids=str)
async def test_what_the_fast_lane_answers_is_for_the_same_without_it(
    house_without_lane: House, route: Route
) -> None:
    await check(house_without_lane, route)


async def test_nothing_is_served_beside_the_document_and_the_admin_page(house: House) -> None:
    """No route for finding bugs, no documentation of a framework, no metrics of another kind."""
    found = house.seb.server.config.app.litestar.routes  # type: ignore[union-attr]
    served = {route.path.partition("{")[0] for route in found}
    listed = {route.path.partition("{")[0] for route in ROUTES}
    assert {path for path in served - listed if not path.startswith("/ui")} == {"/"}  # to /ui
