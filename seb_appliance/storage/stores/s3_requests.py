"""The requests to an S3 store, one each, blocking: `s3.py` makes them in threads.

Believes only an answer that is exactly what was asked for. Imports boto3: import this late.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from seb_appliance import limits
from seb_appliance.clock import monotonic_s
from seb_appliance.errors import (
    CorruptObjectError,
    ObjectExistsError,
    ObjectMissingError,
    StoreClockSkewError,
    StoreUncertainError,
)
from seb_appliance.failpoints import Failpoints
from seb_appliance.storage.stores import s3_answers, s3_client
from seb_appliance.storage.stores.object_store import ObjectInfo, ObjectRange, SignedPut

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import (
        GetObjectOutputTypeDef,
        ListObjectsV2OutputTypeDef,
        ObjectTypeDef,
        PutObjectOutputTypeDef,
    )

    from seb_appliance.storage.stores.s3_options import S3Options

_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")


class S3Requests:
    """The methods of `ObjectStore`, with its errors. `base`: what our keys begin with there."""

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
        self._client = s3_client.connect(
            options,
            connections=connections,
            failpoints=failpoints,
            signing_time_s=lambda: self._wall_s() + self._signing_offset_s,
            on_date=self._note_date,
        )

    def create(self, key: str, body: bytes) -> None:
        self._put(partial(self._client.put_object, IfNoneMatch="*"), key, body)

    def put(self, key: str, body: bytes) -> None:
        try:
            self._put(self._client.put_object, key, body)
        except ObjectExistsError as error:
            # No condition was set, so a 412 is no answer to this request.
            raise StoreUncertainError(
                f"{key}: 412 to a PUT without a condition", key=key
            ) from error

    def get(self, key: str) -> bytes:
        with self._meaning(key):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._base + key)
            if answer["ContentLength"] > limits.OBJECT_BYTES_MAX:
                answer["Body"].close()
                raise CorruptObjectError(
                    f"{key} has {answer['ContentLength']} bytes; none of ours has more than "
                    f"{limits.OBJECT_BYTES_MAX}"
                )
            return _read_body(answer, key, answer["ContentLength"])

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
        # Never without our base: an object of that very name (a "folder" that a browser made)
        # has no key of ours.
        start_after = self._base + after
        with self._meaning(prefix):
            answer = listing(StartAfter=start_after) if start_after else listing()
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
        """ "" if there is nothing to warn of."""
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
            "the condition of a create-only PUT, and deleted objects go on costing money"
        )

    def lifecycle_warning(self) -> str:
        """ "" if there is nothing to warn of."""
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
            f"({', '.join(names)}): records would be lost"
        )

    def close(self) -> None:
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

    def _note_date(self, store_s: float) -> None:
        """`store_s`: the Date of an answer that just came, in whole seconds since the epoch."""
        self.date_ahead_s = store_s + 0.5 - monotonic_s()

    def _store_offset_s(self) -> float:
        """The store's clock minus the one that requests are signed with."""
        if self.date_ahead_s is None:
            return 0.0
        return self.date_ahead_s + monotonic_s() - self._wall_s()

    def _put(self, request: Callable[..., PutObjectOutputTypeDef], key: str, body: bytes) -> None:
        self._failpoints.reach("K4")
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        with self._meaning(key):
            answer = request(
                Bucket=self._bucket,
                Key=self._base + key,
                # A file is sent in blocks, each with a time-out of its own; for bytes the connect
                # time-out would bound the whole body.
                Body=io.BytesIO(body),
                ContentMD5=base64.b64encode(digest).decode(),
            )
        status = answer["ResponseMetadata"]["HTTPStatusCode"]
        if status != 200 or not answer.get("ETag"):
            # Not what a store says that has kept the object (a captive portal answers 200, too).
            raise StoreUncertainError(f"{key}: the answer {status} names no object", key=key)
        self._failpoints.reach("K6")


def _check_range(answer: GetObjectOutputTypeDef, key: str, start: int, length: int) -> int:
    """The object's size. Raises unless the answer is exactly the range that was asked for."""
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    given = answer.get("ContentRange", "")
    match = _CONTENT_RANGE.fullmatch(given)
    if status == 206 and match:
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
    """The whole body, so that the connection goes back to the pool; of one that does not end where
    it should, no more than shows it. (Its checksum is looked at by the read that finds the end.)"""
    with answer["Body"] as body:
        data = body.read(size + 1)
        if len(data) != size or body.read(1):
            raise StoreUncertainError(f"{key}: {len(data)} bytes came of {size}", key=key)
    return data


def _page(
    answer: ListObjectsV2OutputTypeDef, base: str, prefix: str, after: str
) -> list[ObjectInfo]:
    """Raises unless the listing is whole, in order and what was asked for: an empty or a wrong
    one would hide another writer's claim, or never end."""
    if "IsTruncated" not in answer:
        raise StoreUncertainError(f"{prefix}: the answer is no listing", key=prefix)
    found = answer.get("Contents", [])
    page = [
        ObjectInfo(item["Key"].removeprefix(base), item["Size"], _modified_us(item))
        for item in found
    ]
    previous = after
    for item, info in zip(found, page, strict=True):
        if not item["Key"].startswith(base + prefix) or info.key <= previous:
            raise StoreUncertainError(
                f"the store lists {item['Key']!r} under {base + prefix!r} after {previous!r}",
                key=prefix,
            )
        previous = info.key
    if len(page) != answer.get("KeyCount", len(page)) or (answer["IsTruncated"] and not page):
        raise StoreUncertainError(f"{prefix}: the listing is not whole", key=prefix)
    return page


def _modified_us(item: ObjectTypeDef) -> int | None:
    """When the store says that the object was stored; None if it does not."""
    modified = item.get("LastModified")
    return None if modified is None else int(modified.timestamp() * 1_000_000)
