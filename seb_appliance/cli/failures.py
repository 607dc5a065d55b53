"""Why a command that talks to an appliance came to nothing: a sentence and an exit code."""

from __future__ import annotations

from typing import Any, Final

REFUSED: Final = 1
DIFFERS: Final = 2  # seb apply --diff: there is something to do
WRONG: Final = 65  # what was read is not what was written
UNAVAILABLE: Final = 69  # nothing happened; the same command may work later
UNKNOWN: Final = 71  # whether anything happened is not known


class CommandError(Exception):
    """`sentence` goes to the terminal."""

    def __init__(self, sentence: str, exit_code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.exit_code = exit_code


class AnswerError(CommandError):
    """The appliance refused, or did not answer. `status` is 0 when it did not.

    `harmless`: nothing has happened, and the same request may succeed later, after
    `retry_after_s` seconds. `problem`: the members of the problem document.
    """

    def __init__(
        self,
        sentence: str,
        exit_code: int,
        *,
        status: int = 0,
        harmless: bool = False,
        retry_after_s: float = 1.0,
        problem: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(sentence, exit_code)
        self.status = status
        self.harmless = harmless
        self.retry_after_s = retry_after_s
        self.problem = problem or {}


class ReaderLeftError(Exception):
    """Nobody reads our output any more (`seb consume … | head`): nothing is left to say."""
