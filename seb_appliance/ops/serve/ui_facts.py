"""What the admin page shows of one appliance, gathered from its rooms when somebody looks."""

from __future__ import annotations

from collections.abc import Mapping

from seb_appliance import __version__
from seb_appliance.ops.cost.budget import words
from seb_appliance.ops.cost.prices import Money
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.ops.serve.setting_effects import effects_of
from seb_appliance.setting_table import SETTINGS
from seb_appliance.ui.facts import BillRow, Facts, Figure, RequestRow, SettingRow, StorageFacts


def facts(appliance: Appliance) -> Facts:
    journal, clock, broker = appliance.journal, appliance.clock, appliance.broker
    health, now_s = journal.health, clock.monotonic_s()
    keys, newest = broker.record_keys, appliance.snapshots.newest_seq
    since_s = health.failing_since_s
    return Facts(
        version=__version__,
        uptime_s=now_s - appliance.opened_s,
        bucket=appliance.store.description,
        durability=journal.durability,
        fencing_mode=journal.mode,
        epoch=journal.epoch,
        journal_seq=journal.position.seq,
        bucket_answer_age_s=now_s - health.last_success_s,
        bucket_failing_s=None if since_s is None else now_s - since_s,
        bucket_failure=health.failure,
        snapshot_seq=newest or None,
        snapshot_entries_since=journal.position.seq - newest,
        snapshot_failure=appliance.snapshots.failure,
        state_lag_entries=appliance.follower.lag_entries,
        state_failure=appliance.follower.failure,
        tidier_failure=appliance.tidier.failure,
        tidier_overdue_s=appliance.tidier.overdue_s,
        background_failures=tuple(
            f"{task.name}: {task.failure}" for task in appliance.supervisor.tasks if task.is_failing
        ),
        key_index_lag_records=sum(topic.lag for topic in keys.indexing.progress()),
        key_index_failure=keys.indexing.failure,
        damaged_reads=appliance.sections.damaged,
        pending_bytes=broker.pending.used,
        pending_bytes_max=broker.pending.limit,
        shares=broker.gauges.shares(),
        groups=broker.groups.count,
        standby=_standby(appliance),
    )


def _standby(appliance: Appliance) -> str:
    keeper = appliance.standby
    if keeper is None:
        return ""
    if keeper.journal.waits_for:
        return f"waits for {keeper.journal.waits_for}"
    if keeper.lag_entries:
        return f"{keeper.lag_entries:,} entries, {keeper.lag_s:.1f} s behind"
    age_s = keeper.seen_end_age_s
    return "reads" if age_s is None else f"up to date {age_s:.1f} s ago"


def setting_rows(appliance: Appliance) -> list[SettingRow]:
    """All that `seb serve` takes, with the value in force. Secrets are only said to be there."""
    settings = appliance.settings
    rows = []
    for setting in SETTINGS:
        if setting.client or setting.variable_only:
            continue
        value = getattr(settings, setting.attribute)
        if setting.name == "linger":
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


def cost_figures(appliance: Appliance) -> list[Figure]:
    """What the bucket costs this month, and will have cost at its end."""
    found = appliance.cost.report()
    so_far = Money(found.so_far.total, found.prices.currency)
    note = f"forecast {words(Money(found.forecast.total, found.prices.currency))}"
    if found.budget is not None:
        note += f" of {words(found.budget)}"
    return [Figure("Cost this month", words(so_far), note)]


def bill_rows(appliance: Appliance) -> list[BillRow]:
    """The same, line by line, with what it comes to."""
    found = appliance.cost.report()
    currency = found.prices.currency
    rows = [
        BillRow(
            now.what,
            f"{now.quantity:,.{0 if now.unit == 'requests' else 3}f} {now.unit}",
            words(Money(now.amount, currency)),
            words(Money(then.amount, currency)),
        )
        for now, then in zip(found.so_far.lines, found.forecast.lines, strict=True)
    ]
    so_far, forecast = found.so_far.total, found.forecast.total
    total = BillRow("all", "", words(Money(so_far, currency)), words(Money(forecast, currency)))
    return [*rows, total]


def cost_of_change(
    appliance: Appliance, topic: str, changes: Mapping[str, int | bool | str | None]
) -> dict[str, str]:
    """What changes of a topic's settings cost or save, in words, by setting."""
    now_us = appliance.clock.wall_us()
    found = effects_of(appliance.broker, appliance.cost, topic, changes, now_us)
    return {effect.setting: effect.words for effect in found}


def storage(appliance: Appliance) -> StorageFacts:
    journal, tidying, tidier = appliance.journal, appliance.broker.tidying, appliance.tidier
    sections, snapshots, done = appliance.sections, appliance.snapshots, tidier.counters
    objects = tidying.object_sizes
    newest = snapshots.newest_seq
    return StorageFacts(
        journal_seq=journal.position.seq,
        epoch=journal.epoch,
        bucket=appliance.store.description,
        fencing_mode=journal.mode,
        durability=journal.durability,
        tidied_seq=tidying.tidied_seq,
        waiting_entries=tidying.waiting_entries,
        waiting_bytes=tidying.waiting_bytes,
        objects=len(objects),
        object_bytes=sum(length for length, _ in objects),
        living_bytes=sum(living for _, living in objects),
        garbage=tidying.garbage,
        snapshot_seq=newest or None,
        snapshot_entries_since=journal.position.seq - newest,
        snapshots=snapshots.published,
        snapshot_failure=snapshots.failure,
        doing=tidier.doing,
        tidier_failure=tidier.failure,
        jobs=done.jobs,
        tidier_read_bytes=done.bytes_read,
        tidier_written_bytes=done.bytes_written,
        entries_removed=done.entries_removed,
        objects_removed=done.objects_removed,
        topics_trimmed=done.topics_trimmed,
        cache_bytes=sections.cached_bytes if sections.has_cache else None,
        cache_limit_bytes=appliance.settings.cache_bytes,
        sections_from_memory=sections.from_memory,
        sections_from_disk=sections.from_disk,
        sections_from_bucket=sections.from_bucket,
        damaged_reads=sections.damaged,
        requests=_requests(appliance),
    )


def _requests(appliance: Appliance) -> tuple[RequestRow, ...]:
    ours = [
        RequestRow(
            row.kind,
            row.outcome,
            row.purpose,
            row.requests,
            row.seconds,
            row.bytes_sent,
            row.bytes_received,
        )
        for row in appliance.store.counts.rows
    ]
    childs = [
        RequestRow(kind, "", "tidier", requests, None, None, None)
        for kind, requests in appliance.tidier.asked.requests.items()
    ]
    return tuple(sorted(ours + childs, key=lambda row: (row.by, row.kind, row.outcome)))
