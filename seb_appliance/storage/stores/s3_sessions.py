"""boto3's HTTP session, bounded: in the bytes of listings and errors, and by whoever waits for it.

Imports botocore: import this late.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import HTTPClientError
from botocore.httpsession import URLLib3Session

from seb_appliance import limits

_STEP_BYTES: Final = 64 * limits.KIB


class BoundedSession:
    """botocore reads listings and errors to the end, however long they are. Here, reading one
    raises HTTPClientError beyond STORE_ANSWER_BYTES_MAX.

    Timeouts of sockets are between two bytes: a store that sends a byte now and then keeps a thread
    forever, and with it the process. `cut` ends such a request."""

    def __init__(self, session: URLLib3Session) -> None:
        self.unbounded = session
        self._used: dict[int, Any] = {}  # the connection that each thread used last
        # The session's pools share this dictionary.
        pools = cast("Any", session)._pool_classes_by_scheme  # noqa: SLF001 - no other way
        for scheme, pool in pools.items():
            pools[scheme] = type("Pool", (pool,), {"ConnectionCls": self._noted(pool)})

    def _noted(self, pool: Any) -> type:
        used, of_pool = self._used, pool.ConnectionCls

        def request(connection: Any, *args: Any, **kwargs: Any) -> Any:
            used[threading.get_ident()] = connection
            return of_pool.request(connection, *args, **kwargs)

        return type("Connection", (of_pool,), {"request": request})

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        is_object = request.stream_output
        request.stream_output = True  # else the session itself would read it
        answer = self.unbounded.send(request)
        if not is_object or answer.status_code >= 300:
            answer.raw = SimpleNamespace(stream=partial(_parts, answer.raw, request.url))
        return answer

    def cut(self, thread: int | None = None) -> None:
        """Let the request that a thread makes fail; None: of all threads. From any thread."""
        for one, connection in list(self._used.items()):
            if thread in (None, one) and (sock := connection.sock) is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.unbounded.close()


def _parts(raw: Any, url: str) -> Iterator[bytes]:
    left = limits.STORE_ANSWER_BYTES_MAX
    while part := raw.read(_STEP_BYTES):
        left -= len(part)
        if left < 0:
            raw.close()
            raise HTTPClientError(
                error=f"{url} answers more than {limits.STORE_ANSWER_BYTES_MAX} bytes"
            )
        yield part
