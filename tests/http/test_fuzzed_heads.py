"""Requests changed at random: both lanes answer alike, and never with an error of ours.

`SEB_TEST_HEADS=100000 make slow ARGS=tests/http/test_fuzzed_heads.py` tries more of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from itertools import islice

import pytest
import pytest_asyncio

from tests.fuzz.heads import changed
from tests.http.test_both_lanes import CASES
from tests.support.both_lanes import STAND_IN, Both, both_lanes

pytestmark = pytest.mark.asyncio(loop_scope="module")


def without_waiting(request: bytes) -> bytes:
    """Reads in the Go broker's API wait for ten seconds unless they say something else."""
    if not request.startswith(b"GET /records?"):
        return request
    return re.sub(rb"&timeout=[0-9a-z]+", b"", request).replace(b" HTTP", b"&timeout=0 HTTP", 1)


QUICK, SLOW = 300, int(os.environ.get("SEB_TEST_HEADS", "4000"))
SEED = int(os.environ.get("SEB_TEST_SEED", "1"))
LIVE = ("follow", "follow rather than read")  # they have no end
REQUESTS = [
    without_waiting(case.request({"admin": STAND_IN}))
    for case in CASES
    if case.key is None and case.name not in LIVE and len(case.body) < 1_000
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    async with both_lanes(tmp_path_factory.mktemp("lanes")) as running:
        yield running


async def answered_alike(both: Both, requests: Iterator[list[bytes]]) -> None:
    for number, pieces in enumerate(requests):
        fast, slow = await both.all_answers(pieces)
        assert fast == slow, (number, pieces)
        assert b"HTTP/1.1 500" not in fast, (number, pieces)


async def test_changed_requests_are_answered_alike(both: Both) -> None:
    await answered_alike(both, islice(changed(REQUESTS, SEED), QUICK))


@pytest.mark.slow
async def test_many_more_changed_requests_are_answered_alike(both: Both) -> None:
    await answered_alike(both, islice(changed(REQUESTS, SEED + 1), SLOW))
