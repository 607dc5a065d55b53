"""botocore's HTTP session with a bound on the answers that it takes in whole: listings and errors.

botocore reads such an answer to its end, however long it is. Imports botocore: import this late.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import HTTPClientError
from botocore.httpsession import URLLib3Session

from seb_appliance import limits

_STEP_BYTES: Final = 64 * limits.KIB


class BoundedSession:
    """Wraps `session`. Reading an answer raises HTTPClientError beyond STORE_ANSWER_BYTES_MAX."""

    def __init__(self, session: URLLib3Session) -> None:
        self._session = session

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """Bodies of objects are left to whoever asked for them."""
        is_object = request.stream_output
        request.stream_output = True  # else the session itself would read it
        answer = self._session.send(request)
        if not is_object or answer.status_code >= 300:
            answer.raw = SimpleNamespace(stream=partial(_parts, answer.raw, request.url))
        return answer

    def close(self) -> None:
        self._session.close()


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
