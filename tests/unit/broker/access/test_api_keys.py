"""API keys as operators change them: in force when stored, the last admin key stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seb_appliance.broker.access.api_keys import FOR_EVER_US, ApiKeys, draw_secret
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import (
    ApiKeyNotFoundError,
    BadParameterError,
    BadRequestError,
    ForbiddenError,
    LastAdminKeyError,
    UnauthenticatedError,
)
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.operations import ApiKeyChanged, ApiKeyCreated, AuditNoted
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.fakes import settle
from tests.unit.broker.conftest import House

ADMIN_GRANT = (Grant(operation="admin"),)
PRODUCE = (Grant(operation="produce", topics="a.*"),)
DAY_MS = 24 * 3_600_000
BY = Actor("opopopop", "192.0.2.9")


async def made(house: House, number: int, grants=ADMIN_GRANT, **members) -> tuple[ApiKeyView, str]:
    secret = draw_secret(lambda n: bytes([number]) * n)
    return await house.done(
        house.broker.access.create(f"k{number}", grants, secret=secret, **members)
    )


def noted(house: House) -> list[AuditNoted]:
    return [
        operation
        for encoded in house.journal.entries
        for operation in encoded.entry.contents.operations
        if isinstance(operation, AuditNoted)
    ]


async def test_a_change_names_members_and_the_others_stay(house: House) -> None:
    view, token = await made(
        house,
        1,
        PRODUCE,
        description="old",
        quotas=Quotas(requests_per_second=5, bytes_in_per_second=9),
    )
    changes: dict[str, Any] = {"name": "new", "quotas": {"requests_per_second": None}}
    changed = await house.done(house.broker.access.change(view.api_key_id, changes))
    assert (changed.name, changed.description, changed.grants) == ("new", "old", PRODUCE)
    assert changed.quotas == Quotas(bytes_in_per_second=9)
    assert house.broker.access.authenticate(token) == changed


async def test_new_grants_are_in_force_with_the_answer(house: House) -> None:
    view, token = await made(house, 1, PRODUCE)
    broker = house.broker
    broker.authorize(view, "produce", "a.b")
    grants = (Grant(operation="produce", topics="z.*"),)
    await house.done(broker.access.change(view.api_key_id, {"grants": grants}))
    changed = broker.access.authenticate(token)
    broker.authorize(changed, "produce", "z.b")
    with pytest.raises(ForbiddenError) as refused:
        broker.authorize(changed, "produce", "a.b")
    assert str(refused.value) == str(broker.access.no_grant(changed, "produce", "a.b", None))


async def test_two_changes_in_one_window_both_hold(house: House) -> None:
    view, _ = await made(house, 1, PRODUCE)
    access = house.broker.access
    both = asyncio.gather(
        access.change(view.api_key_id, {"name": "new"}),
        access.change(view.api_key_id, {"description": "too"}),
    )
    await house.clock.advance(1)
    await both
    found = access.get(view.api_key_id)
    assert (found.name, found.description) == ("new", "too")


async def test_a_change_to_what_is_there_stores_nothing(house: House) -> None:
    view, _ = await made(house, 1, PRODUCE)
    entries = len(house.journal.entries)
    again = await house.done(
        house.broker.access.change(view.api_key_id, {"name": view.name, "grants": PRODUCE})
    )
    assert (again, len(house.journal.entries)) == (view, entries)


async def test_a_change_equal_to_one_in_flight_is_answered_when_that_is_stored(
    house: House,
) -> None:
    view, _ = await made(house, 1, PRODUCE)
    house.journal.hold()
    first = asyncio.ensure_future(house.broker.access.change(view.api_key_id, {"name": "new"}))
    second = asyncio.ensure_future(house.broker.access.change(view.api_key_id, {"name": "new"}))
    await house.clock.advance(1)
    assert not second.done()
    house.journal.release()
    await house.clock.advance(1)
    assert (await first).name == (await second).name == "new"


async def test_a_disabled_key_is_refused_until_it_is_enabled(house: House) -> None:
    await made(house, 9)
    view, token = await made(house, 1, PRODUCE)
    access = house.broker.access
    await house.done(access.change(view.api_key_id, {"disabled": True}))
    with pytest.raises(UnauthenticatedError):
        access.authenticate(token)
    await house.done(access.change(view.api_key_id, {"disabled": False}))
    access.authenticate(token)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"grants": ()}, BadRequestError),
        ({"grants": PRODUCE * 101}, BadRequestError),
        ({"grants": (Grant(operation="produce", topics="a**"),)}, BadParameterError),
        ({"grants": (Grant(operation="consume", groups=".a"),)}, BadParameterError),
        ({"expires_us": 1}, BadRequestError),
    ],
)
async def test_a_bad_change_changes_nothing(house: House, changes, error) -> None:
    view, _ = await made(house, 1, PRODUCE)
    with pytest.raises(error):
        await house.done(house.broker.access.change(view.api_key_id, changes))
    assert house.broker.access.get(view.api_key_id) == view
    assert len(noted(house)) == 1


async def test_what_is_done_to_an_unknown_key_is_refused_and_not_noted(house: House) -> None:
    access = house.broker.access
    for act in (
        access.change("nobody", {"name": "x"}),
        access.rotate("nobody", 0),
        access.revoke("nobody"),
    ):
        with pytest.raises(ApiKeyNotFoundError):
            await house.done(act)
    assert noted(house) == []


# --- rotation ---


async def test_both_secrets_work_within_the_overlap_and_then_the_new_one(house: House) -> None:
    view, old = await made(house, 1)
    now_us = house.clock.wall_us()
    rotated, new = await house.done(house.broker.access.rotate(view.api_key_id, DAY_MS))
    assert old != new
    assert rotated.overlap_until_us == now_us + DAY_MS * 1_000
    authenticate = house.broker.access.authenticate
    assert authenticate(old) == authenticate(new) == rotated
    house.clock.wall_offset_us += rotated.overlap_until_us - house.clock.wall_us() - 1
    assert authenticate(old) == authenticate(new) == rotated
    house.clock.wall_offset_us += 1
    assert authenticate(new) == rotated
    with pytest.raises(UnauthenticatedError):
        authenticate(old)


async def test_without_an_overlap_the_old_secret_ends_at_once(house: House) -> None:
    view, old = await made(house, 1)
    _, new = await house.done(house.broker.access.rotate(view.api_key_id, 0))
    house.broker.access.authenticate(new)
    with pytest.raises(UnauthenticatedError):
        house.broker.access.authenticate(old)


async def test_a_second_rotation_ends_the_oldest_secret(house: House) -> None:
    view, oldest = await made(house, 1)
    for _ in range(2):
        _, newest = await house.done(house.broker.access.rotate(view.api_key_id, DAY_MS))
    house.broker.access.authenticate(newest)
    with pytest.raises(UnauthenticatedError):
        house.broker.access.authenticate(oldest)


async def test_a_disabled_key_stays_disabled_when_it_is_rotated(house: House) -> None:
    await made(house, 9)
    view, old = await made(house, 1, PRODUCE, disabled=True)
    _, new = await house.done(house.broker.access.rotate(view.api_key_id, DAY_MS))
    for token in (old, new):
        with pytest.raises(UnauthenticatedError):
            house.broker.access.authenticate(token)


# --- the last admin key ---

TAKES_ADMIN_AWAY: list[dict[str, Any]] = [
    {"disabled": True},
    {"grants": PRODUCE},
    {"expires_us": 2_000_000_000_000_000},
]


@pytest.mark.parametrize("changes", TAKES_ADMIN_AWAY)
async def test_the_last_admin_key_keeps_what_makes_it_one(house: House, changes) -> None:
    view, token = await made(house, 1)
    await made(house, 2, PRODUCE)
    with pytest.raises(LastAdminKeyError):
        await house.done(house.broker.access.change(view.api_key_id, changes))
    assert house.broker.access.authenticate(token) == view


@pytest.mark.parametrize("changes", TAKES_ADMIN_AWAY)
async def test_of_two_that_go_at_once_one_stays(house: House, changes) -> None:
    one, _ = await made(house, 1)
    two, _ = await made(house, 2)
    house.journal.hold()
    first = asyncio.ensure_future(house.broker.access.change(one.api_key_id, changes))
    second = asyncio.ensure_future(house.broker.access.revoke(two.api_key_id))
    await house.clock.advance(1)
    assert not second.done()
    house.journal.release()
    await house.clock.advance(1)
    await first
    with pytest.raises(LastAdminKeyError):
        await second
    assert house.broker.access.get(two.api_key_id) == two


@pytest.mark.parametrize("other", [{"disabled": True}, {"expires_us": 2_000_000_000_000_000}])
async def test_an_admin_key_that_is_disabled_or_expires_does_not_count(house: House, other) -> None:
    view, _ = await made(house, 1)
    await made(house, 2, **other)
    with pytest.raises(LastAdminKeyError):
        await house.done(house.broker.access.revoke(view.api_key_id))


async def test_of_admin_keys_that_all_expire_the_last_living_one_stays(house: House) -> None:
    now_us = house.clock.wall_us()
    soon, _ = await made(house, 1, expires_us=now_us + 5_000_000)
    later, _ = await made(house, 2, expires_us=now_us + 500_000_000)
    await house.clock.advance(5)
    with pytest.raises(LastAdminKeyError):
        await house.done(house.broker.access.revoke(later.api_key_id))
    await house.done(house.broker.access.revoke(soon.api_key_id))


async def test_a_key_that_revokes_itself_gets_its_answer(house: House) -> None:
    await made(house, 9)
    view, token = await made(house, 1)
    by = Actor(view.api_key_id, "")
    await house.done(house.broker.access.revoke(view.api_key_id, by))
    assert noted(house)[-1].actor == noted(house)[-1].subject == view.api_key_id
    with pytest.raises(UnauthenticatedError):
        house.broker.access.authenticate(token)


async def test_revoking_a_key_that_is_being_revoked_waits_and_finds_none(house: House) -> None:
    await made(house, 9)
    view, _ = await made(house, 1)
    house.journal.hold()
    first = asyncio.ensure_future(house.broker.access.revoke(view.api_key_id))
    second = asyncio.ensure_future(house.broker.access.rotate(view.api_key_id, 0))
    await house.clock.advance(1)
    assert not second.done()
    house.journal.release()
    await house.clock.advance(1)
    await first
    with pytest.raises(ApiKeyNotFoundError):
        await second


# --- the audit ---


async def test_every_action_is_noted_once_in_the_entry_of_its_events(house: House) -> None:
    broker = house.broker
    await made(house, 9)
    view, _ = await made(house, 1, PRODUCE, by=BY)
    api_key_id = view.api_key_id
    await house.done(broker.topics.create("t", TopicSettings(), BY))
    await house.done(broker.topics.change("t", {"linger_ms": 5}, BY))
    await house.done(broker.access.change(api_key_id, {"name": "new"}, BY))
    await house.done(broker.access.rotate(api_key_id, 0, BY))
    await house.done(broker.access.revoke(api_key_id, BY))
    await house.done(broker.topics.delete("t", BY))
    seen = []
    for encoded in house.journal.entries[1:]:
        *events, action = encoded.entry.contents.operations
        assert isinstance(action, AuditNoted)
        assert (action.actor, action.address) == ("opopopop", "192.0.2.9")
        assert [event.__struct_config__.tag for event in events] == [action.action]
        seen.append((action.action, action.subject_kind, action.subject))
    assert seen == [
        ("api_key_created", "api_key", api_key_id),
        ("topic_created", "topic", "t"),
        ("topic_changed", "topic", "t"),
        ("api_key_changed", "api_key", api_key_id),
        ("api_key_rotated", "api_key", api_key_id),
        ("api_key_revoked", "api_key", api_key_id),
        ("topic_deleted", "topic", "t"),
    ]


async def test_before_and_after_are_those_of_that_action_in_its_window(house: House) -> None:
    view, _ = await made(house, 1)
    access = house.broker.access
    both = asyncio.gather(
        access.change(view.api_key_id, {"name": "one"}),
        access.change(view.api_key_id, {"name": "two"}),
    )
    await house.clock.advance(1)
    await both
    first, second = noted(house)[-2:]
    assert first.after == second.before
    assert second.after is not None
    assert '"name":"two"' in second.after


async def test_a_topic_that_a_producer_makes_is_noted_with_the_producer(house: House) -> None:
    await house.appended("t", b"x")
    await house.appended("t", b"y")
    (action,) = noted(house)
    assert (action.actor, action.action, action.subject) == ("admin", "topic_created", "t")


async def test_what_is_refused_is_not_noted(house: House) -> None:
    view, _ = await made(house, 1)
    await house.topic("t")
    before = len(noted(house))
    for act in (
        house.broker.topics.create("t", TopicSettings(linger_ms=7)),
        house.broker.topics.delete("u"),
        house.broker.groups.delete("g"),
        house.broker.access.revoke(view.api_key_id),
    ):
        task = asyncio.ensure_future(act)
        await house.clock.advance(1)
        assert task.exception() is not None
    assert len(noted(house)) == before


async def test_a_large_before_is_only_counted(house: House) -> None:
    await made(house, 9)
    grants = tuple(Grant(operation="produce", topics=f"{'x' * 100}.{i}") for i in range(100))
    await made(house, 1, grants)
    after = noted(house)[-1].after
    assert after is not None
    assert after.startswith('{"omitted_bytes":')
    assert len(after) < 40


async def test_the_size_of_what_is_admitted_counts_towards_the_window(house: House) -> None:
    house.journal.hold()
    grants = tuple(Grant(operation="produce", topics=f"{'x' * 100}.{i}") for i in range(100))
    tasks = []
    for number in range(1, 5):
        secret = draw_secret(lambda n, number=number: bytes([number]) * n)
        tasks.append(asyncio.ensure_future(house.broker.access.create("k", grants, secret=secret)))
    await settle()
    window = house.broker._sequencer.open_window()
    events = [step for step in window.steps if isinstance(step, ApiKeyCreated | ApiKeyChanged)]
    assert len(events) == 4
    assert window.size_bytes > 4 * 100 * 100
    house.journal.release()
    await house.clock.advance(1)
    await asyncio.gather(*tasks)


async def test_of_two_at_once_that_want_one_name_for_themselves_one_gets_it(house: House) -> None:
    await made(house, 1)
    create = house.broker.access.create
    both = [create("k2", ADMIN_GRANT, unique_name=True) for _ in range(2)]
    first, second = await house.done(asyncio.gather(*both, return_exceptions=True))
    assert isinstance(second, BadRequestError)
    assert first[0].api_key_id in second.detail
    await made(house, 2)  # who does not ask for it may have the name, too


async def test_an_api_key_may_expire_in_a_microsecond_but_not_now(house: House) -> None:
    now_us = house.clock.wall_us()
    with pytest.raises(BadRequestError, match="expired already"):
        await made(house, 1, expires_us=now_us)
    view, _ = await made(house, 1, expires_us=house.clock.wall_us() + 1)
    assert view.expires_us is not None


async def test_who_came_by_an_open_door_may_use_it_for_ever_and_manage_no_api_keys(
    house: House,
) -> None:
    access = house.broker.access
    anybody = access.let_in_anybody()
    until_us = access.holds_until_us(anybody)
    assert until_us == FOR_EVER_US
    await house.clock.advance(400 * DAY_MS / 1000)
    assert access.still_holds(anybody, until_us)
    for operation in ("produce", "consume", "manage"):
        access.authorize(anybody, operation, "any.topic", "any.group")
    with pytest.raises(ForbiddenError):
        access.authorize(anybody, "admin")


async def test_whom_a_proxy_vouches_for_is_let_in_while_the_key_is_in_force(house: House) -> None:
    await made(house, 9)
    access = house.broker.access
    view, _ = await made(house, 1, PRODUCE)
    assert access.vouched_for(view.api_key_id) == view
    assert access.last_used.get(view.api_key_id) == house.clock.wall_us()
    await house.done(access.change(view.api_key_id, {"disabled": True}))
    for api_key_id in (view.api_key_id, "nobody"):
        with pytest.raises(UnauthenticatedError):
            access.vouched_for(api_key_id)
    assert access.last_used.get("nobody") is None


async def test_a_key_has_a_name_until_it_is_revoked(house: House) -> None:
    view, _ = await made(house, 1, PRODUCE)
    assert house.broker.access.name_of(view.api_key_id) == "k1"
    await house.done(house.broker.access.revoke(view.api_key_id))
    assert house.broker.access.name_of(view.api_key_id) == ""


async def test_an_authentication_is_good_until_the_key_changes_expires_or_was_rotated(
    house: House,
) -> None:
    access, now_us = house.broker.access, house.clock.wall_us()
    await made(house, 9)
    key, _ = await made(house, 1, PRODUCE)
    assert access.holds_until_us(key) == FOR_EVER_US
    assert access.still_holds(key, FOR_EVER_US)
    rotated, _ = await house.done(access.rotate(key.api_key_id, DAY_MS))
    assert not access.still_holds(key, FOR_EVER_US)
    assert access.holds_until_us(rotated) == rotated.overlap_until_us
    key, _ = await made(house, 2, PRODUCE, expires_us=now_us + 60_000_000)
    until_us = access.holds_until_us(key)
    assert until_us == key.expires_us
    house.clock.wall_offset_us += until_us - house.clock.wall_us() - 1
    assert access.still_holds(key, until_us)
    house.clock.wall_offset_us += 1
    assert not access.still_holds(key, until_us)


async def test_keys_are_in_force_again_after_a_start(house: House) -> None:
    view, token = await made(house, 1, PRODUCE, quotas=Quotas(requests_per_second=5))
    again = ApiKeys(house.broker.access._api_keys.rows())
    assert again.authenticate(token, house.clock.wall_us()) == view
