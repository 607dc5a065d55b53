"""Sentences of the appliance, which speak of HTTP, in the words of the command that asked."""

from __future__ import annotations

import re
from typing import Final

import click

# What the API calls otherwise than our commands call it: a member or query parameter → the
# parameter of a command. Those of the same name need no entry.
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
_BEGINNING: Final = re.compile(r"(\w+)(=|: | is )")  # `offset='x' is …`, `overlap is at most …`
_PLACE: Final = re.compile(r" [-(]?(?:at|- at) `?\$\.?([\w.\[\]]*)`?\)?(?=\.?$)")
_OF_URLS: Final = re.compile(r" \(in a URL [^)]*\)")


def in_our_words(sentence: str) -> str:
    """The sentence with our flags and commands for the routes, members and parameters in it."""
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
    for one in (name, _NAMES.get(name, ""), name.removesuffix("_ms")):
        if one in words:
            return words[one]
    return None


def _shown(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return parameter.opts[0]
    return parameter.metavar or str(parameter.name).upper()
