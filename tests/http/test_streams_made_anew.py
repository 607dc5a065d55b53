"""Streams that are deleted, and made again under their name."""

from __future__ import annotations

import pytest

from tests.http.test_stream_subscriptions import (
    STREAM,
    acks,
    act,
    append,
    claim,
    pool,
    put,
    woken,
)
from tests.support.appliance import running_appliance
from tests.support.documented import check_documented

pytestmark = pytest.mark.asyncio


async def test_an_ack_is_of_no_stream_that_was_made_again_since_its_worker_was_woken(tmp_path):
    """Nobody would work on what the new one has."""
    async with running_appliance(tmp_path) as seb:
        seb.client.event_hooks = {"response": [check_documented]}
        await pool(seb, "anew")
        await put(seb, "anew/a", 1, 2)
        await woken(seb, "anew", 1)
        claimed = await claim(seb, "anew")
        await seb.client.delete(f"{STREAM}/anew/a")
        await put(seb, "anew/a", 3, 4, 5)
        refused = await act(seb, "anew", claimed, status=409, acks=acks(claimed), done=True)
        assert refused["error"]["code"] == "INVALID_OFFSET"
        await act(seb, "anew", claimed, "release", status=204)
        await woken(seb, "anew", 2)
        (pending,) = (await claim(seb, "anew"))["streams"]
        assert pending["acked_offset"].startswith("0000000000000000_")


async def delete_and_make(seb, path):
    await seb.client.delete(f"{STREAM}/{path}")
    await put(seb, path)


async def trim(seb, path):
    topic = path.replace("/", ".")
    trimmed = await seb.client.post(f"/v1/topics/{topic}/trim", json={"before": 1})
    assert trimmed.status_code == 200, trimmed.text


@pytest.mark.parametrize("lose", [delete_and_make, trim])
async def test_a_wake_that_no_worker_can_hear_of_any_more_is_told_again(tmp_path, lose):
    """Nobody would ever claim it, and no other wake would follow."""
    async with running_appliance(tmp_path) as seb:
        await pool(seb, "lost")
        await put(seb, "lost/a", 1)
        (first,) = await woken(seb, "lost", 1)
        await append(seb, "lost/a", 2)
        assert await woken(seb, "lost", 1) == [first]
        await lose(seb, "wake/lost")
        await append(seb, "lost/a", 3)
        (again,) = await woken(seb, "lost", 1)
        assert again["generation"] > first["generation"]
        assert [link["path"] for link in (await claim(seb, "lost"))["streams"]] == ["lost/a"]
