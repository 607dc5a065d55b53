"""Snapshots of the state in the bucket: list, floor, publish, fetch; and when one is due.

An object is the SQLite file in one zstd frame; its name holds the seq and the object's SHA-256.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from seb_appliance import limits, zstd
from seb_appliance.clock import Clock
from seb_appliance.errors import ConfigurationError, CorruptObjectError, StoreUnusableError
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.entry import Position
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import SnapshotName
from seb_appliance.storage.stores.object_store import list_all

_LEVEL: Final = 3
_CHUNK_BYTES: Final = limits.MIB


def floor_of(snapshots: Sequence[SnapshotName]) -> int:
    """Seq of the oldest of the three newest snapshots, 0 while there are fewer. Journal entries are
    deleted only at or below it (docs/FORMAT.md). Two snapshots of one seq count once."""
    seqs = sorted({snapshot.seq for snapshot in snapshots}, reverse=True)
    return seqs[limits.SNAPSHOTS_KEPT - 1] if len(seqs) >= limits.SNAPSHOTS_KEPT else 0


class SnapshotStore:
    """The snapshots in one bucket. Compression, hashing and file access run in threads.
    `stored_bytes`: of all that the last `list` found, less those removed since."""

    def __init__(self, store: RetryingStore, failpoints: Failpoints) -> None:
        self._store = store
        self._failpoints = failpoints
        self._sizes: dict[str, int] = {}

    @property
    def stored_bytes(self) -> int:
        return sum(self._sizes.values())

    async def list(self) -> list[SnapshotName]:
        """Every snapshot, oldest first. Raises StoreUnusableError for a key that is none."""
        found = await list_all(self._store, layout.SNAPSHOTS, most=limits.SMALL_FOLDER_OBJECTS_MAX)
        names = []
        for info in found:
            name = layout.parse_snapshot(info.key)
            if name is None:
                raise StoreUnusableError(
                    f"{info.key} is not a snapshot of this appliance: remove it"
                )
            names.append(name)
        self._sizes = {info.key: info.size for info in found}
        return sorted(names)

    async def floor(self) -> int:
        """See `floor_of`."""
        return floor_of(await self.list())

    async def fetch(self, name: SnapshotName, target: Path) -> None:
        """Write the snapshot's SQLite file to `target`; the caller removes it, also after an error.

        Raises ObjectMissingError (removed since it was listed), CorruptObjectError,
        ConfigurationError (the disk does not take it).
        """
        body = await self._store.get(name.key)
        await asyncio.to_thread(_unpack, name, body, target)

    async def publish(
        self, source: Path, position: Position, check: Callable[[Path], Awaitable[None]]
    ) -> SnapshotName:
        """Store `source` as the snapshot as of `position`, read it back, and remove old ones.

        `check` opens the file that was read back and raises CorruptObjectError if it is not a good
        state. A damaged snapshot is removed again: the floor would count it, and entries that good
        ones need could be deleted. Mode B: `source` must hold only entries whose claims check has
        passed. Uses the temporary file `<source>.read-back`.
        """
        body = await asyncio.to_thread(_pack, source)
        name = SnapshotName(position.seq, _digest(body))
        self._failpoints.reach("K14")
        # The name holds the digest: another writer that stores this key stores these bytes.
        await self._store.put(name.key, body)
        self._failpoints.reach("K15")
        read_back = source.with_name(source.name + ".read-back")
        try:
            await self.fetch(name, read_back)
            await check(read_back)
        except CorruptObjectError:
            await self._store.delete(name.key)
            raise
        finally:
            await asyncio.to_thread(read_back.unlink, missing_ok=True)
        # Keep the three newest. Safe even for a writer that was fenced meanwhile: three newer ones
        # than those that it removes are in the bucket.
        names = await self.list()
        floor = floor_of(names)
        for old in names:
            if old.seq < floor:
                await self._store.delete(old.key)
                self._sizes.pop(old.key, None)
        return name


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


def _pack(source: Path) -> bytes:
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: _LEVEL,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    compressor = zstd.ZstdCompressor(options=options)
    parts = []
    with source.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            parts.append(compressor.compress(chunk))
    parts.append(compressor.flush())
    return b"".join(parts)


def _unpack(name: SnapshotName, body: bytes, target: Path) -> None:
    if _digest(body) != name.digest:
        raise CorruptObjectError(f"{name.key} is damaged: its SHA-256 is not the one in its name")
    inflater = zstd.ZstdDecompressor()
    left = limits.SNAPSHOT_BYTES_MAX
    try:
        # Only this user may read a state, whatever the umask, and whoever made a file or a link of
        # this name before.
        target.unlink(missing_ok=True)
        with open(target, "xb", opener=partial(os.open, mode=0o600)) as file:
            chunk = inflater.decompress(body, _CHUNK_BYTES)
            while chunk:
                left -= len(chunk)
                if left < 0:
                    raise CorruptObjectError(
                        f"{name.key} inflates to more than {limits.SNAPSHOT_BYTES_MAX} bytes"
                    )
                file.write(chunk)
                chunk = b"" if inflater.eof else inflater.decompress(b"", _CHUNK_BYTES)
    except zstd.ZstdError as error:
        raise CorruptObjectError(f"{name.key} cannot be decompressed: {error}") from error
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {name.key} to {target} ({error.strerror}). Check the disk and its free "
            "space."
        ) from error
    if not inflater.eof:
        raise CorruptObjectError(f"{name.key} ends before its frame does")


class SnapshotSchedule:
    """When a snapshot is due: if replaying the tail would take over 5 s (estimated), at most one a
    minute, never without a new entry. The caller asks after applied entries; no timer runs."""

    TAIL_S_MAX: Final = 5.0

    def __init__(self, clock: Clock, *, entry_s: float, snapshot_seq: int, seq: int) -> None:
        """`entry_s`: estimated time to replay one entry; `snapshot_seq`: seq of the newest snapshot
        in the bucket (0: none); `seq`: of the last applied entry."""
        self._clock = clock
        self._entry_s = entry_s
        self.snapshot_seq = snapshot_seq
        self._seq = seq
        self._next_s = clock.monotonic_s()

    def applied(self, seq: int) -> None:
        """Entry `seq` is stored, checked and applied."""
        self._seq = seq

    @property
    def has_new_entries(self) -> bool:
        """Whether a clean stop should leave a snapshot."""
        return self._seq > self.snapshot_seq

    def due(self) -> bool:
        tail_s = (self._seq - self.snapshot_seq) * self._entry_s
        return tail_s > self.TAIL_S_MAX and self._clock.monotonic_s() >= self._next_s

    def started(self) -> None:
        """A snapshot is being made; the next attempt is a minute away even if it fails."""
        self._next_s = self._clock.monotonic_s() + limits.SNAPSHOT_INTERVAL_S_MIN

    def published(self, seq: int) -> None:
        self.snapshot_seq = max(self.snapshot_seq, seq)
