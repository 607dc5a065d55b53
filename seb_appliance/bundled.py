"""The folders beside the package in a checkout: migrations/, templates/, examples/."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def bundled(name: str) -> Path:
    """The folder `name`: inside the package in a wheel, beside it in a checkout.

    An editable install copies bundled folders once and then leaves them to age, elsewhere: there
    `_PACKAGE` is the checkout, which has no `_bundled`, so the living folder is found.
    """
    packed = _PACKAGE / "_bundled" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name
