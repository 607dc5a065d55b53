"""Most appliances here are forks (serving.py); some tests start `seb` as users do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.process import starting_anew


@pytest.fixture
def as_users_start_it() -> Iterator[None]:
    with starting_anew():
        yield
