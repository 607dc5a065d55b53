"""The journal: what both fencing modes share. Encoding, chaining, storing until it is definite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from seb_appliance.errors import (
    BadBatchError,
    FencedError,
    ObjectExistsError,
    ObjectMissingError,
    SideEffects,
    StoreUncertainError,
)
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.contents import Contents
from seb_appliance.formats.entry import (
    HEADER_BYTES,
    EncodedEntry,
    Encoder,
    Position,
    encode,
    read_header,
)
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Mode
from seb_appliance.storage.stores.object_store import ObjectStore


async def create_entry(store: RetryingStore, key: str, encoded: EncodedEntry) -> bool:
    """Create an entry: True when it is stored and ours, False when the key holds another's."""
    return await store.ask(partial(_create_once, store.raw, key, encoded))


async def _create_once(store: ObjectStore, key: str, encoded: EncodedEntry) -> bool:
    """One attempt. Raises StoreUncertainError if the outcome is not clear.

    412 may be caused by our own earlier attempt whose answer was lost. So the object is read and
    compared by entry id and header CRC, since a cloned machine repeats ids.
    """
    try:
        await store.create(key, encoded.body)
    except ObjectExistsError:
        pass
    else:
        return True
    try:
        return await is_ours(store, key, encoded)
    except ObjectMissingError as error:
        raise StoreUncertainError(f"{key}: the store answered 412, then 404", key=key) from error


async def is_ours(store: ObjectStore, key: str, encoded: EncodedEntry) -> bool:
    """Whether this very entry lies at `key`. Raises ObjectMissingError, StoreUncertainError."""
    try:
        found = read_header((await store.get_range(key, 0, HEADER_BYTES)).data)
    except BadBatchError as error:
        # Damaged in transit or in the bucket. Its writer is unknown, so nothing is decided.
        raise StoreUncertainError(f"{key} is taken by unreadable bytes", key=key) from error
    ours = encoded.entry.header
    return found.entry_id == ours.entry_id and found.header_crc == ours.header_crc


class StoredJournal:
    """`broker.ports.Journal` over an object store. Each fencing mode has its own `_store` and
    `confirm_in_force`.

    One append at a time. After a cancelled or unexpectedly failed append it is unknown whether the
    key is taken: the journal then refuses everything, and the next start finds out.
    """

    _fenced_side_effects: SideEffects
    encodes_ahead: bool

    def __init__(
        self,
        store: RetryingStore,
        failpoints: Failpoints,
        random_bytes: Callable[[int], bytes],
        *,
        mode: Mode,
        bucket_id: bytes,
        writer_id: bytes,
        epoch: int,
        position: Position,
    ) -> None:
        self.mode: Mode = mode
        self.bucket_id = bucket_id
        self.writer_id = writer_id
        self.epoch = epoch
        self.position = position
        self.durability = store.durability
        self.health = store.health
        self._object_store = store
        self._failpoints = failpoints
        self._random_bytes = random_bytes
        self._encoded = position  # after the last entry that was encoded: `position`, or one ahead
        self._refusal = ""  # why nothing is appended any more
        self._appending = False

    def encoder(self, created_us: int) -> Encoder:
        """See `broker.ports.Journal`."""
        return partial(self._encode, created_us=created_us, entry_id=self._random_bytes(16))

    def _encode(
        self, contents: Contents, parts: Sequence[Bytes], *, created_us: int, entry_id: bytes
    ) -> EncodedEntry:
        encoded = encode(
            contents,
            parts,
            after=self._encoded,
            epoch=self.epoch,
            writer_id=self.writer_id,
            entry_id=entry_id,
            bucket_id=self.bucket_id,
            created_us=max(created_us, self._encoded.created_us),
        )
        self._encoded = encoded.entry.header.position
        self._object_store.prepare(encoded.body)
        return encoded

    async def append(self, encoded: EncodedEntry) -> None:
        """See `broker.ports.Journal`."""
        assert not self._appending, "one append at a time"
        self._refuse_if_fenced()
        self._appending = True
        try:
            await self._store(encoded)
            self.position = encoded.entry.header.position
        except BaseException as error:
            if not self._refusal:
                self._refusal = f"an append was cut short ({type(error).__name__}): start again"
            raise
        finally:
            self._appending = False

    async def confirm_in_force(self) -> None:
        """See `broker.ports.Journal`."""
        raise NotImplementedError

    async def _store(self, encoded: EncodedEntry) -> None:
        """Returns once `encoded` may be applied and acknowledged; raises the error of `_fence`."""
        raise NotImplementedError

    def _fence(self, detail: str, side_effects: SideEffects | None = None) -> FencedError:
        """The error to raise. Every later call fails, too. `side_effects` None: the mode's."""
        self._refusal = detail
        return FencedError(detail, side_effects=side_effects or self._fenced_side_effects)

    def _refuse_if_fenced(self) -> None:
        if self._refusal:
            # Nothing of this call has been sent anywhere.
            raise FencedError(self._refusal, side_effects="none")
