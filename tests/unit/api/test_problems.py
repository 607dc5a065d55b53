"""Problem documents: what is in them, and for whom."""

from __future__ import annotations

import pytest

from seb_appliance.api.encoding.problems import problem, problem_headers
from seb_appliance.errors import (
    CorruptObjectError,
    FencedError,
    InternalError,
    OffsetExpiredError,
    OverloadedError,
    RequestTooLargeError,
    StoreUncertainError,
    UnauthenticatedError,
)


def test_the_data_of_an_error_becomes_members():
    made = problem(OffsetExpiredError("Gone.", log_start_offset=7), "id")
    assert made["log_start_offset"] == 7
    assert (made["code"], made["status"], made["retryable"]) == ("offset_expired", 410, False)


@pytest.mark.parametrize(
    "error",
    [
        StoreUncertainError("PUT s3://bucket/secret timed out", key="secret"),
        CorruptObjectError("the object secret is damaged", object="secret", topic="t", offset=3),
        InternalError("KeyError: secret"),
    ],
)
def test_the_inside_is_for_admin_keys_only(error):
    assert "secret" not in str(problem(error, "id"))
    assert "secret" in str(problem(error, "id", to_admin=True))


def test_damage_names_topic_and_offset_to_everybody():
    made = problem(CorruptObjectError("x", topic="t", offset=3, until=9), "id")
    assert (made["topic"], made["offset"], made["until"]) == ("t", 3, 9)


@pytest.mark.parametrize(
    ("error", "name", "value"),
    [
        (UnauthenticatedError("x"), b"www-authenticate", b'Bearer realm="seb", Basic realm="seb"'),
        (RequestTooLargeError("x"), b"connection", b"close"),
        (OverloadedError("x"), b"retry-after", b"1"),
        (FencedError("x"), b"retry-after", b"5"),
        (StoreUncertainError("x"), b"retry-after", b"1"),
    ],
)
def test_a_status_brings_its_header(error, name, value):
    assert (name, value) in problem_headers(error)
