"""Decides which files of a table to merge, to remove, and which manifests to write anew."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from itertools import takewhile
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.lake.table import LakeFile, LakeTable, TableHead
from seb_appliance.broker.topics.topic import Topic
from seb_appliance.formats.lake.tables import MANIFEST_FILES_MAX, ManifestName

_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = limits.TABLE_MERGED_AFTER_S * 1_000_000

AgeUs = Callable[[int], int]


def by_offset(table: LakeTable) -> list[LakeFile]:
    return sorted(table.living(), key=lambda one: one.file.first_offset)


def to_merge(
    files: Sequence[LakeFile], file_bytes: int, age_us: AgeUs, unmerged: Container[str] = ()
) -> list[LakeFile]:
    """Neighbouring small files of one schema and one day (UTC) to merge into one; none if that does
    not pay yet. `files`: by offset. `unmerged`: names of those that stay apart.

    An older file joins only if it is not larger than all younger ones of the run: so a row is
    rewritten about log2(file_bytes / first size) times.
    """
    small = file_bytes // 4
    end = len(files)
    while end > 0:
        run: list[LakeFile] = []
        total = 0
        for one in reversed(files[:end]):
            fits = total + one.file.length <= file_bytes and len(run) < limits.TABLE_MERGED_MAX
            stays = one.file.length >= small or one.file.name in unmerged
            if stays or not fits or (run and not _alike(one, run[0])):
                break
            is_old = not run or age_us(run[0].file.created_us) > _HOUR_US
            if len(run) >= limits.TABLE_MERGED_MIN and one.file.length > total and not is_old:
                break
            run.insert(0, one)
            total += one.file.length
        is_due = len(run) >= limits.TABLE_MERGED_MIN
        if is_due or (len(run) > 1 and age_us(run[-1].file.created_us) > _HOUR_US):
            return run
        end -= max(len(run), 1)
    return []


def _alike(one: LakeFile, other: LakeFile) -> bool:
    a, b = one.file, other.file
    return a.schema == b.schema and a.created_us // _DAY_US == b.created_us // _DAY_US


def expired(files: Sequence[LakeFile], retention_ms: int | None, age_us: AgeUs) -> list[LakeFile]:
    """The oldest files of which every row is older than `retention_ms`. `files`: by offset."""
    if retention_ms is None:
        return []
    return list(takewhile(lambda one: age_us(one.file.created_us) > retention_ms * 1_000, files))


def stale(
    files: Sequence[LakeFile], topic: Topic, schema: int, *, rebuild: bool
) -> LakeFile | None:
    """A file to write anew from the log: its range was compacted since, or (with `rebuild`) its
    columns are not those of now. What the log does not have any more stays as it is."""
    begin = max(topic.log_start_offset, topic.fork_offset)
    for one in files:
        file = one.file
        if rebuild and file.schema != schema and file.first_offset >= topic.log_start_offset:
            return one
        if file.first_offset >= begin and any(
            run.seq > file.as_of and run.base <= file.last_offset and run.last >= file.first_offset
            for run in topic.runs
        ):
            return one
    return None


def keeps_removed_for_long(table: LakeTable, age_us: AgeUs) -> bool:
    """Whether a snapshot keeps rows that were removed too long ago."""
    snapshots = table.head.snapshots
    removed = min((one.removed for one in table.files.values() if one.removed), default=0)
    made = next((one.timestamp_ms for one in snapshots if one.number == removed), 0)
    return bool(made) and age_us(made * 1_000) > limits.TABLE_REMOVED_MS_MAX * 1_000


def rewritten(
    head: TableHead, removed: Iterable[LakeFile], *, is_whole: bool = False
) -> tuple[ManifestName, ...]:
    """The manifests that the next commit writes anew: those of the files that it removes, and the
    small ones once there are many; all of them if `is_whole`."""
    names = {one.manifest for one in removed}
    if len(head.manifests) >= limits.TABLE_MANIFESTS_MAX:
        room = MANIFEST_FILES_MAX
        for manifest in sorted(head.manifests, key=lambda one: one.living_files):
            room -= manifest.living_files
            if room >= 0:
                names.add(manifest.name)
    if is_whole:
        names.update(manifest.name for manifest in head.manifests)
    return tuple(sorted(names))


def oldest_kept(head: TableHead, snapshots: int) -> int:
    """The oldest snapshot that is kept beside the next one, of at most `snapshots`."""
    kept = head.snapshots[-(snapshots - 1) :] if snapshots > 1 else []
    return kept[0].number if kept else head.number + 1
