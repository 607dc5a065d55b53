"""Making the changes of a plan, one after the other, and the report of it. Run again, the command
finds what is left to do."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from seb_appliance.cli.apply_plan import Change, Json, Plan, Wanted, Word, Words
from seb_appliance.cli.errors import (
    REFUSED,
    UNAVAILABLE,
    UNKNOWN,
    CommandError,
    ReaderLeftError,
    in_our_words,
)
from seb_appliance.cli.output import printable, say, say_json, tell
from seb_appliance.client import Admin, ApplianceError
from seb_appliance.errors import ConfigurationError, OffsetConflictError
from seb_appliance.formats.topic_settings import SETTINGS

_SIGNS: Final = {"create": "+", "change": "~", "delete": "-"}
_KINDS: Final = {"topic": "topic", "group": "group", "api_key": "API key"}


class Report:
    """A line for each change, or one JSON document at the end. Changes continue when the reader of
    our output leaves: half of them would be worse."""

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
        """`name`, `api_key_id` and `secret` of a new API key."""
        self._secrets.append(made)

    def end(self, *, only_planned: bool = False) -> None:
        """Print the rest. Raises ReaderLeftError."""
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
            tell("A secret is shown only once and stored nowhere.")
        if self._reader_left:
            raise ReaderLeftError

    def _show_secrets(self) -> None:
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


# Never through a symbolic link, nor into a pipe that waits for a reader.
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
_MODE: Final = 0o600
_SHOWN: Final = ("name", "api_key_id", "secret")


class Secrets:
    """Where the secrets of new API keys go: to the report, or appended to the file at `path`, one
    JSON object a line. The file is opened before any API key is made, so that no secret is lost."""

    def __init__(self, path: Path | None, report: Report) -> None:
        """Raises ConfigurationError if the file cannot be written, or others could read it."""
        self._path = path
        self._report = report
        self._file = None if path is None else _opened(path)

    def add(self, made: dict[str, Any]) -> None:
        """`made`: the answer with the secret. In a file it is synced. Raises CommandError."""
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


class Doing:
    """`made` is called with each new API key, the only time that its secret is seen."""

    def __init__(self, admin: Admin, wanted: Wanted, made: Callable[[Json], None]) -> None:
        self._admin = admin
        self._wanted = wanted
        self._made = made

    def do(self, change: Change) -> None:
        """Durable afterwards. Raises ApplianceError."""
        match change.kind:
            case "topic":
                self._topic(change)
            case "group":
                self._group(change)
            case "api_key":
                self._api_key(change)

    def _topic(self, change: Change) -> None:
        if change.action == "delete":
            self._admin.delete_topic(change.name)
            return
        assert self._wanted.topics is not None, change
        settings: Json = msgspec.to_builtins(self._wanted.topics[change.name])
        if change.action == "create":
            self._admin.create_topic(change.name, **settings)
        else:
            words = {**change.before, **change.after}
            names = [one.name for one in SETTINGS.values() if one.word in words]
            self._admin.change_topic(change.name, **{name: settings[name] for name in names})

    def _group(self, change: Change) -> None:
        if change.action == "delete":
            self._admin.delete_group(change.name)
            return
        for topic, start in change.after.items():
            there = self._admin.topic(topic)
            offset = there["log_start_offset" if start == "earliest" else "log_end_offset"]
            try:
                self._admin.commit(change.name, {topic: offset}, expected={topic: None})
            except ApplianceError as error:
                # The group has committed since we looked: its own offset stays.
                if error.code != OffsetConflictError.code:
                    raise

    def _api_key(self, change: Change) -> None:
        if change.action == "delete":
            assert change.api_key_id is not None, change
            self._admin.revoke_api_key(change.api_key_id)
            return
        assert self._wanted.api_keys is not None, change
        members = self._wanted.api_keys[change.name].members()
        if change.api_key_id is None:
            grants = members.pop("grants")
            self._made(self._admin.create_api_key(change.name, grants, **members))
        else:
            self._admin.change_api_key(change.api_key_id, **members)


def carry_out(planned: Plan, doing: Doing, report: Report) -> None:
    """Stops at the first change that fails. Raises CommandError that says how far it came."""
    done = 0
    try:
        for change in planned.changes:
            doing.do(change)
            report.applied(change)
            done += 1
    except ApplianceError as error:
        code = UNKNOWN if error.side_effects == "unknown" else _code(error)
        raise CommandError(f"{error} {_how_far(planned, done, code)}", code) from error
    except CommandError as error:
        raise CommandError(f"{error}. {_how_far(planned, done)}", error.exit_code) from error
    except KeyboardInterrupt:
        tell(_how_far(planned, done, UNKNOWN))
        raise
    finally:
        report.end()


def _how_far(planned: Plan, done: int, code: int = REFUSED) -> str:
    """What an operator has to know when it stops at change number `done`, from 0."""
    at = planned.changes[done]
    went = "was made or not" if code == UNKNOWN else "was not made"
    text = f"Changes made: {done} of {len(planned.changes)}; {at.action} {named(at)} {went}. "
    if at.kind == "api_key" and at.action == "create" and code == UNKNOWN:
        text += "If it is there, its secret is lost: seb api-keys rotate gives it another. "
    return text + "The same command goes on from here."


@contextlib.contextmanager
def nothing_changed() -> Iterator[None]:
    """Turns an ApplianceError into a CommandError that says that nothing was changed."""
    try:
        yield
    except ApplianceError as error:
        raise CommandError(
            f"{in_our_words(str(error))} Nothing was changed.", _code(error)
        ) from error


def _code(error: ApplianceError) -> int:
    return UNAVAILABLE if error.retryable else REFUSED
