"""Numbers and times as people read them, each with its unit. Filters of the templates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

_NOTHING: Final = "-"
_SECOND_US: Final = 1_000_000


def count(number: float | None) -> str:
    """With thousands marked; a fraction only below ten."""
    if number is None:
        return _NOTHING
    return f"{number:,.1f}" if number != int(number) and abs(number) < 10 else f"{number:,.0f}"


def size(count_bytes: float | None) -> str:
    """About so many bytes."""
    if count_bytes is None:
        return _NOTHING
    amount = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def rate(per_second: float | None) -> str:
    return _NOTHING if per_second is None else f"{count(per_second)}/s"


def size_rate(per_second: float | None) -> str:
    return _NOTHING if per_second is None else f"{size(per_second)}/s"


def span(seconds: float | None) -> str:
    """About how long: 38 ms, 1.2 s, 5 min, 3 h, 12 d."""
    if seconds is None:
        return _NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def share(part: float | None) -> str:
    return _NOTHING if part is None else f"{part * 100:.1f} %"


def money(amount: float | None, currency: str = "$") -> str:
    """Two digits, or as many as the first that is not 0 needs."""
    if amount is None:
        return _NOTHING
    digits = 2 if amount == 0 or abs(amount) >= 0.01 else 5
    return f"{amount:,.{digits}f} {currency}"


def moment(at_us: int) -> str:
    """UTC, to the second."""
    return _utc(at_us).strftime("%Y-%m-%d %H:%M:%SZ")


def time_tag(at_us: int | None) -> Markup | str:
    """`<time>` with the time to the second, the whole of it as its title."""
    if at_us is None:
        return _NOTHING
    exact = _exact(at_us)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, moment(at_us))


def ago(at_us: int | None, now_us: int) -> Markup | str:
    """`<time>` that says how long ago, the whole time as its title."""
    if at_us is None:
        return _NOTHING
    exact = _exact(at_us)
    seconds = (now_us - at_us) / _SECOND_US
    words = f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, words)


def _utc(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us // _SECOND_US, UTC)


def _exact(at_us: int) -> str:
    return _utc(at_us).strftime("%Y-%m-%dT%H:%M:%S") + f".{at_us % _SECOND_US:06}Z"


FILTERS: Final = {
    "count": count,
    "size": size,
    "rate": rate,
    "size_rate": size_rate,
    "span": span,
    "share": share,
    "money": money,
    "moment": moment,
    "time_tag": time_tag,
    "ago": ago,
}
