"""Blocking requests to an S3 store, which `s3.py` makes in threads.

Every setting of boto3's client is explicit, and an answer must be exactly what was requested.
Imports boto3: import this late.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import boto3.session
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.config import Config
from botocore.exceptions import ClientError

from seb_appliance import limits
from seb_appliance.clock import monotonic_s
from seb_appliance.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreClockSkewError,
    StoreUncertainError,
)
from seb_appliance.failpoints import Failpoints
from seb_appliance.storage.stores import s3_answers
from seb_appliance.storage.stores.object_store import ObjectInfo, ObjectRange, SignedPut, too_large
from seb_appliance.storage.stores.s3_puts import puts_like
from seb_appliance.storage.stores.s3_sessions import BoundedSession
from seb_appliance.storage.stores.s3_signing import SIGNER, SIGNING_TIME, URL_SIGNER

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client
    from types_boto3_s3.type_defs import (
        GetObjectOutputTypeDef,
        ListObjectsV2OutputTypeDef,
        ObjectTypeDef,
    )

    from seb_appliance.storage.stores.s3_options import S3Options

_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")


def connect(
    options: S3Options,
    *,
    connections: int,
    failpoints: Failpoints,
    signing_time: Callable[[], str],
    on_answer: Callable[[Mapping[str, str]], None],
) -> tuple[S3Client, BoundedSession]:
    """A client that may be used by many threads, and its session. Makes no request.

    `signing_time`: called before each request; `on_answer`: called with the headers of each answer.
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

    def set_signing_time(request: AWSRequest, **_: Any) -> None:
        request.context[SIGNING_TIME] = signing_time()

    def set_signing_time_of_url(context: dict[str, Any], **_: Any) -> None:
        # No request is sent, so there is no `before-sign` for these.
        if context.get("is_presign_request"):
            context[SIGNING_TIME] = signing_time()

    def note_answer(response_dict: dict[str, Any] | None, **_: Any) -> None:
        if response_dict:
            on_answer(response_dict["headers"])

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
    events.register("response-received.s3", note_answer)
    events.register_last("before-call.s3", _drop_expect)
    events.register("before-send.s3.PutObject", pass_half_sent)
    endpoint = cast("Any", client)._endpoint  # noqa: SLF001 - the only way to its session
    endpoint.http_session = BoundedSession(endpoint.http_session)
    return client, endpoint.http_session


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
        return URL_SIGNER
    return SIGNER if signature_version in {"s3v4", "v4"} else None


def _follow_no_redirect(context: dict[str, Any], **_: Any) -> None:
    """botocore would look up the bucket's region and repeat the request, even without retries."""
    context["s3_redirect"]["redirected"] = True


def _drop_expect(params: dict[str, Any], **_: Any) -> None:
    """Waiting for "100 Continue" costs a round trip on every acknowledgement."""
    params["headers"].pop("Expect", None)


class _HalfSentBody(io.BytesIO):
    """A body that reaches failpoint K5 after its first half was sent."""

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


class S3Requests:
    """The methods of `ObjectStore`, with its errors. `base`: the prefix of our keys."""

    def __init__(
        self,
        options: S3Options,
        *,
        base: str,
        connections: int,
        failpoints: Failpoints,
        wall_s: Callable[[], float],
    ) -> None:
        self._bucket = options.bucket
        self._base = base
        self._failpoints = failpoints
        self._wall_s = wall_s
        self._where = f'bucket "{options.bucket}" at {options.endpoint_url or "AWS"}'
        self.date_ahead_s: float | None = None
        self._signing_offset_s = 0.0
        self._client, self._session = connect(
            options,
            connections=connections,
            failpoints=failpoints,
            signing_time=self._signing_time,
            on_answer=self._note_date,
        )
        # None: the event loop cannot send PUTs, boto3 must.
        self._puts = puts_like(
            self._client,
            options,
            base=base,
            failpoints=failpoints,
            signing_time=self._signing_time,
            on_answer=self._note_date,
        )

    def prepare(self, body: bytes) -> None:
        if self._puts is not None:
            self._puts.prepare(body)

    async def put_by_loop(self, key: str, body: bytes, *, create_only: bool) -> bool:
        """Store an object without a thread, if `create_only` only where none is. False: nothing was
        done, because only boto3 can send it (`put`)."""
        if self._puts is None:
            return False
        with self._putting(key, create_only=create_only):
            answer = await self._puts.send(key, body, create_only=create_only)
            _check_stored(answer, key)
        return True

    def put(self, key: str, body: bytes, *, create_only: bool) -> None:
        """The same in this thread."""
        put_object = self._client.put_object
        request = partial(put_object, IfNoneMatch="*") if create_only else put_object
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        with self._putting(key, create_only=create_only):
            answer = request(
                Bucket=self._bucket,
                Key=self._base + key,
                # A file is sent in blocks, each with its own timeout; for bytes the connect timeout
                # would bound the whole body.
                Body=io.BytesIO(body),
                ContentMD5=base64.b64encode(digest).decode(),
            )
            _check_stored(answer, key)

    def get(self, key: str, on_size: Callable[[int], None]) -> bytes:
        """`on_size` is called before the body is read."""
        with self._meaning(key):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._base + key)
            size = answer["ContentLength"]
            if size > limits.OBJECT_BYTES_MAX:
                answer["Body"].close()
                raise too_large(key, size)
            on_size(size)
            return _read_body(answer, key, size)

    def get_range(self, key: str, start: int, length: int) -> ObjectRange:
        assert start >= 0, start
        assert length > 0, length
        bytes_wanted = f"bytes={start}-{start + length - 1}"
        with self._meaning(key):
            try:
                answer = self._client.get_object(
                    Bucket=self._bucket, Key=self._base + key, Range=bytes_wanted
                )
            except ClientError as error:
                if not s3_answers.is_beyond_end(error):
                    raise
                # A 416 does not say the size on every store: the one case of a second request.
                return ObjectRange(data=b"", total_size=self.head(key).size)
            total_size = _check_range(answer, key, start, length)
            end = min(start + length, total_size)
            return ObjectRange(data=_read_body(answer, key, end - start), total_size=total_size)

    def list_after(self, prefix: str, after: str, limit: int) -> list[ObjectInfo]:
        listing = partial(
            self._client.list_objects_v2,
            Bucket=self._bucket,
            Prefix=self._base + prefix,
            MaxKeys=limit,
        )
        # With our base at least: an object of that name (a "folder" of some browser) is not ours.
        # Not where the prefix begins later: Garage (2.5) then shows nothing.
        start_after = self._base + after
        begins_later = start_after < self._base + prefix
        with self._meaning(prefix):
            answer = (
                listing() if begins_later or not start_after else listing(StartAfter=start_after)
            )
            return _page(answer, self._base, prefix, after)

    def head(self, key: str) -> ObjectInfo:
        with self._meaning(key):
            answer = self._client.head_object(Bucket=self._bucket, Key=self._base + key)
            return ObjectInfo(key=key, size=answer["ContentLength"])

    def delete(self, key: str) -> None:
        with contextlib.suppress(ObjectMissingError), self._meaning(key):
            self._client.delete_object(Bucket=self._bucket, Key=self._base + key)

    def signed_urls(self, keys: Sequence[str], valid_s: int) -> list[str]:
        """Signed with the store's clock, as every request is."""
        return [
            self._client.generate_presigned_url(
                "get_object",
                Params={"Bucket": self._bucket, "Key": self._base + key},
                ExpiresIn=valid_s,
            )
            for key in keys
        ]

    def signed_put(self, key: str, length: int, md5: bytes, valid_s: int) -> SignedPut:
        """The store refuses other bytes: length and digest are part of what is signed."""
        digest = base64.b64encode(md5).decode()
        url = self._client.generate_presigned_url(
            "put_object",
            Params={
                "Bucket": self._bucket,
                "Key": self._base + key,
                "ContentLength": length,
                "ContentMD5": digest,
            },
            ExpiresIn=valid_s,
        )
        return SignedPut(url, {"Content-Length": str(length), "Content-MD5": digest})

    def versioning_warning(self) -> str:
        with self._meaning("bucket versioning"):
            try:
                status = self._client.get_bucket_versioning(Bucket=self._bucket).get("Status")
            except ClientError as error:
                s3_answers.raise_unless_refused(error)
                return ""
        if status is None:
            return ""
        return (
            f"versioning is {status.lower()} on bucket {self._bucket}: some stores then ignore "
            "the condition of a create-only PUT, and deleted objects go on costing money. A new "
            "appliance needs a bucket in which it was never on, or works in mode B"
        )

    def lifecycle_warning(self) -> str:
        with self._meaning("bucket lifecycle"):
            try:
                answer = self._client.get_bucket_lifecycle_configuration(Bucket=self._bucket)
            except ClientError as error:
                s3_answers.raise_unless_refused(error)
                return ""
        names = [
            repr(rule.get("ID", "without a name"))
            for rule in answer.get("Rules", [])
            if s3_answers.takes_away(rule, self._base)
        ]
        if not names:
            return ""
        return (
            f"lifecycle rules of bucket {self._bucket} expire or move objects of the appliance "
            f"({', '.join(names)}): records would be lost. Remove the rules, or limit them to "
            "other prefixes"
        )

    def cut(self, thread: int | None = None) -> None:
        """End the request that this thread makes; None: all requests."""
        self._session.cut(thread)

    async def close(self) -> None:
        if self._puts is not None:
            await self._puts.close()
        self._client.close()

    @contextlib.contextmanager
    def _meaning(self, key: str) -> Iterator[None]:
        """Raise boto3's errors as ours. After a refused signature, sign with the store's clock."""
        try:
            yield
        except s3_answers.CLIENT_ERRORS as error:
            meaning = s3_answers.meaning(error, key, self._store_offset_s(), self._where)
            if isinstance(meaning, StoreClockSkewError):
                self._signing_offset_s = meaning.clock_offset_s
            raise meaning from error

    def _signing_time(self) -> str:
        now_s = min(self._wall_s() + self._signing_offset_s, limits.TIME_US_MAX / 1_000_000)
        return datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")

    def _note_date(self, headers: Mapping[str, str]) -> None:
        """Of an answer that just came: its Date is in whole seconds."""
        with contextlib.suppress(ValueError, OverflowError):
            if date := headers.get("date"):
                store_s = parsedate_to_datetime(date).timestamp()
                self.date_ahead_s = store_s + 0.5 - monotonic_s()

    def _store_offset_s(self) -> float:
        """The store's clock minus the one that requests are signed with."""
        if self.date_ahead_s is None:
            return 0.0
        return self.date_ahead_s + monotonic_s() - self._wall_s()

    @contextlib.contextmanager
    def _putting(self, key: str, *, create_only: bool) -> Iterator[None]:
        self._failpoints.reach("K4")
        try:
            with self._meaning(key):
                yield
        except ObjectExistsError as error:
            if create_only:
                raise
            # No condition was set, so a 412 is no answer to this request.
            raise StoreUncertainError(
                f"{key}: 412 to a PUT without a condition", key=key
            ) from error
        self._failpoints.reach("K6")


def _check_stored(answer: Any, key: str) -> None:
    meta = answer["ResponseMetadata"]
    if meta["HTTPStatusCode"] != 200 or not meta["HTTPHeaders"].get("etag"):
        # Not the answer of a store that kept the object (a captive portal answers 200, too).
        raise StoreUncertainError(
            f"{key}: the answer {meta['HTTPStatusCode']} does not describe an object", key=key
        )


def _check_range(answer: GetObjectOutputTypeDef, key: str, start: int, length: int) -> int:
    """The object's size. Raises unless the answer is exactly the range that was asked for."""
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    given = answer.get("ContentRange", "")
    match = _CONTENT_RANGE.fullmatch(given)
    if status in (200, 206) and match:  # rclone answers 200 with the right range
        first, last, total_size = (int(number) for number in match.groups())
        if first == start and last == min(start + length, total_size) - 1:
            return total_size
    answer["Body"].close()  # unread: the connection cannot be used again
    raise StoreUncertainError(
        f"{key}: asked for bytes {start}-{start + length - 1}, "
        f"the store answered {status} with Content-Range {given!r}",
        key=key,
    )


def _read_body(answer: GetObjectOutputTypeDef, key: str, size: int) -> bytes:
    """The whole body, so that the connection returns to the pool; at most one byte beyond `size`.
    The read that finds the end also checks botocore's checksum."""
    with answer["Body"] as body:
        data = body.read(size + 1)
        if len(data) != size or body.read(1):
            raise StoreUncertainError(f"{key}: {len(data)} of {size} bytes were received", key=key)
    return data


def _page(
    answer: ListObjectsV2OutputTypeDef, base: str, prefix: str, after: str
) -> list[ObjectInfo]:
    """Raises unless the listing is complete, in order and as requested: a wrong one could hide
    another writer's claim, or never end."""
    if "IsTruncated" not in answer:
        raise StoreUncertainError(f"{prefix}: the answer is not a listing", key=prefix)
    found = answer.get("Contents", [])
    page = [
        ObjectInfo(item["Key"].removeprefix(base), item["Size"], _modified_us(item))
        for item in found
    ]
    previous = after
    for item, info in zip(found, page, strict=True):
        is_below = item["Key"].startswith(base + prefix) and 0 <= info.size < 1 << 63
        if not is_below or info.key <= previous:
            raise StoreUncertainError(
                f"the store lists {item['Key']!r} ({info.size} bytes) under {base + prefix!r} "
                f"after {previous!r}",
                key=prefix,
            )
        previous = info.key
    if len(page) != answer.get("KeyCount", len(page)) or (answer["IsTruncated"] and not page):
        raise StoreUncertainError(f"{prefix}: the listing is incomplete", key=prefix)
    return page


def _modified_us(item: ObjectTypeDef) -> int | None:
    modified = item.get("LastModified")
    return None if modified is None else int(modified.timestamp() * 1_000_000)
