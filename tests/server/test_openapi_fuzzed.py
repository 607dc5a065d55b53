"""Requests that schemathesis makes up from the OpenAPI document, to a real process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.openapi import try_openapi
from tests.server.serving import serving

pytestmark = pytest.mark.slow

CASES_EACH = 8  # of some 50 operations; python -m tests.fuzz.openapi tries more


def test_every_answer_is_one_that_the_document_tells(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        tried = try_openapi(server, cases_each=CASES_EACH, seed=1)
        assert tried.is_good, tried.shown
        assert tried.cases == tried.passed >= 25 * CASES_EACH, tried.shown
        assert "Traceback" not in server.shown
