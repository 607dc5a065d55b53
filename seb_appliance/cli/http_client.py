"""Requests of commands: the Python client's (seb_appliance/client), waited for. What comes to
nothing becomes one sentence and an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import random as random_numbers
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from seb_appliance import __version__
from seb_appliance.cli.remote import REFUSED, UNAVAILABLE, UNKNOWN, AnswerError, CommandError
from seb_appliance.cli.wording import in_our_words
from seb_appliance.client.blocking import LoopThread
from seb_appliance.client.calling import Caller
from seb_appliance.client.exchange import Answer, Endpoint
from seb_appliance.client.failures import ApplianceError
from seb_appliance.client.records import UnreadableAnswerError
from seb_appliance.clock import Clock, SystemClock

T = TypeVar("T")

PATIENCE_S: Final = 60.0
CONNECTIONS: Final = 2  # a commit never waits for a read


class HttpClient:
    """`url` is where the appliance's paths begin; `token` the API key. For one thread."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        clock: Clock | None = None,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        """Raises ConfigurationError."""
        self.caller = Caller(
            Endpoint(url, token, "seb"),
            clock or SystemClock(),
            random,
            connections=CONNECTIONS,
            patience_s=PATIENCE_S,
            waits_for_first=False,
        )
        self._thread = LoopThread()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        json_body: object = None,
    ) -> Answer:
        """A success, of one request that is sent once. Raises AnswerError."""
        body = None if json_body is None else msgspec.json.encode(json_body)
        request = self.caller.endpoint.request(method, path, query, body=body)
        return self.wait_for(self.caller.once(request), is_read=request.is_read)

    def wait_for(self, work: Coroutine[Any, Any, T], *, is_read: bool) -> T:
        """What `work` comes to. `is_read`: it changes nothing. Raises AnswerError."""
        with self._told(is_read=is_read):
            return self._thread.wait_for(work)

    def ahead(self, pages: AsyncIterator[T]) -> Iterator[T]:
        """What is read, one by one; the next is on its way while one is dealt with. Raises
        AnswerError."""

        async def one() -> T | None:
            return await anext(pages, None)

        coming = self._thread.begin(one())
        try:
            while True:
                with self._told(is_read=True):
                    page = coming.result()
                if page is None:
                    return
                coming = self._thread.begin(one())
                yield page
        finally:
            coming.cancel()

    def close(self) -> None:
        async def closed() -> None:
            self.caller.close()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await asyncio.get_running_loop().shutdown_asyncgens()

        if self._thread.is_alive:
            self._thread.wait_for(closed())
            self._thread.stop()

    def stranger(self, error: Exception) -> CommandError | None:
        """What an answer that was not understood comes to, if the appliance is of another version;
        None: of this one, so that the error is ours."""
        if self.caller.version in ("", __version__):
            return None
        address = self.caller.endpoint.address
        return CommandError(
            f"the answer of {address} was not understood ({type(error).__name__}: {error})."
            f"{self._versions()}"
        )

    @contextlib.contextmanager
    def _told(self, *, is_read: bool) -> Iterator[None]:
        try:
            yield
        except ApplianceError as error:
            raise answer_error(error, is_read=is_read, remark=self._versions()) from error
        except UnreadableAnswerError as error:
            raise CommandError(f"{error}.{self._versions()}") from error

    def _versions(self) -> str:
        """For an appliance of another major version, which may not mean what we do."""
        theirs = self.caller.version
        if theirs.partition(".")[0] in ("", __version__.partition(".")[0]):
            return ""
        return f" It is version {theirs[:40]}, this is {__version__}."


def answer_error(error: ApplianceError, *, is_read: bool, remark: str = "") -> AnswerError:
    """As a sentence with an exit code. A read changes nothing, whatever became of it."""
    in_doubt = error.side_effects == "unknown" and not is_read
    detail = in_our_words(error.detail).rstrip(".")
    if error.code == "unreachable":
        detail = f"{detail[0].lower()}{detail[1:]}"
        sentence = f"{detail}. Is it running? --url, SEB_URL or a profile says where it is."
    elif error.code == "no_answer":
        sentence = f"{detail}."
    elif error.code == "foreign_answer":
        sentence = f"{detail}. Is the url right?"
    else:
        sentence = f"{detail} ({error.code})."
    if in_doubt:
        sentence += " It may have been done or not."
    return AnswerError(
        sentence + remark,
        UNKNOWN if in_doubt else UNAVAILABLE if error.retryable else REFUSED,
        status=error.status,
        problem=error.problem,
    )
