"""`bucket.json`: bucket id, format versions and the fencing mode, which never change.

In mode A it is stored create-only and authoritative. In mode B the bases are authoritative
(bases.py); there it is a copy for people, corrected from the highest base.
"""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.errors import (
    ConfigurationError,
    ObjectExistsError,
    ObjectMissingError,
    StoreUnusableError,
)
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Mode

# What to do when there is local state, but no bucket.json.
NO_BUCKET_INFO: Final = (
    'Is this the right bucket? If its objects were deleted, start nothing, and see "Disasters" in '
    "docs/OPERATIONS.md. If it is meant to be new, choose a new data directory as well."
)
FORMAT_VERSIONS: Final = {"bucket": 1, "journal_entry": 1, "record_batch": 2, "snapshot": 1}


class BucketInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`bucket_id`: 16 bytes in hexadecimal."""

    bucket_id: str
    mode: Mode
    format_versions: dict[str, int] = msgspec.field(default_factory=lambda: dict(FORMAT_VERSIONS))

    @property
    def id_bytes(self) -> bytes:
        return bytes.fromhex(self.bucket_id)


def encode_bucket_info(info: BucketInfo) -> bytes:
    return msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n"


def decode_bucket_info(body: bytes) -> BucketInfo:
    """Raises StoreUnusableError for other bytes, ConfigurationError for a newer release's."""
    try:
        info = msgspec.json.decode(body, type=BucketInfo)
        well_formed = len(info.id_bytes) == 16
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise StoreUnusableError(
            f"{layout.BUCKET} in the bucket cannot be read: {error}"
        ) from error
    if not well_formed:
        raise StoreUnusableError(f"{layout.BUCKET} holds a bucket id of the wrong length")
    require_known_formats(info.format_versions, layout.BUCKET)
    return info


def require_known_formats(versions: dict[str, int], where: str) -> None:
    """Raises ConfigurationError when `versions` (named by the object `where`) are not all ours."""
    for name, version in versions.items():
        if FORMAT_VERSIONS.get(name) != version:
            raise ConfigurationError(
                f"{where} says that the bucket holds {name} version {version}, which this release "
                "does not know. Install the release that wrote it, or a newer one."
            )


async def read_bucket_info(store: RetryingStore) -> BucketInfo | None:
    try:
        body = await store.get(layout.BUCKET)
    except ObjectMissingError:
        return None
    return decode_bucket_info(body)


async def create_bucket_info(store: RetryingStore, info: BucketInfo) -> BucketInfo:
    """Create `bucket.json` in mode A, or return the one of a start that was faster."""
    assert info.mode == "A", info
    try:
        await store.create(layout.BUCKET, encode_bucket_info(info))
    except ObjectExistsError:
        found = await read_bucket_info(store)
        if found is None:
            raise StoreUnusableError(
                f"the store says that {layout.BUCKET} exists and that it does not; start again"
            ) from None
        return found
    return info


async def refuse_foreign_data(store: RetryingStore) -> None:
    """Raises ConfigurationError if the prefix holds objects that are neither ours nor a Go broker's
    topics, StoreUnusableError if it holds a journal without bucket.json. Reads only the first page
    of each top folder: a Go broker's bucket may hold very many files."""
    after, pages = "", 0
    while page := await store.list_after("", after):
        pages += 1
        if pages > limits.TOPICS_MAX:
            raise ConfigurationError(
                f"{store.description} has more than {limits.TOPICS_MAX:,} folders. Choose an empty "
                "bucket, or another prefix in it."
            )
        for found in page:
            if found.key.startswith((layout.JOURNAL, layout.SNAPSHOTS)):
                raise StoreUnusableError(
                    f"there is {found.key} but no {layout.BUCKET}: part of the bucket is missing. "
                    "Restore the bucket; nothing was changed."
                )
            if not found.key.startswith(layout.OURS) and not layout.is_go_broker_key(found.key):
                raise ConfigurationError(
                    f"{store.description} has other data ({found.key}). Choose an empty bucket, "
                    "or another prefix in it."
                )
        last = page[-1].key
        folder, slash, _ = last.partition("/")
        # "0" is the byte after "/": the next name after everything in that folder.
        after = last if folder + slash == layout.OURS or not slash else folder + "0"


class CopyMarker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`copy.json`, which exists while a copy is in progress. `bucket_id` and `until_seq`: of the
    source. `complete_seq`: the last entry of the finished copy that is brought up to date; 0: of
    none."""

    bucket_id: str
    until_seq: int
    complete_seq: int = 0


async def read_copy_marker(store: RetryingStore) -> CopyMarker | None:
    """None: no copy is in progress. Raises ConfigurationError."""
    try:
        body = await store.get(layout.COPY)
    except ObjectMissingError:
        return None
    try:
        return msgspec.json.decode(body, type=CopyMarker)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(
            f"{layout.COPY} in {store.description} cannot be read: {error}. Choose another place, "
            "or remove what is there."
        ) from error


async def refuse_unfinished_copy(store: RetryingStore) -> None:
    """Raises StoreUnusableError while a copy into this bucket is not finished."""
    lost = ""
    with contextlib.suppress(ConfigurationError):  # a mark that cannot be read is one, too
        marker = await read_copy_marker(store)
        if marker is None:
            return
        if marker.complete_seq:
            lost = (
                f" If the source is lost, seb restore --until-seq {marker.complete_seq} --into "
                "another place makes an appliance of the copy that was here before."
            )
    raise StoreUnusableError(
        f"{store.description} is an unfinished copy. Run the same copy again; it continues where "
        f"it stopped.{lost}"
    )
