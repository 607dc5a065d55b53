"""Whether a request is sent again, and when: decided here for every part of the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from seb_appliance.client.failures import ApplianceError

PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 5.0


class Retrying:
    """The attempts at one request, which began at `now_s`.

    `is_known_again`: doing it twice is doing it once (a read, an idempotent producer's request), so
    it is sent again also when it may have been done. `random`: 0 to 1, so that many clients do not
    come back at once.
    """

    def __init__(
        self, now_s: float, patience_s: float, random: Callable[[], float], *, is_known_again: bool
    ) -> None:
        self._give_up_s = now_s + patience_s
        self._random = random
        self._is_known_again = is_known_again
        self._pause_s = PAUSE_S_MIN
        self.in_doubt = False

    def pause_s(self, error: ApplianceError, now_s: float) -> float | None:
        """How long to wait before the next attempt; None: give up, with `last_word` of it."""
        self.in_doubt = self.in_doubt or error.side_effects == "unknown"
        if not error.retryable or not (error.harmless or self._is_known_again):
            return None
        pause_s = max(self._pause_s * (0.5 + self._random() / 2), error.retry_after_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return pause_s if now_s + pause_s <= self._give_up_s else None

    def last_word(self, error: ApplianceError) -> ApplianceError:
        """What is raised: no refusal can say that an attempt before it, without an answer, did
        nothing."""
        if self.in_doubt and error.side_effects == "none":
            return error.in_doubt()
        return error
