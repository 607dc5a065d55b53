"""How much JavaScript a page loads."""

from __future__ import annotations

import gzip
import re

import pytest

from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
BYTES_MAX = 120_000  # compressed
# The pages with scripts of their own; all others load what the layout names.
PAGES = ("/ui", "/ui/storage", "/ui/topics", "/ui/topics/t/live", "/ui/groups/g", "/ui/audit")


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_loads_little_javascript(
    seb: RunningAppliance, olga: Visitor, path: str
) -> None:
    await seb.client.post("/v1/topics/t/records", content=b"x")
    await seb.client.put("/v1/groups/g/offsets", json={"offsets": {"t": 0}})
    answer = await olga.get(path)
    assert answer.status_code == 200
    scripts = re.findall(r'<script src="([^"]+)" defer></script>', answer.text)
    assert answer.text.count("<script") == len(scripts) >= 2
    sizes = {}
    for script in scripts:
        loaded = await olga.get(script)
        assert loaded.status_code == 200
        assert b"import(" not in loaded.content
        sizes[script] = len(gzip.compress(loaded.content, 9))
    assert sum(sizes.values()) <= BYTES_MAX, sizes
