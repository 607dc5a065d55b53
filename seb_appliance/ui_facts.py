"""What the admin page shows of one appliance, gathered from its rooms when somebody looks."""

from __future__ import annotations

from collections.abc import Mapping

from seb_appliance import __version__
from seb_appliance.assembly import Appliance
from seb_appliance.setting_effects import effects_of
from seb_appliance.setting_table import SETTINGS
from seb_appliance.ui.facts import Facts, Figure, SettingRow


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
        key_index_lag_records=sum(topic.lag for topic in keys.indexing.progress()),
        key_index_failure=keys.indexing.failure,
        damaged_reads=appliance.sections.damaged,
        pending_bytes=broker.pending.used_bytes,
        pending_bytes_max=broker.pending.limit_bytes,
        groups=broker.groups.count,
    )


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
    currency = found.prices.currency
    budget = "" if found.budget is None else f"of {found.budget.amount:,.2f} {currency}"
    return [
        Figure(
            "Cost this month",
            f"{found.so_far.total:,.2f} {currency}",
            f"forecast {found.forecast.total:,.2f} {currency} {budget}".rstrip(),
        )
    ]


def cost_of_change(
    appliance: Appliance, topic: str, changes: Mapping[str, int | bool | str | None]
) -> dict[str, str]:
    """What changes of a topic's settings cost or save, in words, by setting."""
    now_us = appliance.clock.wall_us()
    found = effects_of(appliance.broker, appliance.cost, topic, changes, now_us)
    return {effect.setting: effect.words for effect in found}
