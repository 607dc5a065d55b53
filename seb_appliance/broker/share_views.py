"""What operators see of shares: how much of each common resource is used, and by whom most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from seb_appliance.broker.append.retry_results import owner_hash
from seb_appliance.broker.counters import Label, Metric
from seb_appliance.broker.shares import AllShares, ForgettingShares, Shares
from seb_appliance.broker.topics.catalog import Catalog


@dataclass(frozen=True, slots=True)
class ShareView:
    """What all API keys use together: `used` of `limit`, in its own unit. `largest` holds most of
    it: the id of an API key, `topic` and the id of a topic, `user:NAME`, or "" for operators, the
    appliance, or nobody. `refusals` since the start. One that `forgets` refuses nothing: when it
    is full, whoever holds most loses the oldest."""

    name: Annotated[str, Label("share")]
    limit: Annotated[int, Metric("seb_share_limit", "What may be held of a common resource.")]
    used: Annotated[
        int,
        Metric(
            "seb_share_used", "What API keys and operators hold of a common resource, in its unit."
        ),
    ]
    largest: str
    largest_held: int
    refusals: Annotated[
        int,
        Metric(
            "seb_share_refusals_total",
            "Requests refused because a common resource, or the API key's share, was used up.",
        ),
    ]
    forgets: bool


def share_views(all_shares: AllShares, catalog: Catalog) -> list[ShareView]:
    return [_view(shares, catalog) for shares in all_shares]


def _view(shares: Shares, catalog: Catalog) -> ShareView:
    largest, held = shares.largest()
    if shares is catalog.requests.shares:
        keys = (key.api_key_id for key in catalog.api_keys.all())
        largest = next((key for key in keys if owner_hash(key).hex() == largest), "")
    elif shares is catalog.producers.shares and largest:
        largest = f"topic {largest}"
    forgets = isinstance(shares, ForgettingShares)
    return ShareView(
        shares.name, shares.limit, shares.used, largest, held, shares.refusals, forgets
    )
