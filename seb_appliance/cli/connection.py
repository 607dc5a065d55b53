"""The connection of a command to an appliance: its url, its API key, and its requests."""

from __future__ import annotations

import asyncio
import contextlib
import random as random_numbers
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, Self, TypeVar

import msgspec

from seb_appliance import __version__
from seb_appliance.addresses import is_loopback, parse_url, path_of
from seb_appliance.cli.errors import (
    REFUSED,
    UNAVAILABLE,
    UNKNOWN,
    AnswerError,
    CommandError,
    in_our_words,
)
from seb_appliance.cli.output import tell
from seb_appliance.cli.profiles_file import Profile, load, read_key
from seb_appliance.client.blocking import LoopThread
from seb_appliance.client.failures import ApplianceError
from seb_appliance.client.records import UnreadableAnswerError
from seb_appliance.client.transport import Answer, Caller, Endpoint
from seb_appliance.clock import Clock, SystemClock
from seb_appliance.errors import ConfigurationError
from seb_appliance.settings import Settings

T = TypeVar("T")

ADMIN_KEY_FILE: Final = "admin.key"  # seb serve puts it there
PATIENCE_S: Final = 60.0
CONNECTIONS: Final = 2  # a commit never waits for a read


def url_and_key(
    settings: Settings, *, ours: bool = True, runs_commands: bool = True
) -> tuple[str, str]:
    """The url of the appliance and an API key for it. `ours` False: a key of another broker, in any
    format. `runs_commands` False: run no `key_command`.

    A flag wins over a variable, a variable over a named profile, and that over the settings file;
    the default profile is used if none of them says anything. The API key of a profile is sent to
    its own url only. Raises ConfigurationError.
    """
    profile, rank = _profile(settings)
    if profile is None:
        return settings.url, _key(settings, ours=ours)
    url = settings.url if _rank(settings, "url") >= rank else profile.url
    if _rank(settings, "key_file") >= rank:
        return url, _key(settings, ours=ours)
    if url != profile.url:
        raise ConfigurationError(
            f"the API key of the profile is not for {url}: name a file that holds one with "
            "--key-file or SEB_KEY_FILE"
        )
    if profile.key_command is not None and not runs_commands:
        raise ConfigurationError("no API key without running a command")
    return url, profile.api_key(ours=ours)


def _profile(settings: Settings) -> tuple[Profile | None, int]:
    """The profile in use, and its rank. Raises ConfigurationError."""
    if settings.profile is not None:
        return load().named(settings.profile), max(1, _rank(settings, "profile"))
    if _rank(settings, "url") or _rank(settings, "key_file"):
        return None, 0
    found = load()
    return (None, 0) if found.default is None else (found.named(found.default), 1)


def _rank(settings: Settings, name: str) -> int:
    """The rank of where a setting was given: 3 flag, 2 variable, 1 file, 0 nowhere."""
    source = settings.sources[name]
    if source == "default":
        return 0
    return 3 if source.startswith("--") else 2 if source.startswith("SEB_") else 1


def _key(settings: Settings, *, ours: bool) -> str:
    """The API key in `key_file`, or this machine's admin key. Raises ConfigurationError."""
    path = settings.key_file
    if path is None:
        # This machine's admin key is never sent to another machine.
        if not is_loopback(parse_url(settings.url).hostname or ""):
            raise ConfigurationError(
                f"no API key for {settings.url}: name a file that holds one with --key-file or "
                "SEB_KEY_FILE, or a profile with --profile"
            )
        path = settings.data / ADMIN_KEY_FILE
        if not path.exists():
            raise ConfigurationError(
                f"no API key: {path} does not exist. Was an appliance started in this directory? "
                "Otherwise name a file that holds a key with --key-file or SEB_KEY_FILE, or a "
                "profile with --profile"
            )
    return read_key(path, ours=ours)


class HttpClient:
    """The Python client, waited for by one thread; a failure is a sentence and an exit code."""

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
            on_wait=tell_wait,
        )
        self._thread = LoopThread()

    def request(
        self,
        method: str,
        *path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
    ) -> Answer:
        """The answer to a request to `/v1/…`, which is sent once. Raises AnswerError."""
        content = None if body is None else msgspec.json.encode(body)
        request = self.caller.endpoint.request(method, path_of(*path), query, body=content)
        return self.wait_for(self.caller.once(request), is_read=request.is_read)

    def ask(self, method: str, *path: str, **given: Any) -> Any:
        """The JSON of the answer. Raises AnswerError."""
        return self.request(method, *path, **given).json()

    def pages(self, rows: str, path: str, cursor: str, **query: object) -> Iterator[Any]:
        """The rows of a list that comes in pages. Raises AnswerError."""
        while True:
            page = self.ask("GET", path, query=query)
            yield from page[rows]
            query[cursor] = page[f"next_{cursor}"]
            if query[cursor] is None:
                return

    def wait_for(self, work: Coroutine[Any, Any, T], *, is_read: bool) -> T:
        """The result of `work`. `is_read`: it changes nothing. Raises AnswerError."""
        try:
            with self._told(is_read=is_read):
                return self._thread.wait_for(work)
        except KeyboardInterrupt:
            if not is_read:
                tell("it may have been done or not")
            raise

    def ahead(self, pages: AsyncIterator[T]) -> Iterator[T]:
        """The pages; the next one is read while one is dealt with. Raises AnswerError."""

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

    @classmethod
    def of(cls, settings: Settings) -> HttpClient:
        """Raises ConfigurationError that says which file or setting is wrong."""
        return cls(*url_and_key(settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.close()
        if isinstance(error, LookupError | TypeError | ValueError):
            self._blame_version(error)

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

    def _blame_version(self, error: Exception) -> None:
        """Raises CommandError if the appliance is of another version; else the error is ours."""
        if self.caller.version not in ("", __version__):
            address = self.caller.endpoint.address
            raise CommandError(
                f"the answer of {address} was not understood ({type(error).__name__}: {error})."
                f"{self._versions()}"
            ) from error

    @contextlib.contextmanager
    def _told(self, *, is_read: bool) -> Iterator[None]:
        try:
            yield
        except ApplianceError as error:
            raise answer_error(error, is_read=is_read, remark=self._versions()) from error
        except UnreadableAnswerError as error:
            raise CommandError(f"{error}.{self._versions()}") from error

    def _versions(self) -> str:
        """A remark if the appliance is of another major version."""
        theirs = self.caller.version
        if theirs.partition(".")[0] in ("", __version__.partition(".")[0]):
            return ""
        return f" It is version {theirs[:40]}, this is {__version__}."


def tell_wait(why: ApplianceError | None) -> None:
    if why is None:
        tell("the appliance answers again")
    else:
        tell(f"waiting for the appliance: {in_our_words(why.detail).rstrip('.')}")


def answer_error(error: ApplianceError, *, is_read: bool, remark: str = "") -> AnswerError:
    """As a sentence with an exit code. A read changes nothing, so it is never in doubt."""
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
    )
