"""What a question about record keys asks for: from the query, or from a JSON body for record keys
that are too long for a URL."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.errors import BadParameterError, RecordTooLargeError

_SWITCH: Final = ("true", "false")


class _Question(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`fresh`: wait until the index has reached the log end."""

    fresh: bool = False


class KeysQuestion(_Question, kw_only=True):
    """Which record keys there are: those that begin with a prefix, behind another one."""

    prefix: str | None = None
    prefix_base64: str | None = None
    after: str | None = None
    after_base64: str | None = None
    limit: int = limits.KEYS_PER_PAGE_DEFAULT


class LatestQuestion(_Question, kw_only=True):
    """The newest record of one record key: `key`, or `key_base64` for any bytes."""

    key: str | None = None
    key_base64: str | None = None
    values: str = "text"


class HistoryQuestion(LatestQuestion, kw_only=True):
    """The records of one record key below an offset, newest first."""

    before: int | None = None
    limit: int = limits.KEYS_PER_PAGE_DEFAULT


def switch(query: dict[str, str], name: str) -> bool:
    """`true` or `false`; false when it is not there."""
    return parameters.choice(query.get(name, "false"), name, _SWITCH) == "true"


def keys_question(query: dict[str, str]) -> KeysQuestion:
    return KeysQuestion(
        prefix=query.get("prefix"),
        prefix_base64=query.get("prefix_base64"),
        after=query.get("after"),
        after_base64=query.get("after_base64"),
        limit=_limit(query),
        fresh=switch(query, "fresh"),
    )


def latest_question(query: dict[str, str]) -> LatestQuestion:
    return LatestQuestion(
        key=query.get("key"),
        key_base64=query.get("key_base64"),
        values=query.get("values", "text"),
        fresh=switch(query, "fresh"),
    )


def history_question(query: dict[str, str]) -> HistoryQuestion:
    before = query.get("before")
    return HistoryQuestion(
        key=query.get("key"),
        key_base64=query.get("key_base64"),
        values=query.get("values", "text"),
        before=None
        if before is None
        else parameters.integer(before, "before", smallest=0, largest=limits.OFFSET_MAX),
        limit=_limit(query),
        fresh=switch(query, "fresh"),
    )


def _limit(query: dict[str, str]) -> int:
    text = query.get("limit", str(limits.KEYS_PER_PAGE_DEFAULT))
    return parameters.integer(text, "limit", smallest=1, largest=limits.KEYS_PER_PAGE_MAX)


def check_numbers(asked: KeysQuestion | HistoryQuestion) -> None:
    """Of a JSON body. Raises BadParameterError."""
    if not 1 <= asked.limit <= limits.KEYS_PER_PAGE_MAX:
        raise BadParameterError(f"limit is from 1 to {limits.KEYS_PER_PAGE_MAX}.")
    before = getattr(asked, "before", None)
    if before is not None and not 0 <= before <= limits.OFFSET_MAX:
        raise BadParameterError("before is an offset: 0 to 2^53-1.")


def key_bytes(text: str | None, base64_text: str | None, name: str = "key") -> bytes:
    """A record key that has to be given. Raises BadParameterError, RecordTooLargeError."""
    key = optional_bytes(text, base64_text, name)
    if key is None:
        raise BadParameterError(
            f"Name the record key: {name}=… (percent-encoded UTF-8), or {name}_base64=… for any "
            "bytes."
        )
    return key


def optional_bytes(text: str | None, base64_text: str | None, name: str) -> bytes | None:
    """The bytes of `name` or `name_base64`; None when neither is given."""
    if text is not None and base64_text is not None:
        raise BadParameterError(f"Give {name} or {name}_base64, not both.")
    if base64_text is not None:
        try:
            given = base64.b64decode(base64_text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadParameterError(f"{name}_base64 is not base64.") from error
    elif text is not None:
        given = text.encode()
    else:
        return None
    if len(given) > limits.RECORD_KEY_BYTES_MAX:
        raise RecordTooLargeError(f"A record key has at most {limits.RECORD_KEY_BYTES_MAX} bytes.")
    return given
