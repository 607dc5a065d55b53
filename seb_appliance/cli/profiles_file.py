"""Profiles: named appliances, each with its url and where its API key comes from.

They are in one TOML file of the user, which may hold API keys: it is written with mode 0600, and
refused if it holds a key and others may read it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from seb_appliance.addresses import parse_url
from seb_appliance.errors import ConfigurationError
from seb_appliance.setting_sources import profiles_file

FILE_BYTES_MAX: Final = 1 << 20
KEY_BYTES_MAX: Final = 4096
COMMAND_S: Final = 60.0  # a person may have to unlock something
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEYS: Final = ("key", "key_file", "key_command")


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most one of the keys is given. `key_command` is run without a shell."""

    url: str
    key: str | None = None
    key_file: str | None = None
    key_command: str | None = None

    def __repr__(self) -> str:  # without the API key
        return f"Profile({self.url!r})"

    @property
    def key_from(self) -> str:
        """For people; no secret."""
        if self.key_file is not None:
            return self.key_file
        if self.key_command is not None:
            return f"command: {self.key_command}"
        return "this file" if self.key is not None else "-"

    def api_key(self, *, ours: bool = True) -> str:
        """Raises ConfigurationError, which never shows a key."""
        if self.key_file is not None:
            return read_key(Path(self.key_file).expanduser(), ours=ours)
        if self.key_command is not None:
            return _output_of(self.key_command, ours=ours)
        if self.key is None:
            raise ConfigurationError("the profile names no API key")
        return checked_key(self.key.encode(), "the profile's key", ours=ours)


class Profiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`default`: the profile that is used if no other is named."""

    default: str | None = None
    profiles: dict[str, Profile] = {}

    def named(self, name: str) -> Profile:
        """Raises ConfigurationError."""
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise ConfigurationError(
                f"there is no profile {name!r} in {profiles_file()}, only: {known}"
            )
        return self.profiles[name]

    def check(self) -> Profiles:
        """Raises ConfigurationError."""
        for name, profile in self.profiles.items():
            if not _NAME.fullmatch(name):
                raise ConfigurationError(
                    f"the name of a profile is letters, digits, _ and -, not {name!r}"
                )
            parse_url(profile.url)
            if sum(getattr(profile, key) is not None for key in _KEYS) > 1:
                raise ConfigurationError(f"profile {name} has more than one of {', '.join(_KEYS)}")
        return self


def parse_profiles(data: bytes, source: str) -> Profiles:
    """Raises ConfigurationError."""
    try:
        return msgspec.convert(tomllib.loads(data.decode()), Profiles).check()
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{source} is not a file of profiles: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{source} is not a TOML file: {error}") from error


def load() -> Profiles:
    """No profiles if the file does not exist. Raises ConfigurationError."""
    path = profiles_file()
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            found = parse_profiles(file.read(FILE_BYTES_MAX), str(path))
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path} ({error.strerror})") from error
    if mode & 0o077 and any(profile.key is not None for profile in found.profiles.values()):
        raise ConfigurationError(
            f"{path} holds an API key and others may read it (mode {mode:04o}): chmod 600 {path}"
        )
    return found


def save(profiles: Profiles) -> None:
    """Atomically, with mode 0600. Comments in the file are lost. Raises ConfigurationError."""
    path = profiles_file()
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    lines = [] if profiles.default is None else [f"default = {_text(profiles.default)}", ""]
    for name, profile in sorted(profiles.profiles.items()):
        lines.append(f"[profiles.{name}]")
        members = msgspec.structs.asdict(profile).items()
        lines += [f"{member} = {_text(given)}" for member, given in members if given is not None]
        lines.append("")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        draft.write_text("\n".join(lines), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigurationError(f"cannot write {path} ({error.strerror})") from error


def _text(text: str) -> str:
    """A basic string of TOML: that of JSON, with one more character escaped."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def read_key(path: Path, *, ours: bool = True) -> str:
    """The API key in a file. Raises ConfigurationError, which never shows a key."""
    try:
        with path.open("rb") as file:
            content = file.read(KEY_BYTES_MAX)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the API key from {path} ({error.strerror})"
        ) from error
    return checked_key(content, str(path), ours=ours)


def checked_key(content: bytes, source: str, *, ours: bool = True) -> str:
    """Raises ConfigurationError. `ours` False: a key of another broker, in any format."""
    text = content.decode("ascii", "replace").strip()
    is_ours = text.startswith("seb_") or not ours
    if not text or not is_ours or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigurationError(f"{source} does not hold an API key (seb_…) and nothing else")
    return text


def _output_of(command: str, *, ours: bool) -> str:
    """The output of a command. Its stderr, and its questions, go to the terminal."""
    try:
        told = subprocess.run(  # noqa: S603 - the user's own
            shlex.split(command), stdout=subprocess.PIPE, timeout=COMMAND_S, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"no API key from the profile's key_command: {why}") from error
    return checked_key(told.stdout[:KEY_BYTES_MAX], f"what {command!r} says", ours=ours)
