"""Entries and sections on local disk, so that the bucket is not asked twice.

Only a cache: nothing is fsynced, every read is checked by its reader, anything may be deleted at
any time. Files lie under the bucket's id, named `<seq>.entry` (a whole entry) or
`<seq>-<at>.section` (a part fetched later); the oldest go when the byte budget is used up.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from pathlib import Path

from seb_appliance.failpoints import Failpoints


def entry_name(seq: int) -> str:
    return f"{seq:020d}.entry"


class DiskCache:
    """Blocking; used from one thread at a time (`SectionSource` gives it a thread of its own)."""

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
        """Take over what an earlier process left, oldest first; remove half-written files."""
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

    def put_entry(self, seq: int, body: bytes) -> None:
        self._put(entry_name(seq), body)

    def put_section(self, seq: int, at: int, data: bytes) -> None:
        self._put(f"{seq:020d}-{at}.section", data)

    def read(self, seq: int, at: int, length: int) -> bytes | None:
        """Bytes `at` ≤ i < `at` + `length` of the entry; None when they are not here (whole)."""
        for name, begin in ((entry_name(seq), at), (f"{seq:020d}-{at}.section", 0)):
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
        """What lies here for this section is damaged."""
        self._remove(entry_name(seq))
        self._remove(f"{seq:020d}-{at}.section")

    def _put(self, name: str, data: bytes) -> None:
        if len(data) > self._limit_bytes or name in self._sizes:
            return
        self._shrink(self._limit_bytes - len(data))
        new = self._folder / f"{name}.new"
        try:
            new.write_bytes(data)
            self._failpoints.reach("K12")
            new.rename(self._folder / name)
            self._failpoints.reach("K13")
        except OSError:
            # The disk is full or failing. The record is safe in the bucket; make room and go on.
            self.failures += 1
            with contextlib.suppress(OSError):
                new.unlink()
            self._shrink(self.used_bytes // 2)
            return
        self._note(name, len(data))

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
