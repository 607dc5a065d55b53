"""Why a command that talks to an appliance came to nothing: a sentence and an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

REFUSED: Final = 1
DIFFERS: Final = 2  # seb apply --diff: there is something to do
WRONG: Final = 65  # what was read is not what was written
UNAVAILABLE: Final = 69  # nothing happened; the same command may work later
UNKNOWN: Final = 71  # whether anything happened is not known
NOT_WRITTEN: Final = 74  # our output has no room


class CommandError(Exception):
    """`sentence` goes to the terminal."""

    def __init__(self, sentence: str, exit_code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.exit_code = exit_code


class AnswerError(CommandError):
    """The appliance refused, or did not answer. `status` is 0 when it did not. `problem`: the
    members of the problem document."""

    def __init__(
        self,
        sentence: str,
        exit_code: int,
        *,
        status: int = 0,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(sentence, exit_code)
        self.status = status
        self.problem = problem or {}


class OutputError(CommandError):
    """Stdout takes no more. `written`: so many bytes of what was to be written were taken."""

    def __init__(self, why: str, written: int) -> None:
        super().__init__(f"cannot write to stdout ({why})", NOT_WRITTEN)
        self.why = why
        self.written = written


class ReaderLeftError(Exception):
    """Nobody reads our output any more (`seb consume … | head`): nothing is left to say."""
