"""The admin: topics, groups and API keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from seb_appliance.client import Admin, ApplianceError, AsyncAdmin
from tests.support.appliance import running_appliance
from tests.support.unreliable import answer, between


async def test_topics_groups_and_api_keys_are_managed(tmp_path: Path) -> None:
    async with running_appliance(tmp_path) as running:
        await asyncio.to_thread(manage, running.base_url, running.admin_key)


def manage(url: str, key: str) -> None:
    with Admin(url, key) as admin:
        assert admin.create_topic("a.b", linger_ms=5)["settings"]["linger_ms"] == 5
        assert admin.change_topic("a.b", linger_ms=None)["settings"]["linger_ms"] is None
        assert [topic["topic"] for topic in admin.topics("a.*")] == ["a.b"]
        assert admin.topic("a.b")["log_end_offset"] == 0
        admin.trim_topic("a.b", 0)
        admin.commit("g", {"a.b": 0}, expected={"a.b": None})
        with pytest.raises(ApplianceError, match="offset_conflict"):
            admin.commit("g", {"a.b": 0}, expected={"a.b": None})
        assert [group["group"] for group in admin.groups()] == ["g"]
        assert admin.reset_group("g", to="latest")[0]["after"] == 0
        made = admin.create_api_key("shop", [{"operation": "produce", "topics": "a.*"}])
        api_key_id = made["api_key_id"]
        assert admin.change_api_key(api_key_id, name="store")["name"] == "store"
        assert admin.rotate_api_key(api_key_id, overlap="0s")["secret"] != made["secret"]
        assert admin.api_key(api_key_id) in admin.api_keys()
        admin.revoke_api_key(api_key_id)
        admin.delete_group("g")
        admin.delete_topic("a.b")
        assert (admin.topics(), admin.groups()) == ([], [])
        assert admin.status()["ready"]
        with pytest.raises(ApplianceError, match="topic_not_found"):
            admin.topic("a.b")


async def test_what_could_happen_twice_is_not_sent_twice() -> None:
    """An API key that nobody knows of would be left."""

    async def answering(_: bytes) -> bytes:
        return answer(502, b"<html>")

    async with between(answering) as way, AsyncAdmin(way.url, "seb_x") as admin:
        with pytest.raises(ApplianceError) as failure:
            await admin.create_api_key("x", [])
    assert len(way.requests) == 1
    assert failure.value.side_effects == "unknown"


@pytest.mark.parametrize("change", [AsyncAdmin.set_inlet, AsyncAdmin.set_subscription])
async def test_a_rotation_to_a_random_secret_is_not_sent_twice(
    change: Callable[..., Awaitable[object]],
) -> None:
    """The second one would end the secret that is in use."""

    async def answering(_: bytes) -> bytes:
        return answer(502, b"<html>")

    async with between(answering) as way, AsyncAdmin(way.url, "seb_x") as admin:
        with pytest.raises(ApplianceError) as failure:
            await change(admin, "x", keep_previous=True)
    assert len(way.requests) == 1
    assert failure.value.side_effects == "unknown"
