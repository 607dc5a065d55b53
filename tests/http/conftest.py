"""One appliance per module; every answer in these tests is held against the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.documented import check_documented


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seb(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningAppliance]:
    async with running_appliance(tmp_path_factory.mktemp("seb")) as running:
        running.client.event_hooks = {"response": [check_documented]}
        yield running
