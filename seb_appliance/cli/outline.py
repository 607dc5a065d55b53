"""Plain data as an indented outline, safe to print to a terminal."""

from __future__ import annotations

from typing import Any

from seb_appliance.cli.output import printable


def outline(value: dict[str, Any] | list[Any], indent: str = "") -> str:
    """One member a line, names aligned, nested ones below it; empty lists and maps are left out.

    Control characters come escaped: a record may hold a terminal's commands.
    """
    if isinstance(value, list):
        return "\n".join(_item(item, indent) for item in value)
    shown = {name: item for name, item in value.items() if item not in ([], {})}
    width = max((len(name) for name, item in shown.items() if not _is_nested(item)), default=0)
    return "\n".join(
        f"{indent}{name}\n{outline(item, indent + '  ')}"
        if _is_nested(item)
        else f"{indent}{name:<{width}}  {_plain(item)}"
        for name, item in shown.items()
    )


def _item(item: Any, indent: str) -> str:
    if not _is_nested(item):
        return f"{indent}- {_plain(item)}"
    return f"{indent}- {outline(item, indent + '  ').lstrip()}"


def _is_nested(value: object) -> bool:
    """Whether it needs lines of its own; a list of words does not."""
    if isinstance(value, list):
        return any(isinstance(item, dict | list) for item in value)
    return isinstance(value, dict)


def _plain(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return printable(str(value))
