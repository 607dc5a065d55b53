"""boto3's S3 client, with every setting explicit (its defaults have moved twice).

Imports boto3: import this late.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import boto3.session
from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.config import Config
from botocore.exceptions import HTTPClientError
from botocore.httpsession import URLLib3Session

from seb_appliance import limits
from seb_appliance.failpoints import Failpoints

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

    from seb_appliance.storage.stores.s3_options import S3Options


# botocore's HTTP session with a bound on the answers that it takes in whole: listings and errors.
#
# botocore reads such an answer to its end, however long it is. Imports botocore: import this late.


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


_SIGNER: Final = "seb-s3v4"
_URL_SIGNER: Final = "seb-s3v4-query"
_SIGNING_TIME: Final = "seb-signing-time"


class _GivenTimeAuth(S3SigV4Auth):
    """AWS signature version 4 with the time that the request carries.

    botocore always signs with the machine's clock, and a store refuses a request that is signed
    15 minutes off its own.
    """

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        request.context["timestamp"] = request.context[_SIGNING_TIME]
        super()._modify_request_before_signing(request)  # type: ignore[misc]


class _GivenTimeQueryAuth(S3SigV4QueryAuth):
    """The same for URLs that are signed."""

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        request.context["timestamp"] = request.context[_SIGNING_TIME]
        super()._modify_request_before_signing(request)  # type: ignore[misc]


# botocore finds signers by name in this table; there is no other door.
AUTH_TYPE_MAPS[_SIGNER] = _GivenTimeAuth
AUTH_TYPE_MAPS[_URL_SIGNER] = _GivenTimeQueryAuth


def connect(
    options: S3Options,
    *,
    connections: int,
    failpoints: Failpoints,
    signing_time_s: Callable[[], float],
    on_date: Callable[[float], None],
) -> S3Client:
    """A client that may be used by many threads. Makes no request.

    `signing_time_s`: seconds since the epoch, asked before each request. `on_date`: told the Date
    of each answer, seconds since the epoch.
    """
    session = boto3.session.Session(
        aws_access_key_id=options.access_key_id,
        aws_secret_access_key=options.secret_access_key,
        region_name=options.region,
    )
    client = session.client(
        "s3",
        region_name=session.region_name or "us-east-1",
        endpoint_url=options.endpoint_url,
        config=_config(options, connections),
    )

    def signing_time() -> str:
        return datetime.fromtimestamp(signing_time_s(), UTC).strftime("%Y%m%dT%H%M%SZ")

    def set_signing_time(request: AWSRequest, **_: Any) -> None:
        request.context[_SIGNING_TIME] = signing_time()

    def set_signing_time_of_url(context: dict[str, Any], **_: Any) -> None:
        # No request is sent, so there is no `before-sign` for these.
        if context.get("is_presign_request"):
            context[_SIGNING_TIME] = signing_time()

    def note_date(response_dict: dict[str, Any] | None, **_: Any) -> None:
        date = response_dict and response_dict["headers"].get("Date")
        if date and (date_s := _parse_date(date)) is not None:
            on_date(date_s)

    def pass_half_sent(request: AWSPreparedRequest, **_: Any) -> None:
        if failpoints.armed("K5"):
            request.body = _HalfSentBody(cast("io.BytesIO", request.body).getvalue(), failpoints)
        else:
            failpoints.reach("K5")

    events = client.meta.events
    events.register("choose-signer.s3", _choose_signer)  # type: ignore[arg-type]
    events.register_last("before-parameter-build.s3", _follow_no_redirect)
    events.register_last("before-parameter-build.s3", set_signing_time_of_url)
    events.register("before-sign.s3", set_signing_time)
    events.register("response-received.s3", note_date)
    events.register_last("before-call.s3", _drop_expect)
    events.register("before-send.s3.PutObject", pass_half_sent)
    endpoint = cast("Any", client)._endpoint  # noqa: SLF001 - no other door to its session
    endpoint.http_session = BoundedSession(endpoint.http_session)
    return client


def _config(options: S3Options, connections: int) -> Config:
    return Config(
        signature_version="s3v4",
        connect_timeout=options.connect_timeout_s,
        read_timeout=options.read_timeout_s,
        max_pool_connections=connections,
        tcp_keepalive=True,
        retries={"mode": "standard", "total_max_attempts": 1},
        s3={"addressing_style": "path" if options.endpoint_url else "auto"},
        request_checksum_calculation=options.checksums,
        response_checksum_validation=options.checksums,
    )


def _choose_signer(signature_version: str, **_: Any) -> str | None:
    if signature_version in {"s3v4-query", "v4-query"}:
        return _URL_SIGNER
    return _SIGNER if signature_version in {"s3v4", "v4"} else None


def _follow_no_redirect(context: dict[str, Any], **_: Any) -> None:
    """botocore would look for the bucket's region and send the request again, retries or not."""
    context["s3_redirect"]["redirected"] = True


def _drop_expect(params: dict[str, Any], **_: Any) -> None:
    """Waiting for "100 Continue" costs a round trip on every acknowledgement."""
    params["headers"].pop("Expect", None)


def _parse_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


class _HalfSentBody(io.BytesIO):
    """A body that reaches failpoint K5 when its first half was given to the socket."""

    def __init__(self, body: bytes, failpoints: Failpoints) -> None:
        super().__init__(body)
        self._bytes_left = len(body) // 2
        self._failpoints = failpoints

    def read(self, _size: int | None = -1, /) -> bytes:
        if self._bytes_left == 0:
            self._failpoints.reach("K5")
        data = super().read(self._bytes_left)
        self._bytes_left -= len(data)
        return data
