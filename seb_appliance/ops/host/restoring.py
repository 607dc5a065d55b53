"""`seb restore` and `seb clone`: they only read the bucket of the appliance."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seb_appliance.broker.ports import LoadedState
from seb_appliance.clock import SystemClock
from seb_appliance.errors import (
    ConfigurationError,
    ObjectMissingError,
    SebError,
    StoreUnusableError,
)
from seb_appliance.ops.host.data_directory import own_data_directory
from seb_appliance.ops.host.scratch import scratch_folder
from seb_appliance.ops.host.stores import opened_store
from seb_appliance.settings import Settings
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.files import install, sqlite_errors
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bucket_info import (
    read_bucket_info,
    read_copy_marker,
    refuse_unfinished_copy,
)
from seb_appliance.storage.journal.replay import Progress
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.recovery.copying import (
    BucketCopy,
    Copied,
    Needed,
    another_history,
    needed_objects,
)
from seb_appliance.storage.recovery.rebuilding import (
    Journal,
    Rebuilder,
    Rebuilt,
    find_journal,
    last_entry_before,
)
from seb_appliance.storage.stores.store_probe import StoreTest

STATE_FILE: Final = "state.sqlite"


@dataclass(frozen=True, slots=True)
class Restored:
    """`needed`: the objects that the state needs; all of them exist."""

    rebuilt: Rebuilt
    state: LoadedState
    needed: Needed


@dataclass(frozen=True, slots=True)
class Cloned:
    restored: Restored
    copied: Copied
    target: str


async def restore(settings: Settings, data: Path, progress: Progress) -> Restored:
    """Rebuild the local state of the bucket in the directory `data`, for the next start there. The
    state comes whole or not at all, so that the same command can be repeated.

    Raises ConfigurationError if `data` already has a state or another process uses it,
    StoreUnusableError for damage.
    """
    path = data / STATE_FILE
    with own_data_directory(data):
        if path.exists():
            raise ConfigurationError(
                f"{data} already holds local state ({STATE_FILE}). Choose another directory with "
                "--data, or just start the appliance: it loads later entries from the bucket by "
                "itself."
            )
        async with _source(settings) as store:
            with _scratch(data) as scratch:
                restored = await _restored(store, scratch, None, None, progress)
                with sqlite_errors(path):
                    await asyncio.to_thread(install, scratch / STATE_FILE, path)
                return restored


async def verify(settings: Settings, progress: Progress) -> Restored:
    """The drill: what a new machine would do, in a scratch directory that is removed."""
    async with _source(settings) as store:
        with _scratch(settings.data) as scratch:
            return await _restored(store, scratch, None, None, progress)


async def drill(settings: Settings, report: Path | None, progress: Progress) -> Restored:
    """`verify`, and how it went in the file `report`, if there is one: metrics in the Prometheus
    text format, for a collector of files such as node_exporter's."""
    restored: Restored | None = None
    try:
        restored = await verify(settings, progress)
    finally:
        if report is not None:
            await asyncio.to_thread(_write_report, report, restored)
    return restored


def _write_report(path: Path, restored: Restored | None) -> None:
    """Whole or not at all."""
    gauges = {"seb_drill_success": 0.0}
    if restored is not None:
        gauges = {
            "seb_drill_success": 1.0,
            "seb_drill_seconds": round(restored.rebuilt.seconds, 3),
            "seb_drill_seq": float(restored.rebuilt.position.seq),
        }
    gauges["seb_drill_end_seconds"] = SystemClock().wall_us() // 1_000_000
    lines = [f"# TYPE {name} gauge\n{name} {value:.15g}" for name, value in gauges.items()]
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text("\n".join(lines) + "\n", encoding="ascii")
        new.replace(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path} ({error.strerror})") from error


async def clone(
    settings: Settings, into: Settings, until_seq: int | None, progress: Progress
) -> Cloned:
    """Copy the bucket of `settings`, up to entry `until_seq` (None: the newest), into that of
    `into`; with None, an earlier copy there is brought up to date. The copy is looked at, as a new
    machine would, before it can be started.

    Raises ConfigurationError, StoreUnusableError.
    """
    _require_apart(settings, into)
    async with AsyncExitStack() as stack:
        of_source = opened_store if until_seq is not None else _source
        source = await stack.enter_async_context(of_source(settings))
        target = await stack.enter_async_context(opened_store(into, must_exist=False))
        scratch = stack.enter_context(_scratch(settings.data))
        restored = await _restored(source, scratch / "source", until_seq, None, progress)
        journal = restored.rebuilt.journal
        await _require_two(source, target)
        await _require_mode(target, journal)
        earlier_seq = None
        if until_seq is None:
            earlier_seq = await _end_of_earlier_copy(target, restored, scratch, progress)
        copy = BucketCopy(
            restored.rebuilt, restored.needed, target, progress, earlier_seq=earlier_seq
        )
        copied = await copy.run()
        copied_state = await _restored(target, scratch / "target", None, journal, progress)
        if copied_state.rebuilt.position != restored.rebuilt.position:
            raise StoreUnusableError(
                f"the copy ends at entry {copied_state.rebuilt.position.seq}, not at "
                f"{restored.rebuilt.position.seq}. Run the same command again to continue."
            )
        await copy.finish()
        return Cloned(restored, copied, target.description)


async def _end_of_earlier_copy(
    target: RetryingStore, source: Restored, scratch: Path, progress: Progress
) -> int | None:
    """The last entry of a finished copy of `source` as it was earlier; None: there is none, or it
    is being brought up to date. Raises ConfigurationError if it holds other entries, since an
    appliance was started on it, or on a source that was set back: they would be overwritten."""
    if await read_copy_marker(target) is not None:
        return None
    info = await read_bucket_info(target)
    if info is None or info.id_bytes != source.rebuilt.journal.bucket_id:
        return None
    there = await _restored(target, scratch / "earlier", None, source.rebuilt.journal, progress)
    end = there.rebuilt.position
    wrote = [writer for writer in source.state.writers if writer.first_seq <= end.seq]
    is_ours = wrote and (wrote[-1].epoch, wrote[-1].writer_id) == (end.epoch, end.writer_id)
    if is_ours and end.seq <= source.rebuilt.position.seq:
        return end.seq
    raise another_history(target)


async def entry_before(settings: Settings, when_us: int) -> int:
    """The last entry that was made before that time, by the log's clock. Raises
    ConfigurationError if there is none, StoreUnusableError."""
    async with _source(settings) as store:
        seq = await last_entry_before(store, await find_journal(store), when_us)
    if seq is None:
        raise ConfigurationError(
            "no entry in the bucket is older than that time: older ones were merged and removed"
        )
    return seq


@asynccontextmanager
async def _source(settings: Settings) -> AsyncIterator[RetryingStore]:
    """The bucket to read to its end. Raises StoreUnusableError for an unfinished copy, which has
    another one."""
    async with opened_store(settings) as store:
        await refuse_unfinished_copy(store)
        yield store


async def _restored(
    store: RetryingStore,
    data: Path,
    until_seq: int | None,
    journal: Journal | None,
    progress: Progress,
) -> Restored:
    await asyncio.to_thread(data.mkdir, parents=True, exist_ok=True, mode=0o700)
    rebuilder = Rebuilder(store, clock=SystemClock(), progress=progress)
    database = await StateDatabase.open(data / STATE_FILE)
    try:
        rebuilt = await rebuilder.rebuild(
            database, data / "snapshot.fetched", until_seq=until_seq, journal=journal
        )
        state = await database.load()
    finally:
        await database.close()
    needed = await needed_objects(rebuilt, state)
    return Restored(rebuilt, state, needed)


async def _require_two(source: RetryingStore, target: RetryingStore) -> None:
    """Raises ConfigurationError if both are one bucket, under two addresses: a copy takes away
    `bucket.json` at first."""
    key = f"{layout.PROBE}{secrets.token_hex(8)}"
    await target.put(key, b"")
    try:
        await source.head(key)
    except ObjectMissingError:
        return
    finally:
        await target.delete(key)
    raise ConfigurationError(f"{source.description} and {target.description} are one bucket")


async def _require_mode(target: RetryingStore, journal: Journal) -> None:
    """A bucket's fencing mode is copied with it: the other store must allow it."""
    test = StoreTest(target, SystemClock(), secrets.token_hex(8))
    try:
        report = await test.run(journal.mode)
    except SebError as error:
        raise StoreUnusableError(f"{target.description}: {error.detail}") from error
    if report.failure:
        raise StoreUnusableError(f"{target.description} fails the store test: {report.failure}")
    if journal.mode == "A" and report.mode == "B":
        raise ConfigurationError(
            f"the bucket is in fencing mode A, which {target.description} does not allow (no "
            "create-only PUT, or versioning is on). Choose a bucket that does: seb doctor shows it."
        )


def _require_apart(settings: Settings, into: Settings) -> None:
    one, other = settings.address, into.address
    if (one.kind, one.name) != (other.kind, other.name):
        return
    if one.kind == "s3" and settings.s3_endpoint == into.s3_endpoint:
        a, b = f"{one.prefix}/", f"{other.prefix}/"
        nested = a.startswith(b) or b.startswith(a) or "/" in (a, b)
    else:
        a_path, b_path = one.path.resolve(), other.path.resolve()
        nested = one.kind == "file" and (
            a_path.is_relative_to(b_path) or b_path.is_relative_to(a_path)
        )
    if nested:
        raise ConfigurationError(
            f"{settings.bucket} and {into.bucket} must be separate: neither may be inside the other"
        )


@contextlib.contextmanager
def _scratch(within: Path) -> Iterator[Path]:
    """A directory beside the data, where there is room for it; removed at the end, with the folders
    that were made for it."""
    data = within.absolute()
    made = [folder for folder in (data, *data.parents) if not folder.exists()]
    try:
        with contextlib.ExitStack() as stack:
            try:
                data.mkdir(parents=True, exist_ok=True, mode=0o700)
                folder = stack.enter_context(scratch_folder("restore-", data))
            except OSError as error:
                raise ConfigurationError(
                    f"cannot make a folder in {data} ({error.strerror}). Check --data."
                ) from error
            yield folder
    finally:
        with contextlib.suppress(OSError):
            for above in made:
                above.rmdir()
