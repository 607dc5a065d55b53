"""What a plain request asks for, once its head is understood (plain_heads.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

import httptools

from seb_appliance.api.encoding.record_encoding import ValueShape
from seb_appliance.api.encoding.record_parsing import BodyKind
from seb_appliance.api.server.http_protocol import is_overlong_length
from seb_appliance.broker.values import ApiKeyView, From, ReadRequest

# The application refuses some hosts; what is surely one is taken here.
_PLAIN_HOST: Final = re.compile(rb"[A-Za-z0-9._-]+(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?")


@dataclass(frozen=True, slots=True)
class PlainProduce:
    """An append without conditions. `headers`: those that shape a single record, or the type of
    what is appended to a stream; `boundary`: of a multipart body, which only the Go broker's API
    has."""

    key: ApiKeyView
    until_us: int
    topic: str
    kind: BodyKind | Literal["multipart", "stream"]
    headers: dict[bytes, bytes]
    content_length: int
    boundary: bytes = b""

    def with_boundary(self, boundary: bytes) -> PlainProduce:
        """The same with another boundary."""
        return replace(self, boundary=boundary)


@dataclass(frozen=True, slots=True)
class PlainConsume:
    """A read; `chosen` is the media type of the answer."""

    key: ApiKeyView
    until_us: int
    topic: str
    wanted: ReadRequest
    chosen: str
    shape: ValueShape
    content_length: int = 0

    def starting_at(self, offset: int) -> PlainConsume:
        """The same from another offset."""
        wanted = replace(self.wanted, start=From(offset=offset))
        return PlainConsume(self.key, self.until_us, self.topic, wanted, self.chosen, self.shape)


@dataclass(frozen=True, slots=True)
class PlainCommit:
    """A commit of offsets, for a group that the key may commit for."""

    key: ApiKeyView
    until_us: int
    group: str
    content_length: int


PlainHead = PlainProduce | PlainConsume | PlainCommit


class ParsedHead:
    """What the parser says of a head, by the same rules as for every other request."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.method = b""
        self._begun = 0
        self._complete = False

    @classmethod
    def of(cls, head: bytes) -> ParsedHead | None:
        """None when it is not the whole head of one HTTP/1.1 request that keeps its connection."""
        parsed = cls()
        parser = httptools.HttpRequestParser(parsed)
        try:
            parser.feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        hosts = [value for name, value in parsed.headers if name == b"host"]
        if (
            not parsed._complete
            or parsed._begun != 1
            or len(hosts) != 1
            or not _PLAIN_HOST.fullmatch(hosts[0])
            or any(map(is_overlong_length, parsed.headers))
            or parser.get_http_version() != "1.1"
        ):
            return None
        parsed.method = parser.get_method()
        return parsed

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._complete = True
