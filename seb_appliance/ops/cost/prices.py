"""The price lists of object store providers, and how they are parsed.

Prices without tax, from the providers' public lists as they were known at `as_of`; they are not
updated automatically: compare them with your bill, or set your own. A GB is 10^9 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("PUT", "LIST", "GET", "HEAD", "DELETE", "CONFIGURATION")


@dataclass(frozen=True, slots=True)
class RequestClass:
    """Requests that are billed alike. `included` of them a month cost nothing."""

    name: str
    kinds: frozenset[str]
    per_million: float
    included: int = 0


@dataclass(frozen=True, slots=True)
class Prices:
    """Of one provider, a month. Storage and egress per GB; what is included costs nothing, and
    so does egress up to `egress_included_times_stored` of what is stored on the mean."""

    name: str
    as_of: str  # year and month
    currency: str
    classes: tuple[RequestClass, ...]
    storage_gb: float = 0.0
    storage_gb_included: float = 0.0
    egress_gb: float = 0.0
    egress_gb_included: float = 0.0
    egress_included_times_stored: float = 0.0
    fee: float = 0.0

    def money(self, amount: float) -> str:
        return str(Money(amount, self.currency))

    def class_of(self, kind: str) -> RequestClass:
        return next(found for found in self.classes if kind in found.kinds)


@dataclass(frozen=True, slots=True)
class Money:
    """An amount of a currency, such as `5 EUR`."""

    amount: float
    currency: str

    def __str__(self) -> str:
        return f"{self.amount:,.2f} {self.currency}"

    @classmethod
    def parse(cls, text: str) -> Money:
        """Raises ValueError with half a sentence."""
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Z]{3})", text)
        if found is None:
            raise ValueError(f"{text!r} is not an amount and a currency, as 5 EUR")
        return cls(float(found[1]), found[2])


def _classes(a: float, b: float, delete: float = 0.0) -> tuple[RequestClass, ...]:
    return (
        RequestClass("PUT, LIST", frozenset({"PUT", "LIST", "CONFIGURATION"}), a),
        RequestClass("GET, HEAD", frozenset({"GET", "HEAD"}), b),
        RequestClass("DELETE", frozenset({"DELETE"}), delete),
    )


# Some free amounts are a day's (Backblaze: 2,500 calls); here they are a month of 30 days.
PROVIDERS: Final[dict[str, Prices]] = {
    "aws": Prices(
        name="AWS S3 Standard, us-east-1",
        as_of="2025-06",
        currency="USD",
        classes=_classes(5.00, 0.40),
        storage_gb=0.023,
        egress_gb=0.09,
        egress_gb_included=100,
    ),
    "hetzner": Prices(
        name="Hetzner Object Storage",
        as_of="2025-06",
        currency="EUR",
        classes=_classes(0.0, 0.0),
        storage_gb=0.00499,
        storage_gb_included=1_000,
        egress_gb=0.001,
        egress_gb_included=1_000,
        fee=4.99,
    ),
    "r2": Prices(
        name="Cloudflare R2 Standard",
        as_of="2025-06",
        currency="USD",
        classes=(
            RequestClass("class A", frozenset({"PUT", "LIST", "CONFIGURATION"}), 4.50, 1_000_000),
            RequestClass("class B", frozenset({"GET", "HEAD"}), 0.36, 10_000_000),
            RequestClass("DELETE", frozenset({"DELETE"}), 0.0),
        ),
        storage_gb=0.015,
        storage_gb_included=10,
    ),
    "b2": Prices(
        name="Backblaze B2",
        as_of="2025-06",
        currency="USD",
        classes=(
            RequestClass("class A", frozenset({"PUT", "DELETE"}), 0.0),
            RequestClass("class B", frozenset({"GET", "HEAD"}), 0.40, 75_000),
            RequestClass("class C", frozenset({"LIST", "CONFIGURATION"}), 4.00, 75_000),
        ),
        storage_gb=0.006,
        storage_gb_included=10,
        egress_gb=0.01,
        egress_included_times_stored=3,
    ),
    "gcs": Prices(
        name="Google Cloud Storage Standard, us-central1",
        as_of="2025-06",
        currency="USD",
        classes=(
            RequestClass("class A", frozenset({"PUT", "LIST", "CONFIGURATION"}), 5.00, 5_000),
            RequestClass("class B", frozenset({"GET", "HEAD"}), 0.40, 50_000),
            RequestClass("DELETE", frozenset({"DELETE"}), 0.0),
        ),
        storage_gb=0.020,
        storage_gb_included=5,
        egress_gb=0.12,
        egress_gb_included=100,
    ),
    "tigris": Prices(
        name="Tigris Standard",
        as_of="2025-06",
        currency="USD",
        classes=(
            RequestClass("class A", frozenset({"PUT", "LIST", "CONFIGURATION"}), 5.00, 10_000),
            RequestClass("class B", frozenset({"GET", "HEAD"}), 0.50, 100_000),
            RequestClass("DELETE", frozenset({"DELETE"}), 0.0),
        ),
        storage_gb=0.020,
        storage_gb_included=5,
    ),
    "none": Prices(name="nothing is billed", as_of="", currency="EUR", classes=_classes(0.0, 0.0)),
}

_HOSTS: Final = (
    ("amazonaws.com", "aws"),
    ("your-objectstorage.com", "hetzner"),
    ("r2.cloudflarestorage.com", "r2"),
    ("backblazeb2.com", "b2"),
    ("storage.googleapis.com", "gcs"),
    ("fly.storage.tigris.dev", "tigris"),
    ("t3.storage.dev", "tigris"),
)
_PER_MILLION: Final = ("put", "list", "get", "head", "delete")
_AMOUNTS: Final = (*_PER_MILLION, "storage", "included_storage", "egress", "included_egress", "fee")


def provider_at(*, is_s3: bool, endpoint: str | None) -> str:
    """The provider, recognized by the bucket's address; `none` if it is unknown."""
    if not is_s3:
        return "none"
    if endpoint is None:
        return "aws"
    host = re.sub(r"^\w+://", "", endpoint).partition("/")[0].partition(":")[0]
    for suffix, provider in _HOSTS:
        if host == suffix or host.endswith("." + suffix):
            return provider
    return "none"


def own_prices(text: str) -> Prices:
    """Prices as `EUR fee=4.99 put=5 get=0.4 storage=0.02 included_storage=10`: requests per
    million, storage and egress per GB, included GB, and a fee, a month; what is not named is 0.
    Raises ValueError with half a sentence."""
    currency, *rest = text.split() or [""]
    if not re.fullmatch(r"[A-Z]{3}", currency):
        raise ValueError(f"{text!r} does not begin with a currency, as EUR")
    amounts = dict.fromkeys(_AMOUNTS, 0.0)
    for item in rest:
        name, equals, amount = item.partition("=")
        if name not in amounts:
            raise ValueError(f"{item!r} is none of {', '.join(_AMOUNTS)}")
        if not equals or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", amount):
            raise ValueError(f"{item!r} is not a name, = and an amount")
        amounts[name] = float(amount)
    kinds = {name: {name.upper()} for name in _PER_MILLION}
    kinds["list"].add("CONFIGURATION")
    return Prices(
        name="own prices",
        as_of="",
        currency=currency,
        classes=tuple(
            RequestClass(name.upper(), frozenset(kinds[name]), amounts[name])
            for name in _PER_MILLION
        ),
        storage_gb=amounts["storage"],
        storage_gb_included=amounts["included_storage"],
        egress_gb=amounts["egress"],
        egress_gb_included=amounts["included_egress"],
        fee=amounts["fee"],
    )
