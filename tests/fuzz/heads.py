"""Requests as bytes, changed as clients, proxies and attackers change them, and cut in pieces.

All changes follow from a seed; what they begin from are requests that either lane takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

_ODD_BYTES: Final = (
    b"\0",
    b"\t",
    b" ",
    b"\r",
    b"\n",
    b"\x0b",
    b"\x7f",
    b"\x80",
    b"\xff",
    b":",
    b'"',
)
_VERSIONS: Final = (
    b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"http/1.1", b"HTTP/1.1 ", b"HTTP/11", b"",
)  # fmt: skip
_METHODS: Final = (
    b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"get", b"G ET",
     b"",
)  # fmt: skip
_LENGTHS: Final = (
    b"0", b"1", b"00", b"+1", b"-1", b"0x1", b"1 1", b"1, 1", b"1;", b"", b"1e1", b"99999999",
    b"18446744073709551616", b"9" * 30, b" 1\t", b"\xb2", b"0" * 5_000 + b"1",
)  # fmt: skip
_LINES: Final = (
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: \x0bchunked",
    b"transfer-encoding:chunked",
    b"Connection: close",
    b"Connection: keep-alive, close",
    b"connection: KEEP-ALIVE",
    b"Connection: Upgrade\r\nUpgrade: websocket",
    b"Connection: ,",
    b"Expect: 100-continue",
    b"Expect: 200-ok",
    b"Content-Encoding: gzip",
    b"Content-Encoding: identity",
    b"Content-Type: application/json",
    b"Content-Type: text/plain;charset=utf-16",
    b"content-type: ",
    b"Accept: */*;q=0",
    b"Accept: application/x-ndjson",
    b"Accept: application/json, , ;q=x",
    b"Host: y",
    b"Host: ",
    b"Authorization: Bearer x",
    b"Authorization: Basic \xe9",
    b"Origin: https://a.example",
    b"Cookie: a=b",
    b"Seb-Key: a",
    b"Seb-Key: %",
    b"Seb-Header-a: \xff",
    b"Seb-Timestamp: 1969-01-01T00:00:00Z",
    b"Seb-Timeout: 5s",
    b"Idempotency-Key: fuzz",
    b'If-Match: "3"',
    b"If-None-Match: *",
    b"Producer-Id: p",
    b"ce-specversion: 1.0",
    b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    b"Range: bytes=0-1",
    b"X-Long: " + b"x" * 1_000,
    b"X-Huge: " + b"x" * 17_000,
    b"\r\n".join(b"X-%d: y" % i for i in range(300)),
    b" folded: line",
    b"no colon",
    b": no name",
    b"bad\0name: x",
    b"X: a\0b",
    b"X: a\x7fb",
    b"",
)
_IN_URLS: Final = (
    b"%", b"%2e", b"%00", b"%74", b"/", b"//", b"/../", b"?", b"&", b"=", b"#", b"\\", b"*", b" ",
    b"\t", b"\x80", b"\xff", b"http://x/", b"?offset=1", b"&offset=1", b"?max_records=1",
     b"a" * 130,
)  # fmt: skip
_CHUNKS: Final = (
    b"3\r\nabc\r\n0\r\n\r\n", b"3;x=y\r\nabc\r\n0\r\n\r\n", b"03\r\nabc\r\n0\r\nA: b\r\n\r\n",
    b"3\nabc\n0\n\n", b"-3\r\nabc\r\n0\r\n\r\n", b"FFFFFFFFFFFFFFFF\r\nx",
     b"3 \r\nabc\r\n0\r\n\r\n",
    b"0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n",
)  # fmt: skip


def changed(requests: Sequence[bytes], seed: int) -> Iterator[list[bytes]]:
    """Without end: the pieces in which a changed request arrives."""
    draw = random.Random(seed)
    while True:
        data = draw.choice(requests)
        for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
            data = draw.choice(_CHANGES)(draw, data)
        if draw.random() < 0.2:  # pipelined
            data += draw.choice(requests)
        yield cut(draw, data)


def cut(draw: random.Random, data: bytes) -> list[bytes]:
    """In up to four pieces; one in ten loses its end."""
    if draw.random() < 0.1:
        data = data[: draw.randint(1, len(data) or 1)]
    edges = sorted(draw.randint(0, len(data)) for _ in range(draw.choice((0, 0, 1, 3))))
    return [data[a:b] for a, b in pairwise([0, *edges, len(data)]) if b > a] or [b"\r\n"]


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    return head.split(b"\r\n"), body


def _joined(lines: Sequence[bytes], body: bytes) -> bytes:
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _line_added(draw: random.Random, data: bytes) -> bytes:
    lines, body = _split(data)
    lines.insert(draw.randint(1, len(lines)), draw.choice(_LINES))
    return _joined(lines, body)


def _line_moved(draw: random.Random, data: bytes) -> bytes:
    """Repeated, taken away, or put elsewhere."""
    lines, body = _split(data)
    line = draw.choice(lines)
    kind = draw.randrange(3)
    if kind:
        lines.remove(line)
    if kind != 1:
        lines.insert(draw.randint(0, len(lines)), line)
    return _joined(lines, body)


def _case(draw: random.Random, data: bytes) -> bytes:
    lines, body = _split(data)
    at = draw.randrange(len(lines))
    lines[at] = draw.choice((bytes.upper, bytes.lower, bytes.swapcase))(lines[at])
    return _joined(lines, body)


def _spaces(draw: random.Random, data: bytes) -> bytes:
    lines, body = _split(data)
    at = draw.randrange(len(lines))
    name, colon, value = lines[at].partition(b":")
    space = draw.choice((b" ", b"\t", b"   ", b"\r\n "))
    lines[at] = draw.choice(
        (
            space + lines[at],
            name + space + colon + value,
            name + colon + space + value,
            name + colon + value + space,
            name + colon + value.strip(),
            lines[at].replace(b" ", space),
        )
    )
    return _joined(lines, body)


def _request_line(draw: random.Random, data: bytes) -> bytes:
    lines, body = _split(data)
    words = lines[0].split(b" ")
    if len(words) != 3:
        return data
    kind = draw.randrange(4)
    if kind == 0:
        words[0] = draw.choice(_METHODS)
    elif kind == 1:
        words[2] = draw.choice(_VERSIONS)
    else:
        at = draw.randint(0, len(words[1]))
        words[1] = words[1][:at] + draw.choice(_IN_URLS) + words[1][at + draw.randint(0, 2) :]
    lines[0] = b" ".join(words)
    return _joined(lines, body)


def _length(draw: random.Random, data: bytes) -> bytes:
    lines, body = _split(data)
    given = draw.choice(
        (
            draw.choice(_LENGTHS),
            b"%d" % len(body),
            b"%d" % (len(body) + 1),
            b"%d" % max(0, len(body) - 1),
        )
    )
    rest = [line for line in lines if not line.lower().startswith(b"content-length")]
    if draw.random() < 0.2:
        rest = lines  # beside the one that is there
    rest.insert(draw.randint(1, len(rest)) if rest else 0, b"Content-Length: " + given)
    return _joined(rest, body)


def _chunked(draw: random.Random, data: bytes) -> bytes:
    lines, _ = _split(data)
    if draw.random() < 0.7:
        lines = [line for line in lines if not line.lower().startswith(b"content-length")]
    return _joined([*lines, b"Transfer-Encoding: chunked"], draw.choice(_CHUNKS))


def _line_ends(draw: random.Random, data: bytes) -> bytes:
    new = draw.choice((b"\n", b"\r", b"\r\r\n", b"\n\r"))
    if draw.random() < 0.5:
        return data.replace(b"\r\n", new)
    at = data.find(b"\r\n", draw.randrange(len(data) or 1))
    return data if at < 0 else data[:at] + new + data[at + 2 :]


def _bytes(draw: random.Random, data: bytes) -> bytes:
    at = draw.randint(0, len(data))
    return data[:at] + draw.choice(_ODD_BYTES) + data[at + draw.randint(0, 1) :]


def _around(draw: random.Random, data: bytes) -> bytes:
    odd = draw.choice(
        (b"\r\n", b"\n", b"\r\n\r\n", b" ", b"\0", b"nonsense\r\n\r\n", b"x" * 20_000)
    )
    return odd + data if draw.random() < 0.5 else data + odd


_CHANGES: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    _line_added, _line_added, _line_moved, _case, _spaces, _request_line, _request_line, _length,
    _chunked, _line_ends, _bytes, _bytes, _around,
)  # fmt: skip
