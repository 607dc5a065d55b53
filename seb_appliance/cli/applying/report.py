"""What `seb apply` tells: a line for each change, or one JSON document at the end."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from seb_appliance.cli.applying.desired import Word, Words
from seb_appliance.cli.applying.plan import Change, Plan
from seb_appliance.cli.output import printable, say, say_json, tell
from seb_appliance.cli.remote import CommandError, ReaderLeftError
from seb_appliance.errors import ConfigurationError

_SIGNS: Final = {"create": "+", "change": "~", "delete": "-"}
_KINDS: Final = {"topic": "topic", "group": "group", "api_key": "API key"}


class Report:
    """Of one plan. When the reader of our output leaves, changes go on: half of them would be
    worse."""

    def __init__(self, planned: Plan, *, as_json: bool) -> None:
        self._planned = planned
        self._as_json = as_json
        self._applied: list[Change] = []
        self._secrets: list[dict[str, str]] = []
        self._shown = 0
        self._reader_left = False

    def applied(self, change: Change) -> None:
        self._applied.append(change)
        if not self._as_json:
            self._say(line(change))
            self._show_secrets()

    def secret(self, made: dict[str, str]) -> None:
        """`name`, `api_key_id` and `secret` of an API key that was made."""
        self._secrets.append(made)

    def end(self, *, only_planned: bool = False) -> None:
        """Tell what is left to tell. Raises ReaderLeftError."""
        if self._as_json:
            say_json(self._document())
        elif only_planned:
            for change in self._planned.changes:
                self._say(line(change))
        else:
            self._show_secrets()
        for change in self._planned.extra:
            tell(f"{named(change)} is not in the file; it stays")
        if self._secrets:
            tell("A secret is shown this once and stored nowhere.")
        if self._reader_left:
            raise ReaderLeftError

    def _show_secrets(self) -> None:
        """Those that were not shown yet."""
        for made in self._secrets[self._shown :]:
            self._shown += 1
            self._say(f"  the secret of {printable(made['name'])}: {made['secret']}")

    def _say(self, text: str) -> None:
        try:
            say(text)
        except BrokenPipeError:
            self._reader_left = True

    def _document(self) -> dict[str, Any]:
        return {
            "changes": [
                {**change.members(), "applied": change in self._applied}
                for change in self._planned.changes
            ],
            "not_in_the_file": [change.members() for change in self._planned.extra],
            "secrets": self._secrets,
        }


def line(change: Change) -> str:
    """`~ topic orders.eu  linger 10ms -> 20ms, retention unset -> 7d`."""
    words = ""
    if change.action == "create":
        words = ", ".join(f"{name} {_word(change.after, name)}" for name in change.after)
    elif change.action == "change":
        words = ", ".join(
            f"{name} {_word(change.before, name)} -> {_word(change.after, name)}"
            for name in {**change.before, **change.after}
        )
    return f"{_SIGNS[change.action]} {named(change)}  {printable(words)}".rstrip()


def named(change: Change) -> str:
    """`topic orders.eu`, `API key checkout (abcdefgh)`."""
    which = f" ({change.api_key_id})" if change.api_key_id else ""
    return f"{_KINDS[change.kind]} {printable(change.name)}{which}"


def _word(words: Words, name: str) -> str:
    word: Word | None = words.get(name)
    if word is None:
        return "unset"
    if isinstance(word, bool):
        return "on" if word else "off"
    return " and ".join(word) if isinstance(word, list) else str(word)


# Where the secrets of new API keys go: their making is the only moment in which they are seen.


# Neither through a link that somebody laid there, nor into a pipe that waits for a reader.
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
_MODE: Final = 0o600
_SHOWN: Final = ("name", "api_key_id", "secret")


class Secrets:
    """They go to the report, or into the file at `path`, one JSON object a line (`name`,
    `api_key_id`, `secret`) after what is in it. It is opened before any API key is made, so that no
    secret is without a place."""

    def __init__(self, path: Path | None, report: Report) -> None:
        """Raises ConfigurationError: it cannot be written, or others could read it."""
        self._path = path
        self._report = report
        self._file = None if path is None else _opened(path)

    def add(self, made: dict[str, Any]) -> None:
        """`made`: the answer that shows the secret. In a file it is on the disk afterwards. Raises
        CommandError."""
        shown = {name: made[name] for name in _SHOWN}
        if self._file is None:
            self._report.secret(shown)
            return
        line = json.dumps(shown).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError as error:
            key = made["api_key_id"]
            raise CommandError(
                f"the API key {key} is made, but its secret could not be written to {self._path} "
                f"({error.strerror}): seb api-keys rotate {key} gives it another"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)


def _opened(path: Path) -> int:
    try:
        descriptor = os.open(path, _FLAGS, _MODE)
    except OSError as error:
        raise ConfigurationError(f"cannot write to {path} ({error.strerror})") from error
    found = os.fstat(descriptor)
    is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(descriptor)
        raise ConfigurationError(
            f"{path} is not a file of yours that only you may read (chmod 600 {path})"
        )
    return descriptor
