"""A uvicorn protocol that only answers: what HTTP in Python costs at least.

    python -m seb_appliance.bench.null_server PORT

`POST` is answered with 201, `GET /…/null/SIZE` with so many bytes, any other path with nothing.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_BODY = b'{"topic":"null","topic_id":1,"offset":0,"count":1,"last_offset":0}'
_CREATED = (
    b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (
        len(_BODY),
        _BODY,
    )
)


class NullProtocol(HttpToolsProtocol):
    """Parses requests as uvicorn does, and forgets them."""

    def on_headers_complete(self) -> None: ...

    def on_body(self, body: bytes) -> None: ...

    def on_message_complete(self) -> None:
        answer = _CREATED if self.parser.get_method() == b"POST" else sized_answer(self.url)
        self.transport.write(answer)


@functools.lru_cache(64)
def sized_answer(path: bytes) -> bytes:
    """Of the size that the path names."""
    name = path.rpartition(b"/")[2]
    size = int(name) if name.isdigit() else 0
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n"
    )
    return head % size + b"x" * size


async def _never_called(scope: Any, receive: Any, send: Any) -> None: ...


def main() -> None:
    """Serve on the loopback address until a signal comes."""
    uvicorn.run(
        _never_called,
        http=NullProtocol,
        port=int(sys.argv[1]),
        loop="uvloop",
        lifespan="off",
        log_level="error",
        access_log=False,
        backlog=2048,
    )


if __name__ == "__main__":
    main()
