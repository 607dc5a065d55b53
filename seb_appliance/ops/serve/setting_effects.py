"""What a change of a topic's settings would do, in words and money, before it is saved."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import TopicView
from seb_appliance.ops.cost import effects
from seb_appliance.ops.cost.effects import Effect, Situation
from seb_appliance.ops.jobs.cost_job import CostKeeper

_SECOND_US = 1_000_000


def effects_of(
    broker: Broker,
    cost: CostKeeper,
    topic: str,
    changes: Mapping[str, int | bool | str | None],
    now_us: int,
) -> list[Effect]:
    """The effects of `changes`, as `Broker.change_topic` takes them, as far as they change what
    the bucket costs. Raises TopicNotFoundError."""
    view = broker.topics.get(topic)
    before = view.effective
    after = broker.topics.with_defaults(msgspec.structs.replace(view.settings, **changes))
    now = _situation(broker, cost, view, now_us)
    found = []
    if after.linger_ms != before.linger_ms:
        found.append(effects.linger(now, before.linger_ms or 0, after.linger_ms or 0))
    if (after.retention_ms, after.retention_bytes) != (
        before.retention_ms,
        before.retention_bytes,
    ):
        found.append(
            effects.retention(
                now, retention_ms=after.retention_ms, retention_bytes=after.retention_bytes
            )
        )
    if after.compression != before.compression:
        found.append(effects.compression(now, on=after.compression != "none"))
    return found


def _situation(broker: Broker, cost: CostKeeper, view: TopicView, now_us: int) -> Situation:
    """A topic gets as many bytes a second as it holds, over the time that it holds them for."""
    age_s = max(1.0, (now_us - view.created_us) / _SECOND_US)
    if view.effective.retention_ms is not None:
        age_s = min(age_s, view.effective.retention_ms / 1000)
    counters = broker.counters
    part = counters.packed_bytes / counters.plain_bytes if counters.plain_bytes else 1.0
    return Situation(
        cost.prices, cost.entries_per_s, cost.entry_price, view.bytes, view.bytes / age_s, part
    )
