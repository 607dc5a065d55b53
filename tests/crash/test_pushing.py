"""An appliance that dies in the middle of a push: the record is sent again, under the same id."""

from __future__ import annotations

import json

import pytest

from tests.support.load import Connection
from tests.support.process import Bucket, SebProcess, seb_process
from tests.support.receiver import OK, receiving

pytestmark = pytest.mark.slow

FLAGS = ("--push-networks", "127.0.0.1", "--linger", "1ms")


async def ask(seb: SebProcess, method: str, path: str, body: bytes = b"") -> int:
    connection = Connection(seb.port, seb.admin_key)
    try:
        return (await connection.request(method, path, body, timeout_s=20)).status
    finally:
        connection.close()


async def test_a_push_that_a_kill_cut_off_is_sent_again_under_the_same_id(tmp_path):
    bucket, data = Bucket.directory(tmp_path / "bucket"), tmp_path / "local"
    async with receiving() as receiver:
        receiver.usual = None
        async with seb_process(bucket, data, *FLAGS) as first:
            wanted = json.dumps({"topics": ["orders"], "url": receiver.url}).encode()
            assert await ask(first, "PUT", "/v1/subscriptions/mails", wanted) == 201
            for value in (b"one", b"two"):
                assert await ask(first, "POST", "/v1/topics/orders/records", value) == 201
            await receiver.arrived(2)
            first.kill()
        receiver.usual = OK
        async with seb_process(bucket, data, *FLAGS):
            got = await receiver.arrived(4)
        ids = [(one.headers["webhook-id"], one.body) for one in got]
        before, after = dict(ids[:2]), dict(ids[2:])
        assert before == after
        assert sorted(before.values()) == [b"one", b"two"]
