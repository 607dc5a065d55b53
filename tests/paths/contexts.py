"""A plugin of pytest, under coverage: what each test comes to is recorded under its name."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from coverage import Coverage

from tests.paths.table import ROOT

SECONDS = ROOT / ".state" / "reach.json"
"""How long each test took, with its fixtures."""

_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logstart(nodeid: str) -> None:
    measuring = Coverage.current()
    assert measuring is not None, "python -m coverage run -m pytest"
    measuring.switch_context(nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish() -> None:
    SECONDS.write_text(json.dumps(_seconds), encoding="utf-8")
