"""Templates: everything is escaped, and a name that is missing is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from seb_appliance import __version__
from seb_appliance.ui.units import FILTERS

# The pages in the order of the navigation: title, path.
NAVIGATION: Final = (
    ("Overview", "/ui"),
    ("Topics", "/ui/topics"),
    ("Groups", "/ui/groups"),
    ("API keys", "/ui/api-keys"),
    ("Storage", "/ui/storage"),
    ("Users", "/ui/users"),
    ("Settings", "/ui/settings"),
    ("Audit", "/ui/audit"),
)


class Renderer:
    """`form_id` makes an id for a form; see once.py."""

    def __init__(
        self, templates: Path, asset: Callable[[str], str], form_id: Callable[[], str]
    ) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(templates),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(FILTERS)
        self._environment.globals.update(
            asset=asset, form_id=form_id, navigation=NAVIGATION, version=__version__
        )

    def render(self, template: str, **members: Any) -> str:
        return self._environment.get_template(template).render(**members)
