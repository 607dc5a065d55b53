"""Classifies an S3 store's answers: "What an answer to a PUT means" in docs/ARCHITECTURE.md.

In doubt a request is uncertain: retrying the same bytes at the same key is always safe, trusting a
wrong answer is not. Imports botocore: import this late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from seb_appliance.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreClockSkewError,
    StoreConflictError,
    StoreDeniedError,
    StoreError,
    StoreUncertainError,
    StoreUnsupportedError,
)

# All errors of a request in boto3 and below, and of one by the event loop. Those of Python: an
# answer lacks a required member, or has one that cannot be read.
CLIENT_ERRORS: Final = (
    ClientError, BotoCoreError, ResponseParserError, HTTPError, OSError, EOFError,
    LookupError, ArithmeticError, ValueError, TypeError, AttributeError, RuntimeError,
)  # fmt: skip

_CREDENTIALS_ERRORS: Final = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    ProfileNotFound,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
# Codes that need an operator, whatever the status.
_DENIED_CODES: Final = frozenset(
    {
        "AccessDenied",
        "AllAccessDisabled",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
    }
)
_REGION_CODES: Final = frozenset({"AuthorizationHeaderMalformed", "PermanentRedirect"})
_REGION_HEADER: Final = "x-amz-bucket-region"
_SKEW_CODES: Final = frozenset({"RequestTimeTooSkewed", "RequestExpired"})


def meaning(error: Exception, key: str, clock_offset_s: float, where: str) -> StoreError:
    """Our error for `error`. `key` and `where` (`bucket "orders" at https://…`) are for people."""
    if isinstance(error, ClientError):
        if _code(error) == "NoSuchBucket":
            return StoreDeniedError(
                f"{where} does not exist (NoSuchBucket). Check --bucket, or the endpoint in "
                "SEB_S3_ENDPOINT.",
                key=key,
            )
        return _meaning_of_answer(error, key, clock_offset_s)
    if isinstance(error, _CREDENTIALS_ERRORS):
        return StoreDeniedError(f"no credentials for the object store: {error}", key=key)
    return StoreUncertainError(f"{key}: the object store gave no usable answer: {error!r}", key=key)


def _meaning_of_answer(error: ClientError, key: str, clock_offset_s: float) -> StoreError:
    status, code = _status(error), _code(error)
    operation = error.operation_name
    what = f"{key}: the object store answered {status} {code} to {operation}"
    if code in _SKEW_CODES:
        return StoreClockSkewError(
            f"{what}: our clock is {-clock_offset_s:.0f} s ahead of the store's",
            clock_offset_s=clock_offset_s,
            key=key,
        )
    if status in {401, 403} or code in _DENIED_CODES:
        return StoreDeniedError(f"{what}: {_message(error)}", key=key)
    if status == 404:
        # A 404 ends a log, so only the store's own code counts: a proxy's 404 page has none. An
        # answer to HEAD has no body, and nothing is decided by it.
        reading = operation in {"GetObject", "DeleteObject"} and code == "NoSuchKey"
        if reading or operation == "HeadObject":
            return ObjectMissingError(f"there is no object {key}", key=key)
        if operation in {"ListObjectsV2", "GetBucketVersioning", "GetBucketLifecycleConfiguration"}:
            return StoreDeniedError(f"{what}: there is no such bucket", key=key)
        return StoreUncertainError(what, key=key)
    if status == 412 and operation == "PutObject":
        return ObjectExistsError(f"{key} exists already", key=key)
    if status == 409:
        return StoreConflictError(what, key=key)
    if status == 501 or code == "NotImplemented":
        return StoreUnsupportedError(f"{what}: {_message(error)}", key=key)
    return StoreUncertainError(f"{what}: {_message(error)}", key=key)


def is_beyond_end(error: ClientError) -> bool:
    """416: the range begins at or after the end of the object."""
    return _status(error) == 416 or _code(error) == "InvalidRange"


def raise_unless_refused(error: ClientError) -> None:
    """Raises `error` unless the bucket has no such settings or they may not be read."""
    if _status(error) not in {403, 405, 501} and _code(error) not in {
        "NoSuchLifecycleConfiguration",
        "NotImplemented",
    }:
        raise error


def takes_away(rule: Mapping[str, Any], base: str) -> bool:
    """Whether a lifecycle rule expires or moves current objects whose key begins with `base`."""
    if rule.get("Status") != "Enabled" or not (rule.get("Expiration") or rule.get("Transitions")):
        return False
    chosen = rule.get("Filter", {})
    prefix = rule.get("Prefix") or chosen.get("Prefix") or chosen.get("And", {}).get("Prefix") or ""
    return base.startswith(prefix) or prefix.startswith(base)


def _status(error: ClientError) -> int:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def _code(error: ClientError) -> str:
    return _text(error, "Code")


def _text(error: ClientError, name: str) -> str:
    """A member of the answer; "" where it is none, or no text."""
    found = error.response.get("Error", {}).get(name, "")
    return found if isinstance(found, str) else ""


def _message(error: ClientError) -> str:
    region = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get(_REGION_HEADER)
    hint = ""
    if region:
        hint = f" (the bucket is in the region {region}: set s3_region)"
    elif _code(error) in _REGION_CODES:
        hint = " (is s3_region the bucket's?)"
    elif _code(error) == "InvalidObjectState":
        hint = (
            " (a lifecycle rule moved it to an archive: remove the rule, and restore the object to "
            "the class STANDARD)"
        )
    return (_text(error, "Message") or "no reason given") + hint
