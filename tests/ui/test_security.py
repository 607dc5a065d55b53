"""Who gets in, who may change something, and what every page forbids the browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.broker.access.audit import Actor
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.raw_http import RawConnection
from tests.ui.pages import PASSWORD, Visitor, add_user, visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGES = ["/ui", "/ui/topics", "/ui/settings", "/ui/audit"]
PAGES += ["/ui/groups", "/ui/api-keys", "/ui/api-keys/new"]
PAGES += ["/ui/queues", "/ui/new-queue", "/ui/connections"]
PAGES += ["/ui/inlets", "/ui/new-inlet", "/ui/subscriptions", "/ui/new-subscription"]
PAGES += ["/ui/storage", "/ui/users", "/ui/users/admin"]


@pytest_asyncio.fixture(loop_scope="module")
async def guest(seb: RunningAppliance, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Visitor]:
    """Somebody with no session, who may try often: all tests have one address."""
    monkeypatch.setattr(limits, "LOGINS_AT_ONCE", 1_000)
    visiting = visitor(seb)
    async with visiting.client:
        yield visiting


@pytest_asyncio.fixture(loop_scope="module")
async def admin(guest: Visitor) -> Visitor:
    assert (await guest.log_in("admin")).status_code == 303
    return guest


@pytest.mark.parametrize("path", [*PAGES, "/ui/nothing", "/ui/audit?who=user%3Aadmin"])
async def test_a_stranger_is_sent_to_the_log_in_and_back_again(guest: Visitor, path: str) -> None:
    answer = await guest.get(path)
    assert answer.status_code == 303
    shown = await guest.get(answer.headers["location"])
    assert shown.status_code == 200
    way_back = re.search(r'name="next" value="([^"]*)"', shown.text)
    assert way_back
    assert (await guest.log_in("olga", next=way_back[1])).headers["location"] == path


async def test_the_address_alone_leads_to_the_admin_page(guest: Visitor) -> None:
    answer = await guest.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui")


async def test_an_api_key_opens_no_page(seb: RunningAppliance) -> None:
    assert (await seb.client.get("/ui")).status_code == 303


async def test_a_part_of_a_page_takes_a_stranger_to_the_log_in_too(guest: Visitor) -> None:
    answer = await guest.get("/ui", **{"hx-request": "true", "hx-target": "overview-live"})
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/ui/login")


async def test_each_log_in_gives_a_new_session_and_ends_the_one_before(admin: Visitor) -> None:
    first = admin.token
    assert (await admin.log_in("admin")).status_code == 303
    assert first != admin.token
    answer = await admin.client.get("/ui", headers={"cookie": f"seb_session={first}"})
    assert answer.status_code == 303
    assert (await admin.get("/ui")).status_code == 200


@pytest.mark.parametrize(
    ("name", "password"),
    [("admin", "wrong"), ("nobody", PASSWORD), ("", ""), ("admin", "x" * 100_000),
     ("ADMIN", PASSWORD), ("' or 1=1 --", PASSWORD), ("admin", PASSWORD + " ")],
)  # fmt: skip
async def test_every_failure_has_one_answer(guest: Visitor, name: str, password: str) -> None:
    answer = await guest.log_in(name, password)
    assert answer.status_code == 401
    assert "Wrong user name or password." in answer.text
    assert guest.token is None
    assert password == "" or password not in answer.text


async def test_too_many_tries_from_one_address_are_refused_before_the_password_is_checked(
    tmp_path: Path,
) -> None:
    async with running_appliance(tmp_path / "tried") as tried:
        await add_user(tried, "admin", "admin")
        guest = visitor(tried)
        async with guest.client:
            for number in range(limits.LOGINS_AT_ONCE):
                assert (await guest.log_in(f"user-{number}")).status_code == 401
            answer = await guest.log_in("admin")
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "6")
            assert 'role="alert"' in answer.text
            assert "Too many log-ins failed" in answer.text
            assert "quota" not in answer.text
            assert guest.token is None


async def test_a_log_in_from_another_site_is_refused(guest: Visitor) -> None:
    for headers in ({}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        data = {"name": "admin", "password": PASSWORD}
        answer = await guest.client.post("/ui/login", data=data, headers=headers)
        assert answer.status_code == 403
        assert "another site" in answer.text
    assert guest.token is None


async def test_a_log_out_from_another_site_is_refused(admin: Visitor) -> None:
    for path in ("/ui/logout", "/ui/logout-everywhere"):
        answer = await admin.client.post(path, headers={"sec-fetch-site": "same-site"})
        assert answer.status_code == 403
    assert (await admin.get("/ui")).status_code == 200


async def test_a_session_is_worth_nothing_after_the_log_out(admin: Visitor) -> None:
    token = admin.token
    answer = await admin.post("/ui/logout")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
    assert admin.token is None
    again = await admin.client.get("/ui", headers={"cookie": f"seb_session={token}"})
    assert again.status_code == 303


async def test_logging_out_everywhere_ends_the_sessions_of_other_browsers(
    seb: RunningAppliance, admin: Visitor
) -> None:
    other = visitor(seb)
    async with other.client:
        await other.log_in("admin")
        assert (await other.get("/ui")).status_code == 200
        await admin.post("/ui/logout-everywhere")
        assert (await other.get("/ui")).status_code == 303


async def test_a_new_password_ends_the_sessions_of_its_user(
    seb: RunningAppliance, guest: Visitor
) -> None:
    await add_user(seb, "otto", "viewer")
    await guest.log_in("otto")
    assert (await guest.get("/ui")).status_code == 200
    accounts, passwords = seb.appliance.broker.accounts, seb.appliance.passwords
    await accounts.set_password("otto", await passwords.hash("another password"), Actor("", ""))
    assert (await guest.get("/ui")).status_code == 303
    assert (await guest.log_in("otto")).status_code == 401
    assert (await guest.log_in("otto", "another password")).status_code == 303
    await accounts.remove("otto", Actor("", ""))
    assert (await guest.get("/ui")).status_code == 303


async def test_the_cookie_is_secure_where_the_proxy_speaks_tls(guest: Visitor) -> None:
    headers = {"origin": guest.origin, "x-forwarded-proto": "https"}
    data = {"name": "admin", "password": PASSWORD}
    answer = await guest.client.post("/ui/login", data=data, headers=headers)
    assert answer.headers["set-cookie"].endswith("; Path=/ui; HttpOnly; SameSite=Strict; Secure")


def check_headers(answer: httpx2.Response) -> None:
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy
    assert "unsafe" not in policy
    assert "data:" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"


async def test_every_page_forbids_what_it_does_not_need(admin: Visitor) -> None:
    for path in [*PAGES, "/ui/login", "/ui/nothing", "/ui?span=1y"]:
        check_headers(await admin.get(path))
    check_headers(await admin.client.post("/ui/logout"))


async def test_no_page_holds_an_inline_script_or_style_or_another_host(admin: Visitor) -> None:
    for path in [*PAGES, "/ui/login", "/ui/nothing"]:
        text = (await admin.get(path)).text
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:", text)
        for url in re.findall(r'(?:src|href|action|hx-get)="([^"]*)"', text):
            assert url.startswith(("/ui", "/schema", "#")), url


async def test_a_file_of_the_pages_is_kept_for_a_year_under_a_name_of_its_content(
    guest: Visitor,
) -> None:
    text = (await guest.get("/ui/login")).text
    size = len(text)
    urls = set(re.findall(r'(?:src|href)="(/ui/static/[^"]*)"', text))
    assert len(urls) == 6
    for url in urls:
        answer = await guest.get(url)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        size += len(answer.content)
    assert size < 90_000, "the first page is below 100 kB in all"
    assert (await guest.get("/ui/static/seb.000000000000.css")).status_code == 404


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 'a'*12 }}{% raw %}",
    "javascript:alert(1)",
    '<b hx-get="/ui/x" hx-on:load="alert(1)" data-hx-trigger="load">',
    "\u202egnp.exe",
]


@pytest.mark.parametrize("text", HOSTILE)
async def test_nothing_that_somebody_named_can_run(
    seb: RunningAppliance, admin: Visitor, text: str
) -> None:
    made = await seb.client.post(
        "/v1/api-keys", json={"name": text, "grants": [{"operation": "admin"}]}
    )
    async with seb.client_with(made.json()["secret"]) as client:
        await client.put("/v1/topics/hostile", headers={"user-agent": text.encode("utf-8")})
    by = Actor(f"user:{text}", text, text)
    await seb.appliance.broker.topics.create("hostile-2", TopicSettings(), by)
    for path in ("/ui/audit", "/ui/login"):
        answer = await admin.client.get(path, params={"who": text} if "audit" in path else {})
        for page in (answer.text, (await admin.get("/ui/audit")).text):
            assert "<script>alert" not in page
            assert "<img" not in page
            assert "<b hx-" not in page
            assert "' onmouseover='" not in page
            assert "aaaaaaaaaaaa" not in page
    await seb.appliance.broker.topics.delete("hostile-2")
    await seb.client.delete("/v1/topics/hostile")


@pytest.mark.parametrize(
    ("path", "status"),
    [("/ui/audit?before=x", 422), ("/ui/audit?before=-1", 422), ("/ui/audit?from=yesterday", 422),
     ("/ui/audit?from=9999-12-31T23:59", 200), ("/ui/audit?unknown=1", 400),
     ("/ui/audit?who=a&who=b", 400), ("/ui/audit?who=%ff", 400), ("/ui/audit?who=%00", 400),
     ("/ui?span=1y", 400), ("/ui/settings?x=1", 400), ("/ui/../v1", 404)],
)  # fmt: skip
async def test_a_bad_query_is_refused_in_words(admin: Visitor, path: str, status: int) -> None:
    answer = await admin.get(path)
    assert answer.status_code == status
    if status < 404:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"


async def test_a_form_that_is_too_long_is_refused(admin: Visitor) -> None:
    answer = await admin.post("/ui/login", name="x" * (limits.FORM_BYTES_MAX + 1))
    assert answer.status_code == 413


async def test_a_method_that_is_not_possible_is_refused(admin: Visitor) -> None:
    for method, path in (("DELETE", "/ui"), ("POST", "/ui/audit"), ("PUT", "/ui/login")):
        assert (await admin.client.request(method, path)).status_code == 405
    assert (await admin.client.head("/ui")).status_code == 200


async def test_behind_a_trusted_proxy_a_stranger_locks_out_neither_others_nor_their_accounts(
    tmp_path: Path,
) -> None:
    async with running_appliance(tmp_path / "proxied", trusted_proxies="127.0.0.1") as proxied:
        await add_user(proxied, "admin", "admin")
        guest = visitor(proxied)
        async with guest.client:
            guest.client.headers["x-forwarded-for"] = "203.0.113.7, 192.0.2.1"  # the first is a lie
            for _ in range(limits.LOGINS_AT_ONCE):
                assert (await guest.log_in("admin", "wrong password")).status_code == 401
            guest.client.headers["x-forwarded-for"] = "198.51.100.9, 192.0.2.1"
            assert (await guest.log_in("admin", PASSWORD)).status_code == 429
            guest.client.headers["x-forwarded-for"] = "203.0.113.7"
            assert (await guest.log_in("admin", PASSWORD)).status_code == 303
            await guest.post("/ui/topics", name="by.proxy")
        audit = (await proxied.client.get("/v1/audit?subject=by.proxy")).json()["audit"]
        assert audit[0]["address"] == "203.0.113.7"


async def test_a_form_that_is_complete_after_the_log_out_changes_nothing(
    seb: RunningAppliance,
) -> None:
    await add_user(seb, "leaving", "admin")
    leaving = visitor(seb)
    async with leaving.client:
        await leaving.log_in("leaving")
        body = b"name=made.late"
        head = (
            f"POST /ui/topics HTTP/1.1\r\nHost: 127.0.0.1:{seb.port}\r\n"
            f"Cookie: seb_session={leaving.token}\r\nSec-Fetch-Site: same-origin\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        connection = await RawConnection.open(seb.port)
        asked = seb.server.config.app.asked  # type: ignore[union-attr]
        await connection.send(head.encode() + body[:4])
        while seb.server.config.app.asked == asked:  # type: ignore[union-attr]
            await asyncio.sleep(0)
        await leaving.client.post("/ui/logout", headers={"sec-fetch-site": "same-origin"})
        await connection.send(body[4:])
        answer = await connection.answer()
        assert (answer.status, answer.headers["location"][:9]) == (303, "/ui/login")
        await connection.close()
    assert (await seb.client.get("/v1/topics/made.late")).status_code == 404


@pytest.mark.parametrize("way_back", ["/ui/../v1/topics", "/ui/..", "/ui/./topics", "//evil.test"])
async def test_a_log_in_leads_to_no_other_place(guest: Visitor, way_back: str) -> None:
    assert (await guest.log_in("olga", next=way_back)).headers["location"] == "/ui"
