"""What the admin page shows of one appliance, gathered from its rooms when somebody looks."""

from __future__ import annotations

from collections.abc import Mapping

from seb_appliance.ops.cost.budget import words
from seb_appliance.ops.cost.prices import Money
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.ops.serve.setting_effects import effects_of
from seb_appliance.settings import SETTINGS
from seb_appliance.ui.options import BillRow, Figure, SettingRow


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
