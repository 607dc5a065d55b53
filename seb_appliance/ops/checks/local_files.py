"""The files of a data directory that no server holds: are they what the bucket gives? All of them
may be lost; `repair` puts what the bucket gives in the place of those that are not."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from seb_appliance.errors import ConfigurationError, CorruptObjectError
from seb_appliance.ops.checks.findings import Findings, Problem
from seb_appliance.ops.checks.key_index_check import FILE as KEY_INDEX
from seb_appliance.ops.checks.object_checks import check_entry
from seb_appliance.ops.checks.reference import Reference
from seb_appliance.ops.checks.state_file import StateFile, read_state
from seb_appliance.state import files
from seb_appliance.state.database import StateDatabase
from seb_appliance.storage import layout

STATE: Final = "state.sqlite"
_BESIDE: Final = ("", "-wal")


class LocalFiles:
    """`data`: the data directory, locked by us."""

    def __init__(self, data: Path, folder: Path, findings: Findings) -> None:
        self._data = data
        self._folder = folder  # for copies
        self._findings = findings
        self._state: StateFile | None = None

    @property
    def has_key_index(self) -> bool:
        return (self._data / KEY_INDEX).exists()

    @property
    def key_index(self) -> Path:
        return self._data / KEY_INDEX

    async def read_state(self) -> int | None:
        """Check a copy of the state file; the entry it is as of, to be compared with later."""
        path = self._data / STATE
        if not path.exists():
            return None
        copy = self._folder / "local.sqlite"
        for suffix in _BESIDE:
            source = path.with_name(path.name + suffix)
            if source.exists():
                await asyncio.to_thread(shutil.copyfile, source, copy.with_name(copy.name + suffix))
        try:
            self._state = await read_state(copy)
        except CorruptObjectError as error:
            self._findings.add("state_damaged", STATE, error.detail)
            return None
        finally:
            await asyncio.to_thread(files.remove, copy)
        return self._state.position.seq

    async def compare_state(self, reference: Reference) -> None:
        """The state is what replaying the journal up to its entry gives. Raises ConfigurationError
        for a data directory of another bucket."""
        found = self._state
        if found is None or found.position.seq == 0:
            return
        end_seq = (await reference.position()).seq
        if found.bucket_id != reference.bucket_id:
            raise ConfigurationError(
                f"the data directory {self._data} is of another bucket. Choose the right one with "
                "--data, or leave it out with --bucket-only."
            )
        if found.position.seq > end_seq and reference.is_whole:
            detail = f"the local state knows entry {found.position.seq}, the log ends at {end_seq}"
            self._findings.add("log_cut_short", STATE, detail)
        elif reference.is_whole and not await reference.holds(found.position):
            self._findings.add("state_differs", STATE, "its last entry is not on the log")
        else:
            digest = reference.digest_at(found.position.seq)
            if digest and found.digest and digest != found.digest:
                detail = f"it is not what the journal up to entry {found.position.seq} gives"
                self._findings.add("state_differs", STATE, detail)

    def check_cache(self, bucket_id: bytes) -> int:
        """Check the whole entries in the cache; how many. (Each read checks what it reads, too.)"""
        checked = 0
        for path in self._cached(bucket_id):
            seq = int(path.name.removesuffix(".entry"))
            verdict = check_entry(layout.create_only_key(seq), path.read_bytes(), bucket_id)
            checked += 1
            if verdict.faults:
                name = str(path.relative_to(self._data))
                self._findings.add("cache_damaged", name, verdict.faults[0])
        return checked

    def _cached(self, bucket_id: bytes) -> Iterator[Path]:
        for path in sorted((self._data / "cache" / bucket_id.hex()).glob("*.entry")):
            if path.name.removesuffix(".entry").isdigit():  # not those of segments
                yield path

    async def repair(self, reference: Reference, problems: list[Problem]) -> list[str]:
        """Put in order what is derived; what was done, in words. The bucket is not touched."""
        done: list[str] = []
        for problem in problems:
            if problem.code in ("state_damaged", "state_differs") and reference.is_whole:
                done.append(await self._replace_state(reference))
            elif problem.code in ("key_index_damaged", "key_index_differs"):
                await asyncio.to_thread(files.remove, self._data / KEY_INDEX)
                done.append(f"{KEY_INDEX} was removed: the next start makes it anew from the log")
            elif problem.code == "cache_damaged":
                (self._data / problem.subject).unlink(missing_ok=True)
                done.append(f"{problem.subject} was removed: it is fetched again when it is read")
        return done

    async def _replace_state(self, reference: Reference) -> str:
        path, fresh = self._data / STATE, self._folder / "fresh.sqlite"
        position = await reference.database.save(fresh)
        moved_to = await asyncio.to_thread(files.move_aside, path)
        try:
            database = await StateDatabase.open(path)
            await database.restore(fresh)
            await database.close()
        finally:
            await asyncio.to_thread(files.remove, fresh)
        return (
            f"{STATE} was made anew from the bucket, as of entry {position.seq}; "
            f"the old one is {moved_to.name}"
        )
