"""A machine whose clock is an hour off from its store's: a store that refuses what was signed more
than fifteen minutes off, as S3 does."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.proof.preloaded import NotInstalledError, jumping_clock
from tests.support.bucket_server import Answer, BucketServer
from tests.support.checker import check
from tests.support.load import Connection, read_topic
from tests.support.process import Bucket, SebProcess
from tests.support.producer import Doors, Load

pytestmark = pytest.mark.slow
SIGNED_OFF_S_MAX = 15 * 60
FLAGS = ("--tidy-bytes", "1KiB", "--tidy-young", "0ms", "--garbage-grace", "0ms")


class PunctualServer(BucketServer):
    """`refused`: the targets of requests that it refused for their time."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: asyncio.Queue[str] = asyncio.Queue()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        signed = datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        off_s = (datetime.now(UTC) - signed).total_seconds()
        if abs(off_s) > SIGNED_OFF_S_MAX:
            self.refused.put_nowait(target)
            text = "<Error><Code>RequestTimeTooSkewed</Code><Message>off</Message></Error>"
            return Answer(403, text.encode(), ("Content-Type: application/xml",))
        return super().answer(method, target, headers, body)


@pytest.mark.parametrize(("first", "then"), [("-1h", "+1h"), ("+1h", "-1h")])
async def test_a_clock_an_hour_off_and_one_that_jumps_stop_nothing(
    first: str, then: str, tmp_path: Path
) -> None:
    try:
        clock = jumping_clock(tmp_path / "step")
    except NotInstalledError as error:
        pytest.skip(str(error))
    (tmp_path / "step").write_text(first + "\n")
    async with PunctualServer() as server:
        bucket = Bucket.s3(server.options, server.port, linger="10ms")
        bucket = replace(bucket, environment={**bucket.environment, **clock})
        seb = SebProcess(bucket, tmp_path / "data", FLAGS)
        try:
            await seb.ready()
            load = Load(Doors(seb.admin_key, [seb.port]), ("orders",))
            load.start(4)
            await load.until_acked(20)
            assert not server.refused.empty()
            while not server.refused.empty():
                server.refused.get_nowait()
            (tmp_path / "step").write_text(then + "\n")
            async with asyncio.timeout(60):  # the process notices within a second
                await server.refused.get()
            await load.until_acked(100)
            await load.stop()
            check(load.calls, await read_topic(seb.port, seb.admin_key, "orders"))
            await times_are_those_of_the_store(seb)
            assert set(load.answers) == {"201"}
            assert "Traceback" not in seb.shown
        finally:
            seb.kill()


async def times_are_those_of_the_store(seb: SebProcess) -> None:
    connection = Connection(seb.port, seb.admin_key)
    path = "/v1/topics/orders/records?offset=0&max_records=10000"
    records = (await connection.request("GET", path)).json()["records"]
    connection.close()
    now = datetime.now(UTC)
    times = [datetime.fromisoformat(record["timestamp"]) for record in records]
    assert times == sorted(times)
    assert all(abs((now - time).total_seconds()) < SIGNED_OFF_S_MAX for time in times), times[-1]
