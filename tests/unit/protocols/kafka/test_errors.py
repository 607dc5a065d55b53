"""Which code of Kafka an error of the broker becomes."""

from __future__ import annotations

import inspect

import pytest

from seb_appliance import errors
from seb_appliance.errors import SebError, SequenceGapError
from seb_appliance.protocols.kafka.errors import BY_CODE, ErrorCode, code_of

# What no handler of the Kafka port can get from the broker: other APIs and the start raise it.
ELSEWHERE = {
    "api_key_not_found", "bad_cloud_event", "bad_json", "commit_backward", "compaction_not_found",
    "compaction_refused", "delay_too_long", "entry_not_found", "export_refused",
    "follower_too_slow", "fork_refused", "headers_too_large", "import_refused", "key_index_off",
    "last_admin_key",
    "lease_ended", "method_not_allowed", "not_acceptable", "not_found", "offset_conflict",
    "precondition_failed", "queue_not_found", "record_key_not_found", "record_not_found",
    "request_timeout", "sql_statement", "sql_timeout", "sql_unavailable", "stream_conflict",
    "transfer_coding_unsupported", "unsupported_media_type",
}  # fmt: skip


def every() -> dict[str, type[SebError]]:
    """By code, those that are told to clients."""
    return {
        one.code: one
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, SebError)
        and not issubclass(one, (errors.StartError, errors.StoreError))
        and "code" in one.__dict__
    }


@pytest.mark.parametrize("code", sorted(every()))
def test_an_error_that_the_broker_can_raise_has_a_code_of_kafka(code):
    assert (code in BY_CODE) != (code in ELSEWHERE), code


def test_no_code_is_named_that_no_error_has():
    assert BY_CODE.keys() <= every().keys()


@pytest.mark.parametrize(
    ("error", "group", "code"),
    [
        (errors.TopicNotFoundError("x"), False, 3),
        (errors.ForbiddenError("x"), False, 29),
        (errors.ForbiddenError("x"), True, 30),
        (errors.BadNameError("x"), False, 17),
        (errors.BadNameError("x"), True, 24),
        (SequenceGapError("x", expected=7), False, 45),
        (SequenceGapError("x", expected=0), False, 59),
        (errors.StandbyError("x"), False, 6),
        (errors.InternalError("x"), False, -1),
    ],
)
def test_a_code_says_what_a_client_should_do(error, group, code):
    assert code_of(error, of_group=group) is ErrorCode(code)
