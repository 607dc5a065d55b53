"""What an operator changes: admitted in order, in force when it is stored."""

import asyncio

import pytest

from seb_appliance import limits
from seb_appliance.broker.access.api_keys import draw_secret
from seb_appliance.errors import (
    ApiKeyNotFoundError,
    BadNameError,
    BadParameterError,
    BadRequestError,
    ForbiddenError,
    LastAdminKeyError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TopicDiffersError,
    TopicNotFoundError,
    UnauthenticatedError,
)
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.fakes import settle
from tests.unit.broker.conftest import House

ADMIN_GRANT = (Grant(operation="admin"),)


async def test_creating_an_equal_topic_again_is_no_error(house: House) -> None:
    view, made = await house.done(house.broker.topics.create("t", TopicSettings(linger_ms=5)))
    assert made
    again, made = await house.done(house.broker.topics.create("t", TopicSettings(linger_ms=5)))
    assert not made
    assert again == view


async def test_creating_a_topic_with_other_settings_is_refused(house: House) -> None:
    await house.topic("t", linger_ms=5)
    with pytest.raises(TopicDiffersError):
        await house.broker.topics.create("t", TopicSettings())


async def test_two_creations_in_one_window_agree_and_the_second_waits(house: House) -> None:
    house.journal.hold()
    first = asyncio.ensure_future(house.broker.topics.create("t", TopicSettings()))
    second = asyncio.ensure_future(house.broker.topics.create("t", TopicSettings()))
    differs = asyncio.ensure_future(house.broker.topics.create("t", TopicSettings(linger_ms=1)))
    await house.clock.advance(1)
    assert not (first.done())
    assert not (second.done())
    assert not (differs.done())
    house.journal.release()
    await house.clock.advance(1)
    assert (await first)[1]
    assert not (await second)[1]
    with pytest.raises(TopicDiffersError):
        await differs


async def test_a_creation_is_not_told_as_refused_when_the_topic_is_deleted_at_once(house: House):
    house.journal.hold()
    created = asyncio.ensure_future(house.broker.topics.create("t", TopicSettings()))
    deleted = asyncio.ensure_future(house.broker.topics.delete("t"))
    await house.clock.advance(1)
    house.journal.release()
    await house.clock.advance(1)
    with pytest.raises(OutcomeUnknownError, match="deleted since"):
        await created
    await deleted


async def test_a_refusal_on_something_that_never_gets_stored_says_try_again(house: House) -> None:
    house.journal.hold()
    created = asyncio.ensure_future(house.broker.topics.create("t", TopicSettings()))
    await settle()
    differs = asyncio.ensure_future(house.broker.topics.create("t", TopicSettings(linger_ms=1)))
    await house.clock.advance(31)
    with pytest.raises(StoreUnavailableError):
        await differs
    created.exception()


async def test_a_change_names_settings_and_none_goes_back_to_the_default(house: House) -> None:
    await house.topic("t", linger_ms=5)
    view = await house.done(house.broker.topics.change("t", {"max_record_bytes": 9}))
    assert view.settings == TopicSettings(linger_ms=5, max_record_bytes=9)
    view = await house.done(house.broker.topics.change("t", {"linger_ms": None}))
    assert view.settings == TopicSettings(max_record_bytes=9)
    assert view.effective.linger_ms == 10


@pytest.mark.parametrize(
    "changes",
    [
        {"linger_ms": -1},
        {"linger_ms": 10_001},
        {"max_record_bytes": 0},
        {"retention_ms": 2**53},
        {"retention_bytes": 2**53},
    ],
)
async def test_a_setting_out_of_its_range_is_refused(house: House, changes: dict) -> None:
    await house.topic("t")
    with pytest.raises(BadRequestError):
        await house.broker.topics.change("t", changes)
    assert house.broker.topics.get("t").settings == TopicSettings()


async def test_a_topic_made_anew_starts_at_zero_with_another_id(house: House) -> None:
    first = await house.appended("t", b"a", b"b")
    await house.done(house.broker.topics.delete("t"))
    with pytest.raises(TopicNotFoundError):
        house.broker.topics.get("t")
    second = await house.appended("t", b"c")
    assert second.offset == 0
    assert second.topic_id != first.topic_id
    assert await house.values("t") == [b"c"]


async def test_append_delete_create_append_in_one_window(house: House) -> None:
    await house.topic("t")
    tasks = [
        house.append("t", b"old"),
        asyncio.ensure_future(house.broker.topics.delete("t")),
        house.append("t", b"new"),
    ]
    await house.clock.advance(1)
    assert [(await tasks[0]).offset, (await tasks[2]).offset] == [0, 0]
    assert await house.values("t") == [b"new"]


@pytest.mark.parametrize(
    "name", ["", "a..b", ".a", "a.", "a/b", "..", "é", "a b", "x" * 129, "a\0", "a\n"]
)
async def test_a_bad_name_is_refused(house: House, name: str) -> None:
    with pytest.raises(BadNameError):
        await house.broker.topics.create(name, TopicSettings())
    with pytest.raises(BadNameError):
        await house.append(name, b"x")


async def test_an_api_key_works_once_it_is_stored_and_not_after_it_is_revoked(house: House) -> None:
    await house.done(house.broker.access.create("root", ADMIN_GRANT, secret=_secret(1)))
    view, token = await house.done(
        house.broker.access.create("a", (Grant(operation="produce", topics="a.*"),), None)
    )
    assert house.broker.access.authenticate(token) == view
    house.broker.authorize(view, "produce", "a.b")
    for operation, topic in (("produce", "b.a"), ("consume", "a.b"), ("admin", None)):
        with pytest.raises(ForbiddenError):
            house.broker.authorize(view, operation, topic)
    await house.done(house.broker.access.revoke(view.api_key_id))
    with pytest.raises(UnauthenticatedError):
        house.broker.access.authenticate(token)
    with pytest.raises(ApiKeyNotFoundError):
        await house.broker.access.revoke(view.api_key_id)


async def test_an_expired_api_key_is_refused(house: House) -> None:
    expires_us = house.clock.wall_us() + 5_000_000
    _, token = await house.done(house.broker.access.create("a", ADMIN_GRANT, expires_us))
    house.broker.access.authenticate(token)
    await house.clock.advance(5)
    with pytest.raises(UnauthenticatedError):
        house.broker.access.authenticate(token)


async def test_the_last_admin_key_cannot_be_revoked_not_even_two_at_once(house: House) -> None:
    one, _ = await house.done(house.broker.access.create("1", ADMIN_GRANT, secret=_secret(1)))
    two, _ = await house.done(house.broker.access.create("2", ADMIN_GRANT, secret=_secret(2)))
    first = asyncio.ensure_future(house.broker.access.revoke(one.api_key_id))
    second = asyncio.ensure_future(house.broker.access.revoke(two.api_key_id))
    await house.clock.advance(1)
    await first
    with pytest.raises(LastAdminKeyError):
        await second
    assert [key.api_key_id for key in house.broker.access.all()] == [two.api_key_id]


@pytest.mark.parametrize("flaw", range(63))
async def test_a_token_with_one_wrong_character_is_refused(house: House, flaw: int) -> None:
    _, token = await house.done(house.broker.access.create("a", ADMIN_GRANT, None))
    other = "x" if token[flaw] != "x" else "y"
    with pytest.raises(UnauthenticatedError):
        house.broker.access.authenticate(token[:flaw] + other + token[flaw + 1 :])


@pytest.mark.parametrize("grants", [(), ADMIN_GRANT * 101])
async def test_a_key_without_or_with_too_many_grants_is_refused(house: House, grants) -> None:
    with pytest.raises(BadRequestError):
        await house.broker.access.create("a", grants, None)


@pytest.mark.parametrize("pattern", ["", "a.", ".a", "***", "a**", "#", "a/b", "x" * 200])
async def test_a_grant_on_a_bad_pattern_is_refused(house: House, pattern: str) -> None:
    with pytest.raises(BadParameterError):
        await house.broker.access.create("a", (Grant(operation="produce", topics=pattern),), None)


def _secret(seed: int):
    return draw_secret(lambda n: bytes([seed]) * n)


async def test_there_are_not_more_api_keys_than_there_may_be(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_KEYS_MAX", 1)
    create = house.broker.access.create
    await house.done(create("one", (Grant(operation="admin"),)))
    with pytest.raises(BadRequestError, match="already 1 API keys"):
        await house.done(create("two", (Grant(operation="admin"),)))
