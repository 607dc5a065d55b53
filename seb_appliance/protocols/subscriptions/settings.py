"""The settings of a subscription, each declared in one place.

The HTTP API, `seb subscriptions`, the file of `seb apply` and the form of the admin page are made
from this struct. docs/PUSH.md describes each.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from seb_appliance import limits
from seb_appliance.formats.declared import Declared, declared
from seb_appliance.protocols.subscriptions import limits as push_limits

# A body is one value, a CloudEvent, a list of CloudEvents, or our JSON with many records.
Shape = Literal["value", "event", "events", "records"]
OF_ONE: Final = ("value", "event")  # shapes of bodies with one record
_TIMEOUT_MS: Final = (push_limits.TIMEOUT_MS_MIN, push_limits.TIMEOUT_MS_MAX)
_DISABLE_MS: Final = (push_limits.DISABLE_AFTER_MS_MIN, push_limits.DISABLE_AFTER_MS_MAX)
_BATCH: Final = (1, limits.DELIVERIES_PER_REQUEST_MAX)
_CONCURRENCY: Final = (1, push_limits.CONCURRENCY_MAX)
_RATE: Final = (1, push_limits.RATE_MAX)


class SubscriptionSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """How records are sent. `body`: `value` (the value of one record), `event` (one CloudEvent in
    the JSON format), `events` (a list of them) or `records` (`{"records": […]}`). `batch`: the most
    records in one request. `concurrency`: requests at one time. `rate`: requests in a second.
    `timeout_ms`: of a whole request with its answer. `disable_after_ms`: a subscription of which
    every request failed for that long is disabled."""

    url: Annotated[
        str,
        msgspec.Meta(max_length=limits.PUSH_URL_LENGTH_MAX),
        Declared("text", "URL", "Where records are sent."),
    ]
    body: Annotated[
        Shape,
        Declared(
            "choice",
            "A request holds: a value, a CloudEvent, many of them, or many records",
            "What a request holds. [value]",
            default="value",
        ),
    ] = "value"
    batch: Annotated[
        int,
        msgspec.Meta(ge=_BATCH[0], le=_BATCH[1]),
        Declared(
            "number", "Most records in a request", "Most records in a request. [1]", _BATCH, 1
        ),
    ] = 1
    concurrency: Annotated[
        int,
        msgspec.Meta(ge=_CONCURRENCY[0], le=_CONCURRENCY[1]),
        Declared("number", "Requests at one time", "Requests at one time. [4]", _CONCURRENCY, 4),
    ] = 4
    rate: Annotated[
        Annotated[int, msgspec.Meta(ge=_RATE[0], le=_RATE[1])] | None,
        Declared("number", "Most requests in a second", "Most requests in a second.", _RATE),
    ] = None
    timeout_ms: Annotated[
        int,
        msgspec.Meta(ge=_TIMEOUT_MS[0], le=_TIMEOUT_MS[1]),
        Declared(
            "duration",
            "Timeout of a request",
            "Timeout of a request with its answer. [15s]",
            _TIMEOUT_MS,
            15_000,
        ),
    ] = 15_000
    disable_after_ms: Annotated[
        int,
        msgspec.Meta(ge=_DISABLE_MS[0], le=_DISABLE_MS[1]),
        Declared(
            "duration",
            "Disable it after nothing but failures for",
            "Disable it after nothing but failures for this time. [5d]",
            _DISABLE_MS,
            5 * 86_400_000,
        ),
    ] = 5 * 86_400_000
    description: Annotated[
        str,
        msgspec.Meta(max_length=limits.API_KEY_DESCRIPTION_LENGTH_MAX),
        Declared("text", "Description", "What it is for.", default=""),
    ] = ""


SETTINGS: Final = declared(SubscriptionSettings)
