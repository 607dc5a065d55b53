"""Questions about record keys: from the query, or from a JSON body for keys too long for a URL."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, TypeVar

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding import parameters
from seb_appliance.errors import BadParameterError, RecordTooLargeError

_SWITCH: Final = ("true", "false")


class _Question(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`fresh`: wait until the index has reached the log end."""

    fresh: bool = False


T = TypeVar("T", bound=_Question)


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
    """`true` or `false`; false when it is absent."""
    return parameters.choice(query.get(name, "false"), name, _SWITCH) == "true"


def question(kind: type[T], query: dict[str, str]) -> T:
    """The question of this kind that a query asks. Raises BadParameterError."""
    asked: dict[str, Any] = {**query, "fresh": switch(query, "fresh")}
    if "limit" in query:
        asked["limit"] = parameters.integer(
            query["limit"], "limit", smallest=1, largest=limits.KEYS_PER_PAGE_MAX
        )
    if "before" in query:
        asked["before"] = parameters.integer(
            query["before"], "before", smallest=0, largest=limits.OFFSET_MAX
        )
    return kind(**asked)


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
