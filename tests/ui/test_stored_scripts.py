"""Whatever people and programs name or send, no page makes markup of it: every route of the admin
page is visited and each of its forms sent, with scripts in all that can be said."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Literal, get_args
from urllib.parse import quote

import httpx2
import msgspec
import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.lake.jobs import BadRow
from seb_appliance.broker.status import PortStatus, Telemetry
from seb_appliance.formats.lake.tables import Column
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.serve import http_server
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.protocols.sockets.connected import AllConnections, Connected
from seb_appliance.protocols.subscriptions.delivering import Sent
from seb_appliance.protocols.subscriptions.running import Subscriptions
from seb_appliance.ui.options import CheckShown, Figure, Remark, UiOptions
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.lake import SET
from tests.ui.looking import Form, looked_through
from tests.ui.pages import Visitor, add_user, visitor
from tests.ui.test_record_keys import b64
from tests.ui.test_who_may import ROUTES

pytestmark = pytest.mark.asyncio(loop_scope="module")


def script(place: str) -> str:
    """What would run, or show as markup, if `place` were not escaped somewhere."""
    return (
        f"<xss-{place}>\"'><img src=x onerror=xss()>' onxss='1\" onxss=\"1 javascript:xss() "
        f"</textarea></title></script><script>xss()</script><!--{{{{7*'xss'}}}}{{%xss%}}"
    )


class Port:
    """One with a client whose name is a script."""

    status = PortStatus("MQTT", 1)
    count = 1

    def connected(self) -> list[Connected]:
        return [Connected(1, "MQTT 5", script("client"), "key", "127.0.0.1", 1, 0, 0, 0, 0)]

    def disconnect(self, number: int) -> bool:
        return number == 1


def mark(place: str) -> str:
    """By which a page is seen to show it."""
    return f"<xss-{place}>"


USER_AGENT: Final = script("agent")[: limits.USER_AGENT_CHARACTERS_MAX]
# Who is given this has said it in each of its texts.
SHOWN: Final = {
    "api-key", "description", "record-key", "value", "json", "header", "holder", "metadata",
    "agent", "actor", "telemetry", "setting", "figure", "bill", "check", "field", "inlet",
    "subscription", "answer", "client",
}  # fmt: skip

KEY: Final = script("record-key")
RECORD: Final = "/ui/topics/t/records"
# Every route that is read, with the ways to read it. {key}: the API key's id.
PAUSED: Final = "ffeeddccbbaa9988"
VISITS: Final[dict[str, tuple[str, ...]]] = {
    "/ui": ("/ui", "/ui?span=1h"),
    "/ui/charts/{kind:str}": ("/ui/charts/overview?span=24h", f"/ui/charts/{quote('<xss>')}"),
    "/ui/{rest:path}": (f"/ui/{quote(script('path'))}", "/ui/nothing"),
    "/ui/login": ("/ui/login", f"/ui/login?next={quote('/ui/topics?filter=' + script('path'))}"),
    "/ui/static/{named:str}": (f"/ui/static/{quote('<xss>.css')}",),
    "/ui/topics": ("/ui/topics", f"/ui/topics?filter={quote(script('field'))}"),
    "/ui/topics/{topic:str}": (
        "/ui/topics/t",
        "/ui/topics/shut",
        f"/ui/topics/{quote('<xss>')}",
    ),
    "/ui/topics/{topic:str}/settings": ("/ui/topics/t/settings?linger_ms=5",),
    "/ui/topics/{topic:str}/trim": ("/ui/topics/t/trim?before=1",),
    "/ui/topics/{topic:str}/records": (
        RECORD,
        f"{RECORD}?start=earliest",
        f"{RECORD}?start=earliest&show=text",
        f"{RECORD}?start=earliest&show=hex",
        f"{RECORD}?start=earliest&text=xss",
        f"{RECORD}?start=end&text=xss&columns=xss,{quote('$')}",
        f"{RECORD}?start=end&where={quote(script('field'))}&columns={quote(script('field'))}",
        f"{RECORD}?start=end&to={quote(script('field'))}",
        f"{RECORD}?start=end&key={quote(KEY)}",
        f"{RECORD}?start=earliest&at={quote(script('field'))}",
        f"{RECORD}?start=earliest&text={quote(script('field'))}",
    ),
    "/ui/topics/{topic:str}/records/{offset:str}": (
        f"{RECORD}/0", f"{RECORD}/1", f"{RECORD}/2?show=text", f"{RECORD}/{quote('<xss>')}",
    ),
    "/ui/topics/{topic:str}/download": ("/ui/topics/t/download",),
    "/ui/topics/{topic:str}/live": (
        "/ui/topics/t/live",
        f"/ui/topics/t/live?text={quote(script('field'))}",
        f"/ui/topics/t/live?where={quote(script('field'))}",
    ),
    "/ui/topics/{topic:str}/live/rows": (),  # does not end: see below
    "/ui/topics/{topic:str}/keys": ("/ui/topics/t/keys", f"/ui/topics/t/keys?prefix={quote(KEY)}"),
    "/ui/topics/{topic:str}/key": (f"/ui/topics/t/key?key={b64(KEY.encode())}",),
    "/ui/topics/{topic:str}/produce": ("/ui/topics/t/produce", "/ui/topics/t/produce?like=0"),
    "/ui/topics/{topic:str}/send": (
        "/ui/topics/t/send?offset=0&offset=1&to=other",
        f"/ui/topics/t/send?offset=0&to={quote(script('field'))}",
    ),
    "/ui/groups": ("/ui/groups", f"/ui/groups?filter={quote(script('field'))}"),
    "/ui/groups/{group:str}": ("/ui/groups/g", f"/ui/groups/{quote('<xss>')}"),
    "/ui/groups/{group:str}/lag": ("/ui/groups/g/lag", f"/ui/groups/{quote('<xss>')}/lag"),
    "/ui/groups/{group:str}/reset": ("/ui/groups/g/reset",),
    "/ui/queues": ("/ui/queues", f"/ui/queues?filter={quote(script('field'))}"),
    "/ui/new-queue": ("/ui/new-queue",),
    "/ui/queues/{queue:str}": ("/ui/queues/work", f"/ui/queues/{quote('<xss>')}"),
    "/ui/api-keys": ("/ui/api-keys", f"/ui/api-keys?filter={quote(script('field'))}"),
    "/ui/api-keys/new": ("/ui/api-keys/new",),
    "/ui/api-keys/{api_key_id:str}": ("/ui/api-keys/{key}", f"/ui/api-keys/{quote('<xss>')}"),
    "/ui/inlets": ("/ui/inlets",),
    "/ui/new-inlet": ("/ui/new-inlet",),
    "/ui/inlets/{inlet:str}": ("/ui/inlets/shop", f"/ui/inlets/{quote('<xss>')}"),
    "/ui/connections": (
        "/ui/connections",
        f"/ui/connections?filter={quote(script('field'))}",
    ),
    "/ui/subscriptions": ("/ui/subscriptions",),
    "/ui/new-subscription": ("/ui/new-subscription",),
    "/ui/subscriptions/{subscription:str}": (
        "/ui/subscriptions/shop",
        f"/ui/subscriptions/{quote('<xss>')}",
    ),
    "/ui/tables": ("/ui/tables",),
    "/ui/tables/{table:str}": (
        f"/ui/tables/{SET.table_id}",
        f"/ui/tables/{PAUSED}",
        f"/ui/tables/{quote('<xss>')}",
    ),
    "/ui/storage": ("/ui/storage",),
    "/ui/users": ("/ui/users",),
    "/ui/users/{name:str}": ("/ui/users/olga", f"/ui/users/{quote('<xss>')}"),
    "/ui/settings": ("/ui/settings",),
    "/ui/definitions": ("/ui/definitions",),
    "/ui/definitions/file": ("/ui/definitions/file",),
    "/ui/find": ("/ui/find", "/ui/find?q=xss", f"/ui/find?q={quote(script('field'))}"),
    "/ui/audit": ("/ui/audit", f"/ui/audit?who={quote(script('field'))}", "/ui/audit?from=%3Cxss"),
}  # fmt: skip


def spoiled(value: Any, place: str) -> Any:
    """`value` of the composition root with a script in each text that is no word of ours."""
    if isinstance(value, str):
        return script(place)
    if isinstance(value, list | tuple):
        return type(value)(spoiled(one, place) for one in value)
    if isinstance(value, msgspec.Struct):
        members = {name: spoiled(getattr(value, name), place) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **members)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = {
            member.name: spoiled(getattr(value, member.name), place)
            for member in dataclasses.fields(value)
            if not str(member.type).startswith("CheckKind")
        }
        return dataclasses.replace(value, **members)
    return value


def spoiled_options(options: Callable[[Appliance], UiOptions]) -> Callable[[Appliance], UiOptions]:
    """The pages are told scripts: as errors of the bucket, as addresses, as names of files."""

    def of(appliance: Appliance) -> UiOptions:
        told = options(appliance)
        remarks = [Remark("title", "detail", "advice")]
        check = CheckShown("fsck", "t", "a", "p", 1, 1.0, False, "v", [Figure("n", "v")], remarks)

        async def telemetry() -> Telemetry:
            return spoiled(await told.telemetry(), "telemetry")

        return dataclasses.replace(
            told,
            telemetry=telemetry,
            settings=lambda: spoiled(list(told.settings()), "setting"),
            cost=lambda: spoiled(told.cost(), "figure"),
            bill=lambda: spoiled(list(told.bill()), "bill"),
            checks=lambda: [spoiled(check, "check"), dataclasses.replace(check, kind="doctor")],
        )

    return of


async def fill(seb: RunningAppliance) -> str:
    """Scripts in all that a program can name or send. The id of an API key."""
    client, headers = seb.client, {"user-agent": USER_AGENT}
    made = await client.post(
        "/v1/api-keys",
        headers=headers,
        json={
            "name": script("api-key")[: limits.API_KEY_NAME_LENGTH_MAX],
            "description": script("description"),
            "grants": [{"operation": "consume"}],
        },
    )
    assert made.status_code == 201, made.text
    await client.put("/v1/topics/t", json={"key_index": "history"}, headers=headers)
    await client.put("/v1/stream/shut", headers={**headers, "stream-closed": "true"})
    table = msgspec.structs.replace(
        SET,
        name=script("table"),
        address=script("address"),
        columns=(Column(16, script("column"), "json", (script("member"),)),),
    )
    commits = seb.appliance.broker.table_commits
    await commits._add(table)
    await commits._add(msgspec.structs.replace(table, table_id=PAUSED, paused=True))
    commits.notes(SET.table_id).bad_rows.append(BadRow(0, script("error"), script("raw").encode()))
    commits.notes(SET.table_id).failure = script("failure")
    commits.foreign[SET.table_id] = script("foreign")
    inlet = {"topic": "t", "verify": {"scheme": "github"}, "description": script("inlet")}
    inlet["secrets"] = ["new", "old"]
    assert (await client.put("/v1/inlets/shop", json=inlet)).status_code == 201
    pushed = {"topics": ["none"], "url": "http://127.0.0.1:9/?'", "secrets": ["whsec_AA", "AAAA"]}
    pushed |= {"description": script("subscription"), "headers": {"X-A": "'"}}
    assert (await client.put("/v1/subscriptions/shop", json=pushed)).status_code == 201
    dead = {f"seb-dead-{part}": script("dead") for part in ("topic", "reason", "attempts")}
    dead_letters = [{"value": "", "headers": dead | {"seb-dead-queue": "work"}}]
    await client.post("/v1/topics/dead/records", json={"records": dead_letters})
    await client.put("/v1/queues/work", json={"topics": ["t"], "dead_letter": "dead"})
    subscriptions = seb.appliance.beside[Subscriptions]
    found = subscriptions.find("shop")
    assert found is not None
    worker = subscriptions.worker(found)
    sent_before = Sent(1, "msg", "t", 0, 2, 1, 1, 500, 1, "failed", script("answer"))
    worker.log.append(sent_before)
    records = [
        {"key": KEY, "value": script("value"), "headers": {script("header"): script("header")}},
        {"key": KEY, "value": {script("json"): [script("json")]}},
        {"key": KEY, "value": script("value") * 2},
    ]
    sent = await client.post("/v1/topics/t/records", json={"records": records})
    assert sent.status_code == 201, sent.text
    await client.get("/v1/topics/t/keys?fresh=true")
    commit = {"offsets": {"t": 1}, "metadata": {"t": script("metadata")}}
    lease = {"holder": script("holder")[:128], "ttl_ms": 600_000}
    leased = await client.post("/v1/groups/held/lease", json=lease)
    committed = await client.put("/v1/groups/g/offsets", json=commit)
    for answer in (leased, committed):
        assert answer.status_code == 200, answer.text
    by = Actor(f"user:{script('actor')}", script("actor"), script("actor"))
    await seb.appliance.broker.topics.create("other", TopicSettings(), by)
    return str(made.json()["api_key_id"])


@dataclasses.dataclass
class Tour:
    """A visit of everything: what pages said, and which routes were asked."""

    by: Visitor
    said: set[str] = dataclasses.field(default_factory=set)
    asked: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    forms: dict[tuple[str, str], Form] = dataclasses.field(default_factory=dict)

    async def visit(self, method: str, url: str, fields: dict[str, str] | None = None) -> None:
        """Asks with scripts in the headers, too, and looks through what is answered."""
        query = {"params": fields} if method == "GET" and fields else {}
        body = {"data": fields} if method == "POST" else {}
        headers = {"origin": self.by.origin, "user-agent": USER_AGENT, "referer": USER_AGENT}
        if method == "POST":
            headers["content-type"] = "application/x-www-form-urlencoded"
        answer = await self.by.client.request(method, url, headers=headers, **query, **body)
        self.asked.add((method, route_of(method, answer.request.url.path)))
        check_type(answer)
        assert answer.status_code != 500, f"{method} {url}: {answer.text}"
        if answer.headers["content-type"].startswith("text/html"):
            self.look(answer.text, f"{method} {url}")

    def look(self, text: str, where: str) -> None:
        try:
            page = looked_through(text)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error
        assert "<xss" not in text, where
        words = " ".join(page.said)
        assert "xssxss" not in words, f"{where} computes what is told it"
        self.said |= {place for place in SHOWN if mark(place) in words}
        for form in page.forms:
            self.forms.setdefault((form.method, form.action), form)


def route_of(method: str, path: str) -> str:
    """The template of the route that answers; "" for none."""
    routes = [route for of, route in ROUTES if of == method]
    for route in sorted(routes, key=lambda route: "{rest" in route):
        pattern = re.sub(r"\{\w+:str\}", "[^/]+", re.sub(r"\{\w+:path\}", ".+", route))
        if re.fullmatch(pattern, path):
            return route
    return ""


def check_type(answer: httpx2.Response) -> None:
    """A browser takes an answer for what it says it is, and nothing but a page of ours is one."""
    if answer.status_code in (301, 302, 303):
        assert answer.headers["location"].startswith("/ui")
        return
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "'unsafe" not in answer.headers["content-security-policy"]
    kind = answer.headers["content-type"]
    shown = kind in (
        "text/html; charset=utf-8",
        "application/problem+json",
        "application/json",
    )
    is_file = answer.headers.get("content-disposition", "").startswith("attachment")
    assert shown or is_file, (str(answer.request.url), kind)


How = Literal["choices", "texts", "all"]


def filled(form: Form, how: How) -> dict[str, str]:
    """The form as it is shown, with something chosen; with a script in each of its texts, too; or
    with one in all of its fields."""
    fields = dict(form.fields)
    for name in fields:
        if name == "form_id":
            continue
        is_text = not (name in form.hidden or name in form.chosen)
        if how == "all" or (how == "texts" and is_text):
            fields[name] = script("field")
        elif choice := [one for one in form.chosen.get(name, ()) if one]:
            fields[name] = choice[0]
    return fields


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningAppliance]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "ui_options", spoiled_options(http_server.ui_options))
        patch.setattr(limits, "LOGINS_AT_ONCE", 1_000)
        async with running_appliance(tmp_path_factory.mktemp("seb")) as running:
            await add_user(running, "admin", "admin")
            await add_user(running, "olga", "viewer")
            yield running


async def test_every_route_that_is_read_has_a_visit() -> None:
    assert set(VISITS) == {path for method, path in ROUTES if method == "GET"}


async def test_no_page_makes_markup_of_what_it_was_told(
    seb: RunningAppliance, admin: Visitor
) -> None:
    seb.appliance.beside[AllConnections].add(Port())
    key, tour = await fill(seb), Tour(admin)
    unknown = f"{quote(script('field'))}={quote(script('field'))}"
    for urls in VISITS.values():
        for url in urls:
            await tour.visit("GET", url.replace("{key}", key))
        for url in urls[:1]:
            await tour.visit("GET", f"{url.replace('{key}', key).partition('?')[0]}?{unknown}")
    last = [("post", "/ui/logout"), ("post", "/ui/logout-everywhere")]
    sent: set[tuple[str, str]] = set(last)
    while left := tour.forms.keys() - sent:  # an answer may show another form
        sent |= left
        for method, action in sorted(left):
            for how in get_args(How):
                await tour.visit(method.upper(), action, filled(tour.forms[method, action], how))
    for method, action in last:
        await tour.visit(method.upper(), action, {})
    await tour.visit("GET", VISITS["/ui/login"][1])
    await tour.visit("POST", "/ui/login", filled(tour.forms["post", "/ui/login"], "all"))
    rows = ("GET", "/ui/topics/{topic:str}/live/rows")
    sql = ("POST", "/ui/tables/{table:str}/sql")  # no form where no table can be: test_sql_box.py
    assert tour.asked | {rows, sql} >= ROUTES.keys(), ROUTES.keys() - tour.asked
    assert tour.said == SHOWN, "what no page shows is not tried by this test"


async def test_a_followed_topic_makes_no_markup_of_what_comes(seb: RunningAppliance) -> None:
    await add_user(seb, "otto", "viewer")
    await seb.client.put("/v1/topics/followed")
    tour, rows = Tour(visitor(seb)), "/ui/topics/followed/live/rows"
    record = {"key": KEY, "value": script("value"), "headers": {script("header"): "x"}}
    async with asyncio.timeout(20), tour.by.client as client:
        assert (await tour.by.log_in("otto")).status_code == 303
        async with client.stream("GET", rows) as answer:
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert answer.headers["x-content-type-options"] == "nosniff"
            await seb.client.post("/v1/topics/followed/records", json={"records": [record]})
            async for line in answer.aiter_lines():
                tour.look(line.removeprefix("data:"), rows)
                if tour.said >= {"record-key", "value"}:
                    return
    raise AssertionError("the rows ended without the record")
