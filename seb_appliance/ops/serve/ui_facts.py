"""What the admin page shows of one appliance: settings, costs, effects of changes, checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import TopicView
from seb_appliance.ops.cost import effects
from seb_appliance.ops.cost.bill import CostReport
from seb_appliance.ops.cost.effects import Effect, Situation
from seb_appliance.ops.jobs.check_job import CheckKeeper, CheckResult
from seb_appliance.ops.jobs.cost_job import CostKeeper
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.settings import SETTINGS
from seb_appliance.ui.options import (
    BillRow,
    CheckKind,
    CheckShown,
    CostShown,
    Figure,
    Remark,
    SettingRow,
    TopicCost,
)
from seb_appliance.ui.units import count


def setting_rows(appliance: Appliance) -> list[SettingRow]:
    """All settings of `seb serve`, with their current values. Secrets are shown only as set or not
    set."""
    settings = appliance.settings
    rows = []
    for setting in SETTINGS:
        if setting.client or setting.variable_only:
            continue
        value = getattr(settings, setting.attribute)
        if setting.name == "linger" and value is None:
            value = settings.window_linger_ms
        rows.append(
            SettingRow(
                setting.name,
                setting.words(value) or "(none)",
                settings.sources.get(setting.name, "default"),
                setting.help,
            )
        )
    return rows


def cost_shown(found: CostReport) -> CostShown:
    """The cost of the bucket this month."""
    so_far, forecast, money = found.so_far.total, found.forecast.total, found.prices.money
    budget = found.budget
    return CostShown(
        so_far,
        forecast,
        budget.amount if budget is not None else None,
        money(so_far),
        money(forecast),
        str(budget or ""),
        tuple(filter(None, (found.linger_why, str(found.crossover)))),
    )


def topic_costs(found: CostReport) -> Callable[[int], TopicCost]:
    """The topics' shares of the month's bill so far, by topic id."""
    money = found.prices.money

    def of(topic_id: int) -> TopicCost:
        cost = found.of_topic(topic_id)
        return TopicCost(cost.amount, cost.requests_amount, money)

    return of


def bill_rows(appliance: Appliance) -> list[BillRow]:
    """The lines of the month's bill, and their sum."""
    found = appliance.cost.recent()
    money = found.prices.money
    rows = [
        BillRow(
            now.what,
            f"{now.quantity:,.{0 if now.unit == 'requests' else 3}f} {now.unit}",
            money(now.amount),
            money(then.amount),
        )
        for now, then in found.lines
    ]
    return [*rows, BillRow("all", "", money(found.so_far.total), money(found.forecast.total))]


_SECOND_US = 1_000_000


def effects_of(
    broker: Broker,
    cost: CostKeeper,
    topic: str,
    changes: Mapping[str, int | bool | str | None],
    now_us: int,
) -> dict[str, str]:
    """What changes of a topic's settings will cost or save: a sentence for each setting. Raises
    TopicNotFoundError."""
    view = broker.topics.get(topic)
    before = view.effective
    after = broker.topics.with_defaults(msgspec.structs.replace(view.settings, **changes))
    now = _situation(broker, cost, view, now_us)
    found: list[Effect] = []
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
    if (after.table, after.table_lag_ms) != (before.table, before.table_lag_ms):
        found.append(
            effects.table(now, formats=after.table_formats, lag_ms=after.table_lag_ms or 0)
        )
    return {effect.setting: effect.words for effect in found}


def _situation(broker: Broker, cost: CostKeeper, view: TopicView, now_us: int) -> Situation:
    """Assumes that the topic has received its bytes evenly over its age or retention time."""
    age_s = max(1.0, (now_us - view.created_us) / _SECOND_US)
    if view.effective.retention_ms is not None:
        age_s = min(age_s, view.effective.retention_ms / 1000)
    counters = broker.counters
    part = counters.packed_bytes / counters.plain_bytes if counters.plain_bytes else 1.0
    return Situation(
        cost.prices,
        cost.entries_per_s,
        cost.entry_price,
        view.bytes,
        view.bytes / age_s,
        part,
        cost.report().forecast.total,
    )


_TITLES: Final[dict[CheckKind, str]] = {"doctor": "Doctor", "fsck": "Fsck"}
_ABOUT: Final[dict[CheckKind, str]] = {
    "doctor": "Tests the bucket with small objects below its probe/ folder (in fencing mode B some "
    "hundreds of requests), and looks at the disk and SQLite.",
    "fsck": "Replays the log and compares it with what lies in the bucket. The quick kind: no "
    "object is read whole; on the machine, seb fsck reads all of them.",
}
_COUNTED: Final = {
    "journal_entries": "Journal entries",
    "segments": "Segments",
    "snapshots": "Snapshots",
    "topics": "Topics",
    "entries_replayed": "Entries replayed",
    "snapshots_compared": "Snapshots compared",
}


def checks_shown(keeper: CheckKeeper) -> list[CheckShown]:
    """Both checks, even if they never ran; empty if checks cannot run here."""
    if not keeper.is_possible:
        return []
    return [_shown(keeper, kind) for kind in _TITLES]


def _shown(keeper: CheckKeeper, kind: CheckKind) -> CheckShown:
    title, about = _TITLES[kind], _ABOUT[kind]
    progress = keeper.progress if keeper.running == kind else ""
    found = keeper.found.get(kind)
    if found is None:
        return CheckShown(kind, title, about, progress)
    figures, remarks = _doctor(found) if kind == "doctor" else _fsck(found)
    return CheckShown(
        kind,
        title,
        about,
        progress,
        found.finished_us,
        found.seconds,
        found.is_well,
        found.failure or _verdict(found.data["verdict"]),
        figures,
        remarks,
    )


def _verdict(words: str) -> str:
    return "Clean: nothing is wrong." if words == "clean" else f"{words[:1].upper()}{words[1:]}."


def _doctor(found: CheckResult) -> tuple[list[Figure], list[Remark]]:
    bucket, machine = found.data.get("bucket", {}), found.data.get("machine", {})
    checks: Mapping[str, str] = bucket.get("checks", {})
    figures = [Figure("Store allows", bucket["store allows"])] if "store allows" in bucket else []
    if "put p50" in bucket:
        figures.append(Figure("PUT", f"{bucket['put p50']}", f"p50; p99 {bucket['put p99']}"))
    if "store's clock" in bucket:
        figures.append(Figure("The store's clock", bucket["store's clock"]))
    figures += [
        Figure(name.capitalize(), words)
        for name, words in machine.items()
        if name.startswith("disk")
    ]
    if "sqlite" in machine:
        figures.append(Figure("SQLite", machine["sqlite"]))
    if checks:
        passed = sum(words.startswith("ok") for words in checks.values())
        figures.append(Figure("Checks passed", f"{passed} of {len(checks)}"))
    remarks = [Remark("Warning", words) for words in bucket.get("warnings", [])]
    remarks += [
        Remark(name, words.partition("  ")[2])
        for name, words in checks.items()
        if not words.startswith("ok")
    ]
    return figures, remarks


def _fsck(found: CheckResult) -> tuple[list[Figure], list[Remark]]:
    counted: Mapping[str, Any] = found.data.get("looked_at", {})
    figures = [
        Figure(words, count(counted[name])) for name, words in _COUNTED.items() if name in counted
    ]
    remarks = [
        Remark(f"{problem['code']}: {_place(problem)}", problem["detail"], problem["advice"])
        for problem in found.data.get("problems", [])[: limits.CHECK_PROBLEMS_SHOWN]
    ]
    more = found.data.get("problems_total", 0) - len(remarks)
    if more > 0:
        remarks.append(Remark(f"{count(more)} more", "seb fsck on the machine names them all."))
    return figures, remarks


def _place(problem: Mapping[str, Any]) -> str:
    where = str(problem["object"])
    if "topic" in problem:
        where += f", topic {problem['topic']}"
    if "first_offset" in problem:
        first, last = problem["first_offset"], problem["last_offset"]
        where += f", offsets {count(first)} to {count(last)}"
    return where
