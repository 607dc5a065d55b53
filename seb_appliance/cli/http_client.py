"""HTTP to one appliance: one connection, kept alive; refusals become sentences and exit codes.

A request is never sent twice here, except by `patiently`, which asks each error whether that is
safe, or is told that the appliance knows the request again.
"""

from __future__ import annotations

import http.client
import json
import select
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from seb_appliance import __version__
from seb_appliance.addresses import parse_url
from seb_appliance.cli.failures import REFUSED, UNAVAILABLE, UNKNOWN, AnswerError

T = TypeVar("T")

CONNECT_S: Final = 10.0
ANSWER_S: Final = 120.0  # longer than a producer waits for the bucket, and than any long poll
PATIENCE_S: Final = 60.0
RETRY_S_MAX: Final = 5.0
SILENCE_S: Final = 45.0  # three times what an appliance is silent in a live stream


@dataclass(frozen=True, slots=True)
class Answer:
    """A success. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def number(self, header: str) -> int:
        """A header that is a whole number."""
        return int(self.headers[header])


@dataclass(frozen=True, slots=True)
class LiveLines:
    """A success that goes on: `lines`, without their ends, come as they are sent. They end with
    the answer, or raise AnswerError when it breaks off. Header names are in lower case."""

    headers: Mapping[str, str]
    lines: Iterator[bytes]


class HttpClient:
    """`url` is where the appliance's paths begin; `token` the API key. Not for threads."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = parse_url(url)
        self._token = token
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._connection: http.client.HTTPConnection | None = None
        self._has_answered = False

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        json_body: object = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        more_headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request, sent once. Raises AnswerError for everything but a success."""
        if json_body is not None:
            body = json.dumps(json_body).encode()
        headers = {
            "Authorization": f"Bearer {self._token}",
            "User-Agent": f"seb/{__version__}",
            "Accept": "application/json",
        }
        if body is not None:
            headers["Content-Type"] = content_type
        headers.update(more_headers or {})
        response, content = self._exchange(method, self._target(path, query), body, headers)
        if "seb-version" not in response.headers:
            raise self._foreign(method, response)
        self._has_answered = True
        if not 200 <= response.status < 300:
            raise _refusal(response, json.loads(content))
        return Answer(response.status, _lowered(response), content)

    def follow(
        self, path: str, query: Mapping[str, object], headers: Mapping[str, str]
    ) -> LiveLines:
        """A GET of lines that need not end. Raises AnswerError for everything but a success."""
        sent = {
            "Authorization": f"Bearer {self._token}",
            "User-Agent": f"seb/{__version__}",
            **headers,
        }
        try:
            connection = self._connected()
            connection.sock.settimeout(SILENCE_S)
            connection.request("GET", self._target(path, query), headers=sent)
            response = connection.getresponse()
            if "seb-version" not in response.headers:
                raise self._foreign("GET", response)
            if not 200 <= response.status < 300:
                raise _refusal(response, json.loads(response.read()))
        except (OSError, http.client.HTTPException) as error:
            raise self._lost("GET", error) from error
        self._has_answered = True
        return LiveLines(_lowered(response), self._lines(response))

    def _lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            while line := response.readline():
                yield line.rstrip(b"\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise self._lost("GET", error) from error
        finally:
            self.close()

    def _target(self, path: str, query: Mapping[str, object] | None) -> str:
        target = self._url.path.rstrip("/") + path
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return f"{target}?{urlencode(given)}" if given else target

    def patiently(self, ask: Callable[[], T], *, is_known_again: bool = False) -> T:
        """What `ask` answers, asked again for up to a minute while its error says that nothing
        happened and that it may work later; but at once when nobody has answered here yet.

        `is_known_again`: the appliance does the same request once however often it comes, so it is
        asked again also when it may have happened. From then on no error can say that it has not:
        the exit code of what is raised is UNKNOWN.
        """
        give_up_s = self._monotonic_s() + PATIENCE_S
        pause_s = 0.1
        in_doubt = False
        while True:
            try:
                return ask()
            except AnswerError as error:
                in_doubt = in_doubt or error.exit_code == UNKNOWN
                again = error.harmless and (self._has_answered or in_doubt)
                again = again or (is_known_again and error.exit_code == UNKNOWN)
                pause_s = min(RETRY_S_MAX, max(2 * pause_s, error.retry_after_s))
                if not again or self._monotonic_s() + pause_s > give_up_s:
                    if in_doubt:
                        error.exit_code = UNKNOWN
                    raise
            self._sleep(pause_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connected()
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            content = response.read()
            if not _is_whole(response):
                raise http.client.IncompleteRead(content)  # noqa: TRY301 - as Python's own
        except BaseException as error:
            self.close()  # half an answer may be left in it
            if isinstance(error, OSError | http.client.HTTPException):
                raise self._lost(method, error) from error
            raise
        return response, content

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is not None and _is_open(self._connection):
            return self._connection
        self.close()
        secure = self._url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        assert self._url.hostname is not None
        connection = kind(self._url.hostname, self._url.port, timeout=CONNECT_S)
        try:
            connection.connect()
        except OSError as error:
            raise AnswerError(
                f"cannot reach an appliance at {self._url.geturl()} ({reason(error)}). "
                "Is it running? --url or SEB_URL says where it is.",
                UNAVAILABLE,
                harmless=True,
            ) from error
        connection.sock.settimeout(ANSWER_S)
        self._connection = connection
        return connection

    def _lost(self, method: str, error: Exception) -> AnswerError:
        """The request was sent, at least in part, and no whole answer came."""
        what = f"{self._url.geturl()} did not answer ({reason(error)})"
        if method == "GET":
            return AnswerError(f"{what}.", UNAVAILABLE, harmless=True)
        return AnswerError(f"{what}; the change may have been made or not.", UNKNOWN)

    def _foreign(self, method: str, response: http.client.HTTPResponse) -> AnswerError:
        """Somebody else answered; if it is a proxy, the request may have come through."""
        what = f"{self._url.geturl()} answered {response.status} {response.reason}"
        sentence = f"{what}, but not as an appliance does. Is --url right?"
        if response.status < 500:
            return AnswerError(sentence, REFUSED, status=response.status)
        if method == "GET":
            return AnswerError(sentence, UNAVAILABLE, status=response.status, harmless=True)
        return AnswerError(sentence, UNKNOWN, status=response.status)


def _is_open(connection: http.client.HTTPConnection) -> bool:
    """Whether a request would get through. Between two requests, only the end of a connection is
    there to be read; after an answer that closes it, Python has done so."""
    if connection.sock is None:
        return False
    return not select.select([connection.sock], [], [], 0)[0]


def _is_whole(response: http.client.HTTPResponse) -> bool:
    """Python takes headers that end too early for all of them, and reads on to the end."""
    said = response.headers
    bodiless = response.status == HTTPStatus.NO_CONTENT
    return bodiless or "content-length" in said or "transfer-encoding" in said


def _lowered(response: http.client.HTTPResponse) -> Mapping[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _refusal(response: http.client.HTTPResponse, problem: dict[str, Any]) -> AnswerError:
    after_s = float(response.headers.get("retry-after", "1"))
    return refusal(problem, response.status, after_s)


def refusal(problem: dict[str, Any], status: int, retry_after_s: float = 1.0) -> AnswerError:
    """What a problem document says."""
    unknown = problem["side_effects"] != "none"
    retryable = bool(problem["retryable"])
    return AnswerError(
        f"{problem['detail'].rstrip('.')} ({problem['code']}).",
        UNKNOWN if unknown else UNAVAILABLE if retryable else REFUSED,
        status=status,
        harmless=retryable and not unknown,
        retry_after_s=retry_after_s,
        problem=problem,
    )


def reason(error: Exception) -> str:
    """The few words of an error that a person needs."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
