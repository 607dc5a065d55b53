"""Each hostile input has the answer that is documented, and the next good request works."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from seb_appliance import limits
from seb_appliance.api.server import transports as lingering
from tests.http.bad_input import nothing_happens
from tests.http.hostile_inputs import ELSEWHERE, FACTS, RECORDS, ROWS, Hostile
from tests.support.appliance import RunningAppliance
from tests.support.process import Bucket, SebProcess
from tests.support.raw_http import RawAnswer, exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

TESTS = Path(__file__).parents[1]
GROWTH_BYTES_MAX = 100 * limits.MIB  # a body of 16 MiB, a bomb of 64 MiB that is stopped at 16
PREPARED = (
    ("POST", RECORDS, {"content": b"known", "headers": {"idempotency-key": "known"}}),
    ("POST", RECORDS, {"content": b"2"}),
    ("PUT", "/v1/groups/readers/offsets", {"json": {"offsets": {"target": 1}}}),
)


async def prepare(client: httpx2.AsyncClient) -> None:
    for method, path, request in PREPARED:
        answer = await client.request(method, path, **request)
        assert answer.status_code < 300, answer.text


def check(row: Hostile, answer: RawAnswer) -> None:
    assert (answer.status, answer.code) == (row.status, row.code), row.name
    assert answer.problem["side_effects"] == "none"
    assert "set-cookie" not in answer.headers


async def the_next_good_request_works(client: httpx2.AsyncClient) -> None:
    good = await client.get(f"{RECORDS}?max_records=1")
    assert good.status_code == 200
    assert good.json()["records"][0]["value"] == "known"


@pytest.fixture
def _short_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering, "_LINGER_S", 0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prepared(seb: RunningAppliance) -> RunningAppliance:
    await prepare(seb.client)
    return seb


def by_fact() -> dict[int, Sequence[Hostile]]:
    return {fact: [row for row in ROWS if row.fact == fact] for fact in {r.fact for r in ROWS}}


@pytest.mark.usefixtures("_short_lingering")
@pytest.mark.parametrize(("fact", "rows"), by_fact().items(), ids=lambda value: str(value)[:3])
async def test_a_hostile_input_has_its_answer_and_changes_nothing(
    prepared: RunningAppliance, fact: int, rows: Sequence[Hostile]
) -> None:
    async with nothing_happens(prepared):
        for row in rows:
            check(row, await exchange(prepared.port, row.request(prepared.admin_key)))
            await the_next_good_request_works(prepared.client)


async def test_every_kind_of_hostile_input_is_tested() -> None:
    here = {row.fact for row in ROWS}
    assert here | ELSEWHERE.keys() == set(range(1, FACTS + 1))
    assert len({(row.fact, row.name) for row in ROWS}) == len(ROWS) >= 2 * FACTS - 2
    for test in ELSEWHERE.values():
        path, _, name = test.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (TESTS / path).read_text(), re.MULTILINE), test


@pytest.mark.slow
async def test_a_process_stands_all_of_it_at_once_and_stays_small(tmp_path: Path) -> None:
    seb = SebProcess(Bucket.directory(tmp_path / "bucket"), tmp_path / "data")
    try:
        await seb.ready()
        headers = {"authorization": f"Bearer {seb.admin_key}"}
        base = f"http://127.0.0.1:{seb.port}"
        async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=60) as client:
            await prepare(client)
            small = seb.rss_bytes("VmHWM")
            requests = [row.request(seb.admin_key) for row in ROWS]
            for begin in range(0, len(ROWS), 8):
                rows = ROWS[begin : begin + 8]
                answers = await asyncio.gather(
                    *(exchange(seb.port, request) for request in requests[begin : begin + 8])
                )
                for row, answer in zip(rows, answers, strict=True):
                    # Two bombs at once can fill the key's share of memory. The documented
                    # remedy of that answer is to send the request again.
                    if answer.code == "share_exceeded" and row.code != answer.code:
                        answer = await exchange(seb.port, row.request(seb.admin_key))
                    check(row, answer)
            await the_next_good_request_works(client)
        assert seb.rss_bytes("VmHWM") < small + GROWTH_BYTES_MAX
        assert "Traceback" not in seb.shown
    finally:
        seb.kill()
