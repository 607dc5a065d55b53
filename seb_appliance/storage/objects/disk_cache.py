"""A cache of entries and sections on local disk.

Nothing is fsynced, readers check what they read, and anything may be deleted at any time. Files are
`<seq>.entry` (a whole entry) or `<seq>-<at>.section`; the least recently used are deleted first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import OrderedDict
from pathlib import Path

from seb_appliance.failpoints import Failpoints
from seb_appliance.storage import layout
from seb_appliance.storage.stores.object_store import ObjectStore, WrappedStore

_HANDED_OUT_MAX = 100_000


def entry_name(seq: int) -> str:
    return f"{seq:020d}.entry"


def section_name(seq: int, at: int) -> str:
    return f"{seq:020d}-{at}.section"


class DiskCache:
    """Blocking; for one thread at a time (`BucketSections` has one for it)."""

    def __init__(self, folder: Path, limit_bytes: int, failpoints: Failpoints) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._failpoints = failpoints
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self.used_bytes = 0
        self.failures = 0  # writes that the disk refused
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._adopt()

    def _adopt(self) -> None:
        """Register the files of an earlier process, oldest first; remove incomplete ones."""
        found = []
        for path in self._folder.iterdir():
            if path.suffix == ".new":
                path.unlink()
            else:
                status = path.stat()
                found.append((status.st_mtime_ns, path.name, status.st_size))
        for _, name, size in sorted(found):
            self._note(name, size)
        self._shrink(self._limit_bytes)

    def put(self, name: str, data: bytes) -> None:
        """`name`: of `entry_name` or `section_name`."""
        if len(data) > self._limit_bytes or name in self._sizes:
            return
        self._shrink(self._limit_bytes - len(data))
        new = self._folder / f"{name}.new"
        try:
            with new.open("xb") as file:  # through no link that somebody made
                file.write(data)
            self._failpoints.reach("K12")
            new.rename(self._folder / name)
            self._failpoints.reach("K13")
        except OSError:
            # The disk is full or failing. The record is safe in the bucket: free space, continue.
            self.failures += 1
            with contextlib.suppress(OSError):
                new.unlink()
            self._shrink(self.used_bytes // 2)
            return
        self._note(name, len(data))

    def read(self, seq: int, at: int, length: int) -> bytes | None:
        """Bytes `at` ≤ i < `at` + `length` of the entry; None if they are not cached whole."""
        for name, begin in ((entry_name(seq), at), (section_name(seq, at), 0)):
            if name not in self._sizes:
                continue
            try:
                with (self._folder / name).open("rb") as file:
                    data = os.pread(file.fileno(), length, begin)
            except OSError:
                data = b""
            if len(data) == length:
                self._sizes.move_to_end(name)
                return data
            self._remove(name)
        return None

    def drop(self, seq: int, at: int) -> None:
        """Remove the files for this section, which are damaged."""
        self._remove(entry_name(seq))
        self._remove(section_name(seq, at))

    def _note(self, name: str, size: int) -> None:
        self._sizes[name] = size
        self.used_bytes += size

    def _shrink(self, limit_bytes: int) -> None:
        while self.used_bytes > limit_bytes and self._sizes:
            self._remove(next(iter(self._sizes)))

    def _remove(self, name: str) -> None:
        size = self._sizes.pop(name, None)
        if size is not None:
            self.used_bytes -= size
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()


class EntriesOnDisk(WrappedStore):
    """Reads whole entries from the cache in `folder`, which another process owns, if possible.

    The owner may add and remove files meanwhile; a file appears whole. Entries are not checked
    here: a caller that finds one damaged asks again, and that read goes to the bucket.
    """

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        super().__init__(store)
        self._folder = folder
        self._handed_out: set[str] = set()

    async def get(self, key: str) -> bytes:
        place = layout.parse_entry(key)
        if place is not None and key not in self._handed_out:
            try:
                body = await asyncio.to_thread((self._folder / entry_name(place[1])).read_bytes)
            except OSError:  # most often: it is not cached
                body = b""
            if body:
                if len(self._handed_out) >= _HANDED_OUT_MAX:
                    self._handed_out.clear()
                self._handed_out.add(key)
                return body
        return await self._store.get(key)
