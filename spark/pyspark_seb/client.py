"""Requests to an appliance from Spark's driver and its workers: blocking, repeated until answered.

Everything that is asked here may be asked twice (reads, commits of the same offsets, appends of a
numbered producer), so that a restart of the appliance is waited out.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from pyspark_seb.errors import ApplianceError, BadOptionError
from seb_appliance import limits

PATIENCE_S: Final = 120.0
TIMEOUT_S: Final = 60.0  # between two bytes
_EXCHANGE_S: Final = 600.0  # of a request and its answer: others trickle
_PAUSE_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_BODY_BYTES_MAX: Final = 256 * limits.MIB  # of an answer of the appliance
_API_KEY: Final = re.compile(r"seb_[A-Za-z0-9_-]{1,200}")
_NUMBER: Final = re.compile(r"[0-9]{1,16}")
_NOT_OURS: Final = "the answer is not an appliance's"
_DETAIL_MAX: Final = 2_000  # characters of a refusal that an error shows


@dataclass(frozen=True, slots=True)
class Answer:
    """`headers`: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self, shape: Any = dict[str, Any]) -> Any:
        """An object of this `shape`, as in answers.py. Raises ApplianceError."""
        try:
            return msgspec.json.decode(self.body, type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            detail = f"{_NOT_OURS}: {error}"[:_DETAIL_MAX]
            raise ApplianceError("the answer", self.status, "unknown", detail, {}) from error

    def number(self, header: str) -> int:
        """Raises ApplianceError."""
        text = self.headers.get(header, "")
        if not _NUMBER.fullmatch(text):
            raise ApplianceError("the answer", self.status, "unknown", _NOT_OURS, {})
        return int(text)


class Connection:
    """One kept connection to http(s)://host[:port]; opened again after a failure. `most`: bytes of
    a body. No redirect is followed: the API key is for this host."""

    def __init__(self, url: str, most: int = _BODY_BYTES_MAX) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise BadOptionError(f"url is http(s)://host[:port], not {parts.scheme}://…")
        self._most = most
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port = parts.hostname, parts.port
        self._connection: HTTPConnection | None = None

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        """One request, one answer. Raises OSError, HTTPException, ApplianceError."""
        if self._connection is None:
            self._connection = self._kind(self._host, self._port, timeout=TIMEOUT_S)
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with _bounded(self._connection.sock):
                self._connection.request(method, target, body, dict(headers))
                response: HTTPResponse = self._connection.getresponse()
                read = self._body_of(response)
            named = {name.lower(): value for name, value in response.getheaders()}
            if response.will_close:
                self.close()
            return Answer(response.status, named, read)
        except BaseException:
            self.close()
            raise

    def _body_of(self, response: HTTPResponse) -> bytes:
        length = response.length
        if length is None:
            read = response.read(self._most + 1)
            length = len(read)
        elif length <= self._most:
            read = response.read()  # with a number, it would take less for all
        if length > self._most:
            detail = f"an answer of more than {self._most:,} bytes"
            raise ApplianceError(self._host, response.status, "unknown", detail, {})
        return read

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
        self._connection = None


@contextlib.contextmanager
def _bounded(connected: socket.socket) -> Iterator[None]:
    """Cut the connection off after _EXCHANGE_S. Raises TimeoutError then."""
    late = threading.Event()

    def cut() -> None:
        late.set()
        with contextlib.suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_EXCHANGE_S, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if late.is_set():  # what was read may look whole: a body may end with its connection
            raise TimeoutError(f"the answer took more than {_EXCHANGE_S:.0f} s")


class Appliance:
    """The API of the appliance at `url`, with the API key of `token_file`, which is read on the
    host that asks: it is in no plan."""

    def __init__(
        self,
        url: str,
        token_file: str,
        *,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        try:
            token = Path(token_file).read_text(encoding="utf-8").strip()
        except UnicodeDecodeError as error:
            raise BadOptionError(f"tokenFile {token_file} holds no API key (seb_…)") from error
        except OSError as error:
            raise BadOptionError(
                f"tokenFile {token_file} cannot be read on {socket.gethostname()}: the file with "
                "the API key has to be on every host that runs the driver or a task "
                f"({error.strerror})."
            ) from error
        # What is in another file goes neither to that host nor into an error of http.client.
        if not _API_KEY.fullmatch(token):
            raise BadOptionError(f"tokenFile {token_file} holds no API key (seb_…)")
        self._authorization = {"Authorization": f"Bearer {token}"}
        self._connection = Connection(url)
        self._patience_s = patience_s
        self._sleep = sleep

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str, **query: str | int) -> Answer:
        target = f"{path}?{urlencode(query)}" if query else path
        return self.request("GET", target)

    def send(self, method: str, path: str, content: Any) -> Answer:
        """`content` as JSON."""
        body = json.dumps(content).encode()
        return self.request(method, path, body, {"Content-Type": "application/json"})

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """A 2xx. Raises ApplianceError."""
        what = f"{method} {target.partition('?')[0]} at {self._url}"
        sent = {**self._authorization, **(headers or {})}
        give_up_s = time.monotonic() + self._patience_s
        attempt = 0
        while True:
            try:
                answer = self._connection.exchange(method, target, body, sent)
            except (OSError, HTTPException) as error:
                refused = ApplianceError(what, 0, "unreachable", f"no answer ({error!r})", {})
                pause_s = 0.0
            else:
                if answer.status < 300:
                    return answer
                refused = _refusal(what, answer)
                if answer.status not in RETRIED:
                    raise refused
                said = answer.headers.get("retry-after", "")
                pause_s = min(float(said), 30.0) if _NUMBER.fullmatch(said) else 0.0
            pause_s = max(pause_s, _PAUSE_S[min(attempt, len(_PAUSE_S) - 1)])
            if time.monotonic() + pause_s > give_up_s:
                raise refused
            self._sleep(pause_s)
            attempt += 1


def _refusal(what: str, answer: Answer) -> ApplianceError:
    try:
        problem = json.loads(answer.body)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        problem, code, detail = {}, "unknown", _NOT_OURS
    told = code[:_DETAIL_MAX], detail[:_DETAIL_MAX]
    return ApplianceError(what, answer.status, *told, problem)
