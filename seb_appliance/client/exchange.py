"""HTTP/1.1 as bytes: requests are built, answers are read. No socket is touched here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from seb_appliance import __version__, errors, limits
from seb_appliance.addresses import parse_url
from seb_appliance.client.failures import ConfigurationError

HEAD_BYTES_MAX: Final = 64 * limits.KIB
BODY_BYTES_MAX: Final = 256 * limits.MIB
_DIGITS_MAX: Final = len(str(BODY_BYTES_MAX))
_END_OF_HEAD: Final = b"\r\n\r\n"


class MalformedAnswerError(Exception):
    """What came is not an HTTP/1.1 answer, or ended too early."""


class Answer(NamedTuple):
    """`headers`: names in lower case. `keeps`: whether the connection can be used again."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    keeps: bool

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def number(self, header: str) -> int:
        return int(self.headers[header])


class Request(NamedTuple):
    """`head` ends with its empty line. `what`: for people. `is_read`: it changes nothing."""

    head: bytes
    body: bytes
    what: str
    is_read: bool


class Endpoint:
    """Where an appliance is, and the API key that it is asked with. `agent`: who asks.

    Raises ConfigurationError for a URL or an API key that cannot be one.
    """

    def __init__(self, url: str, api_key: str, agent: str = "seb-client") -> None:
        try:
            parts = parse_url(url)
        except errors.ConfigurationError as error:
            raise ConfigurationError(error.detail) from error
        if not api_key.isascii() or not api_key.isprintable() or " " in api_key or not api_key:
            raise ConfigurationError("the API key is not one: seb_… and nothing else")
        assert parts.hostname is not None
        self.secure = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.secure else 80)
        self.address = parts.geturl()
        self._path = parts.path.rstrip("/")
        self._common = (
            f"Host: {parts.netloc}\r\nAuthorization: Bearer {api_key}\r\n"
            f"User-Agent: {agent}/{__version__}\r\n"
        )

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Request:
        """`path`: from /v1 on, quoted (`path_of`). What is None in `query` is left out."""
        target = self._path + path
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if given:
            target += f"?{urlencode(given)}"
        lines = f"{method} {target} HTTP/1.1\r\n{self._common}"
        for name, value in (headers or {}).items():
            lines += f"{name}: {value}\r\n"
        if body is not None:
            lines += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        elif method != "GET":
            lines += "Content-Length: 0\r\n"
        return Request(
            f"{lines}\r\n".encode("ascii"), body or b"", f"{method} {path}", method == "GET"
        )


class AnswerReader:
    """One answer, from the bytes as they come."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._body: _Body | None = None
        self._status = 0
        self._headers: dict[str, str] = {}
        self._keeps = False

    def feed(self, data: bytes) -> Answer | None:
        """The answer once it is whole. Raises MalformedAnswerError."""
        while self._body is None:
            self._head += data
            end = self._head.find(_END_OF_HEAD)
            if end < 0:
                if len(self._head) > HEAD_BYTES_MAX:
                    raise MalformedAnswerError("its headers are too long")
                return None
            data = bytes(self._head[end + len(_END_OF_HEAD) :])
            self._read_head(bytes(self._head[:end]))
            if self._status < 200:  # 100 Continue and the like come before the answer
                self._head, self._headers, self._body = bytearray(), {}, None
        return self._answer() if self._body.feed(data) else None

    def end(self) -> Answer:
        """The connection ended: the answer, if only that could end it. Raises
        MalformedAnswerError."""
        if self._body is None or not self._body.ends_with_connection:
            raise MalformedAnswerError("the connection was closed")
        return self._answer()

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise MalformedAnswerError("what came is not HTTP/1.1")
        self._status = int(rest[:3])
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise MalformedAnswerError("a header has no name")
            self._headers[name.lower()] = value.strip()
        self._keeps = (
            version == "HTTP/1.1" and self._headers.get("connection", "").lower() != "close"
        )
        self._body = self._body_of(self._status)

    def _body_of(self, status: int) -> _Body:
        if status in (204, 304) or status < 200:
            return _Body(0)
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            return _Chunks()
        said = self._headers.get("content-length")
        if said is None:
            self._keeps = False
            return _Body(None)
        if not said.isdecimal() or len(said) > _DIGITS_MAX or int(said) > BODY_BYTES_MAX:
            raise MalformedAnswerError(f"its length is {said[:100]!r}")
        return _Body(int(said))

    def _answer(self) -> Answer:
        assert self._body is not None
        return Answer(self._status, self._headers, self._body.whole(), self._keeps)


class _Body:
    """`length` None: up to the end of the connection."""

    def __init__(self, length: int | None) -> None:
        self._length = length
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def ends_with_connection(self) -> bool:
        return self._length is None

    def feed(self, data: bytes) -> bool:
        """Whether it is whole. Raises MalformedAnswerError."""
        if data:
            self._parts.append(data)
            self._size += len(data)
        if self._size > (BODY_BYTES_MAX if self._length is None else self._length):
            raise MalformedAnswerError("it is longer than it says")
        return self._size == self._length

    def whole(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


class _Chunks(_Body):
    """Transfer-Encoding: chunked. Trailers are read over."""

    def __init__(self) -> None:
        super().__init__(0)
        self._rest = bytearray()
        self._is_last = False

    def feed(self, data: bytes) -> bool:
        self._rest += data
        while not self._is_last:
            end = self._rest.find(b"\r\n")
            if end < 0:
                if len(self._rest) > HEAD_BYTES_MAX:
                    raise MalformedAnswerError("a chunk has no length")
                return False
            size = _chunk_size(bytes(self._rest[:end]))
            if size == 0:
                self._is_last = True
                break
            if len(self._rest) < end + 2 + size + 2:
                return False
            self._parts.append(bytes(self._rest[end + 2 : end + 2 + size]))
            self._size += size
            if self._size > BODY_BYTES_MAX:
                raise MalformedAnswerError("it is too long")
            del self._rest[: end + 2 + size + 2]
        # "0\r\n", then perhaps trailers, then an empty line.
        return self._rest.endswith(_END_OF_HEAD)


def _chunk_size(line: bytes) -> int:
    try:
        size = int(line.partition(b";")[0].strip(), 16)
    except ValueError as error:
        raise MalformedAnswerError("a chunk has no length") from error
    if not 0 <= size <= BODY_BYTES_MAX:
        raise MalformedAnswerError("a chunk is too long")
    return size
