"""Subscriptions as they are asked for, stored and used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec

from seb_appliance import limits
from seb_appliance.api.server.options import SecretBox
from seb_appliance.broker.ports import DocumentRow
from seb_appliance.errors import BadRequestError
from seb_appliance.protocols.inlets.inlets import Secrets, opened, rotated
from seb_appliance.protocols.inlets.verifying import STANDARD
from seb_appliance.protocols.subscriptions import limits as push_limits
from seb_appliance.protocols.subscriptions.addresses import Target
from seb_appliance.protocols.subscriptions.settings import OF_ONE, SubscriptionSettings

KIND: Final = "subscription"  # of its documents
State = Literal["active", "paused", "disabled"]
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
# Those that the appliance sets, and those that say how a request is framed or passed on.
_OURS: Final = re.compile(
    "host|connection|content-.*|transfer-encoding|te|trailer|upgrade|keep-alive|expect|"
    "accept-encoding|user-agent|proxy-.*|webhook-.*|seb-.*"
)


class StoredSubscription(SubscriptionSettings, frozen=True, kw_only=True):
    """`secrets`: encrypted, the newest first; the second one is the previous one. `headers`: JSON,
    encrypted, "" for none; `header_names` for people. `why`: the reason of a `state` that is not
    active. `failing_since_us`: nothing but failures since then, noted once that was an hour ago; 0:
    it works. `owner`: of the shares that it takes."""

    secrets: tuple[str, ...]
    headers: str = ""
    header_names: tuple[str, ...] = ()
    state: State = "active"
    why: str = ""
    failing_since_us: int = 0
    owner: str = ""


Headers = Annotated[dict[str, str], msgspec.Meta(max_length=push_limits.HEADERS_MAX)]
Topics = Annotated[
    tuple[str, ...], msgspec.Meta(min_length=1, max_length=limits.QUEUE_PATTERNS_MAX)
]


class SubscriptionWanted(SubscriptionSettings, frozen=True, kw_only=True):
    """A subscription to be made or changed. `topics`: of its queue, which has its name and is made
    if there is none. `headers`: are sent with each request, and never shown; without them a
    subscription keeps its own. `secrets`, `keep_previous` and `end_previous` as of an inlet: they
    sign requests instead of verifying them."""

    topics: Topics | None = None
    headers: Headers | None = None
    secrets: Secrets | None = None
    keep_previous: bool = False
    end_previous: bool = False


_decoder: Final = msgspec.json.Decoder(StoredSubscription)
_headers_decoder: Final = msgspec.json.Decoder(dict[str, str])
_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription in use. `set_us`: when it was made or changed."""

    name: str
    settings: StoredSubscription
    target: Target
    set_us: int


@lru_cache(maxsize=limits.DOCUMENTS_MAX)
def subscription_of(row: DocumentRow) -> Subscription:
    """The same object until the row changes."""
    stored = _decoder.decode(row.document)
    return Subscription(row.name, stored, Target.of(stored.url), row.set_us)


def encoded(settings: StoredSubscription) -> str:
    return _encoder.encode(settings).decode()


def shown(settings: SubscriptionSettings) -> dict[str, Any]:
    """Its settings that are not the default, without what is secret."""
    given: dict[str, Any] = msgspec.to_builtins(settings)
    return {name: given[name] for name in SubscriptionSettings.__struct_fields__ if name in given}


def wanted_state(
    wanted: SubscriptionWanted, before: StoredSubscription | None, box: SecretBox, owner: str
) -> tuple[StoredSubscription, str | None]:
    """What is to be stored, and the secret if it is a random one. Raises BadRequestError."""
    target = Target.of(wanted.url)
    if wanted.batch > 1 and wanted.body in OF_ONE:
        raise BadRequestError(f"With body {wanted.body} the batch is 1; use events or records.")
    secrets, random = rotated(wanted, STANDARD, () if before is None else before.secrets, box)
    sealed, names = ("", ()) if before is None else (before.headers, before.header_names)
    if wanted.headers is not None:
        _check_headers(wanted.headers)
        names = tuple(sorted(wanted.headers))
        sealed = box.seal(_encoder.encode(wanted.headers).decode()) if names else ""
    elif before is not None and names and Target.of(before.url)[:3] != target[:3]:
        # Whoever changes the URL may not be meant to know what the headers hold.
        raise BadRequestError("The URL has another host: send the headers again, or {} for none.")
    stored = StoredSubscription(
        **shown(wanted),
        secrets=secrets,
        headers=sealed,
        header_names=names,
        owner=owner,
    )
    if before is not None:
        stored = msgspec.structs.replace(
            stored, state=before.state, why=before.why, failing_since_us=before.failing_since_us
        )
    return stored, random


def _check_headers(headers: dict[str, str]) -> None:
    """Raises BadRequestError."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or _OURS.fullmatch(name.lower()):
            raise BadRequestError(f"headers: {name[:100]!r} cannot be set here.")
        if len(value) > push_limits.HEADER_LENGTH_MAX or not _HEADER_VALUE.fullmatch(value):
            raise BadRequestError(
                f"headers: the value of {name} must be printable ASCII, of at most "
                f"{push_limits.HEADER_LENGTH_MAX} characters, without space at its ends."
            )
    if len({name.lower() for name in headers}) < len(headers):
        raise BadRequestError("headers: a name is given twice.")


def headers_of(settings: StoredSubscription, box: SecretBox) -> dict[str, str]:
    """Raises NotReadyError."""
    if not settings.headers:
        return {}
    return _headers_decoder.decode(opened((settings.headers,), box)[0])


def secrets_of(settings: StoredSubscription, box: SecretBox) -> tuple[str, ...]:
    """Raises NotReadyError."""
    return opened(settings.secrets, box)
