"""What an operator should know now, in sentences that say what to do, each with a link."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from seb_appliance import limits
from seb_appliance.broker.status import Status, Telemetry
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.quantities import counted
from seb_appliance.ui.options import CostShown
from seb_appliance.ui.page_context import Visit
from seb_appliance.ui.units import count, span

_SECOND_US: Final = 1_000_000
_NAMED: Final = 3  # of each kind
LAG_MIN: Final = 1_000  # records; a smaller lag that grows is no warning
_EXPIRY_US: Final = 14 * 24 * 3600 * _SECOND_US  # before an API key expires
_MISSED_ENTRIES: Final = 100_000  # since a snapshot; one is due long before


@dataclass(frozen=True, slots=True)
class Warned:
    """`path`: of the page that has more about it; "" for none."""

    words: str
    path: str = ""


def all_warnings(visit: Visit, now: Telemetry, problems: Sequence[str]) -> list[Warned]:
    """`problems`: why the appliance is not ready, as in /readyz."""
    return [
        *warnings(now, problems),
        *over_budget(visit.options.cost()),
        *_growing(visit),
        *expiring(visit.broker.access.all(), visit.now_us),
    ]


def warnings(now: Telemetry, problems: Sequence[str]) -> list[Warned]:
    """What is wrong with the appliance itself. `problems`: as in /readyz."""
    status = now.status
    bucket, waiting = status.bucket, status.waiting
    found = [problem[:1].upper() + problem[1:].rstrip(".") + "." for problem in problems]
    if bucket.failing_s is not None and not problems:
        found.append(
            f"The bucket has not answered for {span(bucket.failing_s)}: "
            f"{bucket.failure}. Records wait; nothing acknowledged is lost."
        )
    for failure, sentence in (
        (status.state.failure, "The SQLite view is not being updated"),
        (status.snapshots.failure, "The last snapshot could not be made"),
        (status.tidier.failure, "The tidier's last attempt failed"),
        (status.key_index.failure, "The key index is not being updated"),
    ):
        if failure:
            found.append(f"{sentence}: {failure.rstrip('.')}.")
    found += [
        f"A background task failed and was restarted ({task.name}: {task.failure.rstrip('.')}). "
        "Look at the log."
        for task in status.background
        if task.failing
    ]
    if status.tidier.overdue_s:
        found.append(
            f"The tidier is behind: journal entries should have been merged "
            f"{span(status.tidier.overdue_s)} ago. Look at the storage page and at the log."
        )
    if now.cache.damaged:
        found.append(
            f"{counted(now.cache.damaged, 'read')} failed the checksum, and got no record. "
            "Look at the log, and at the disk of the cache."
        )
    if waiting.pending_bytes > 0.8 * waiting.pending_bytes_max:
        found.append("Almost all memory for waiting records is used; producers will be refused.")
    found += [
        f"{count(share.used)} of {count(share.limit)} {share.name.replace('_', ' ')} are in use, "
        f"{count(share.largest_held)} of them by {share.largest or 'operators'}."
        for share in status.shares
        if share.used > 0.8 * share.limit and not share.forgets
    ]
    if status.journal.durability == "memory":
        found.append("The bucket is this process's memory: everything is gone when it ends.")
    return [
        *(Warned(words) for words in found),
        *_snapshots(status),
        *_clock(status.journal.clock_ahead_s),
    ]


def _snapshots(status: Status) -> list[Warned]:
    """A failure has a warning of its own."""
    snapshots = status.snapshots
    if snapshots.failure or snapshots.entries_since <= _MISSED_ENTRIES:
        return []
    newest = "There is no snapshot" if snapshots.seq is None else "The newest snapshot is old"
    words = f"{newest}: a start replays {counted(snapshots.entries_since, 'entry')}. Take one now."
    return [Warned(words, "/ui/storage")]


def _clock(ahead_s: float) -> list[Warned]:
    if abs(ahead_s) * _SECOND_US < limits.CLOCK_JUMP_US_MAX:
        return []
    way = "ahead of" if ahead_s > 0 else "behind"
    return [
        Warned(
            f"The log's clock is {span(abs(ahead_s))} {way} the clock of this machine: one of them "
            "was or is wrong. Check the clocks of this machine and of the store."
        )
    ]


def over_budget(cost: CostShown) -> list[Warned]:
    if not cost.is_over:
        return []
    words = (
        f"The month will cost {cost.forecast_words}, more than the budget of {cost.budget_words}."
    )
    return [Warned(words, "/ui/storage")]


def _growing(visit: Visit) -> list[Warned]:
    found = visit.options.lags.growing(_NAMED + 1, LAG_MIN)
    warned = [
        Warned(
            f"The group {group} falls behind on {name}: its lag has grown steadily, to "
            f"{counted(lag, 'record')}.",
            f"/ui/groups/{quote(group, safe='')}",
        )
        for lag, (group, topic_id) in found[:_NAMED]
        if (name := visit.broker.topics.name_of(topic_id))
    ]
    more = [Warned("More groups fall behind.", "/ui/groups")] if found[_NAMED:] else []
    return warned + more


def expiring(keys: Iterable[ApiKeyView], now_us: int) -> list[Warned]:
    """API keys that will expire soon, the next one first."""
    soon = sorted(
        (key.expires_us, key.name, key.api_key_id)
        for key in keys
        if key.expires_us is not None
        and not key.disabled
        and 0 < key.expires_us - now_us <= _EXPIRY_US
    )
    warned = [
        Warned(
            f"The API key {name} expires in {span((expires_us - now_us) / _SECOND_US)}.",
            f"/ui/api-keys/{api_key_id}",
        )
        for expires_us, name, api_key_id in soon[:_NAMED]
    ]
    more = len(soon) - _NAMED
    return [
        *warned,
        *([Warned(f"{count(more)} more expire soon.", "/ui/api-keys")] if more > 0 else []),
    ]
