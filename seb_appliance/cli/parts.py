"""The light base install has no server in it: say so instead of failing with an import error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from seb_appliance.start_errors import StartError


@contextmanager
def need_server() -> Iterator[None]:
    """Around imports of the server's parts. Raises StartError that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("seb_appliance"):
            raise
        raise StartError(
            f"this needs the server's parts ({error.name} is not installed): "
            "pip install 'seb-appliance[server]'"
        ) from error
