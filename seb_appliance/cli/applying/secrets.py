"""Where the secrets of new API keys go: their making is the only moment in which they are seen."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from seb_appliance.cli.applying.report import Report
from seb_appliance.cli.failures import CommandError
from seb_appliance.start_errors import ConfigurationError

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
