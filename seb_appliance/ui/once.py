"""A form that is sent twice, by a second click or by going back, is done once.

Each form carries an id of its own. Who sends the same form with the same content again gets the
first answer, also when that is still on its way; after `limits.FORM_ANSWER_S` only the news that it
was sent. In memory, with the session: a restart logs everybody out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.clock import Clock
from seb_appliance.errors import RefusedError, SebError
from seb_appliance.ui.answers import Sent


class SentBeforeError(RefusedError):
    """The form was sent, and its answer is not kept any more."""

    code = "conflict"
    status = 409
    title = "This was sent already"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a form was answered, and the sentence that the page after it shows."""

    sent: ASGIApp
    notice: str


@dataclass(slots=True)
class _Sending:
    task: asyncio.Task[Answer] | None  # None: its answer is forgotten
    until_s: float


class SentForms:
    """Of one session: its newest `limits.FORM_ANSWERS_KEPT`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._forms: dict[bytes, _Sending] = {}  # by what was sent, oldest first

    async def once(self, key: bytes, work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """What `work` answers, or answered when it was first called for `key`. It is called again
        if it changed nothing: it showed the form again, or was refused. Raises SentBeforeError and
        what `work` raises."""
        self.forget()
        known = self._forms.get(key)
        if known is None:
            known = _Sending(None, self._clock.monotonic_s() + limits.FORM_ANSWER_S)
            # A task: whoever clicks twice breaks off the first request.
            known.task = asyncio.create_task(self._done(key, work), name="form")
            while len(self._forms) >= limits.FORM_ANSWERS_KEPT:
                del self._forms[next(iter(self._forms))]
            self._forms[key] = known
        if known.task is None:
            raise SentBeforeError(
                "This very form was sent before, and what it asks for was done then. Open the form "
                "anew to do it once more."
            )
        return await asyncio.shield(known.task)

    async def _done(self, key: bytes, work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        changed = True
        try:
            answer = await work()
            changed = isinstance(answer.sent, Sent) and answer.sent.status in (201, 303)
        except SebError as error:
            changed = error.side_effects != "none"
            raise
        finally:
            if not changed:
                self._forms.pop(key, None)
        return answer

    def forget(self) -> None:
        """Answers that are older than `limits.FORM_ANSWER_S`."""
        now_s = self._clock.monotonic_s()
        for known in self._forms.values():
            if known.until_s <= now_s and known.task is not None and known.task.done():
                known.task = None
