"""Whether a request is sent again, and when."""

from __future__ import annotations

import pytest

from seb_appliance.client.failures import ApplianceError
from seb_appliance.client.transport import Retrying


def error(*, retryable: bool, side_effects: str, retry_after_s: float = 0.0) -> ApplianceError:
    return ApplianceError(
        "x", code="c", retryable=retryable, side_effects=side_effects, retry_after_s=retry_after_s
    )


@pytest.mark.parametrize(
    ("retryable", "side_effects", "is_known_again", "again"),
    [
        (True, "none", False, True),
        (True, "unknown", False, False),
        (True, "unknown", True, True),
        (False, "none", True, False),
        (False, "unknown", True, False),
    ],
)
def test_only_what_is_safe_is_sent_again(
    retryable: bool, side_effects: str, is_known_again: bool, again: bool
) -> None:
    retrying = Retrying(0.0, 60.0, lambda: 1.0, is_known_again=is_known_again)
    refused = error(retryable=retryable, side_effects=side_effects)
    assert (retrying.pause_s(refused, 0.0) is not None) is again


def test_pauses_grow_and_end_with_the_patience() -> None:
    retrying = Retrying(100.0, 10.0, lambda: 1.0, is_known_again=True)
    refused = error(retryable=True, side_effects="none")
    pauses = [retrying.pause_s(refused, 100.0) for _ in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert retrying.pause_s(refused, 105.1) is None


def test_it_waits_as_long_as_it_is_told_to() -> None:
    retrying = Retrying(0.0, 60.0, lambda: 0.0, is_known_again=False)
    busy = error(retryable=True, side_effects="none", retry_after_s=7.0)
    assert retrying.pause_s(busy, 0.0) == 7.0


def test_doubt_stays_in_the_last_word() -> None:
    retrying = Retrying(0.0, 60.0, lambda: 0.0, is_known_again=True)
    retrying.pause_s(error(retryable=True, side_effects="unknown"), 0.0)
    refused = error(retryable=False, side_effects="none")
    assert retrying.pause_s(refused, 0.0) is None
    assert retrying.last_word(refused).side_effects == "unknown"
