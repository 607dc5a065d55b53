"""The location of a table, and the names of its objects below that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from seb_appliance.broker.lake.table import LakeTable, TableHead
from seb_appliance.formats.lake.tables import ManifestName

HINT: Final = "metadata/version-hint.text"
LAST_CHECKPOINT: Final = "_delta_log/_last_checkpoint"
CHECKPOINT_EVERY: Final = 10  # commits

_DELTA: Final = re.compile(r"_delta_log/([0-9]{20})(\.checkpoint\.parquet|\.json)")
_ICEBERG: Final = re.compile(
    r"metadata/(?:v|snap-)?([0-9]+)(?:\.metadata\.json|\.avro|-m[0-9]+\.avro)"
)

# Also checkpoints in parts and compressed metadata, which we never print.
_LATER: Final = re.compile(r"_delta_log/([0-9]{20})\.([^/]+)|metadata/v([0-9]+)\.[^/]+")
_DATA: Final = re.compile(r"data/[0-9]{20}-[0-9]{20}-[0-9a-f]{16}\.parquet")


def location_of(table_id: str, topic: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", topic.lower()).strip("-")[:40] or "topic"
    return f"tables/{table_id[:8]}-{slug}/"


def data_name(first: int, last: int, name: bytes) -> str:
    return f"data/{first:020d}-{last:020d}-{name.hex()}.parquet"


def manifest_name(name: ManifestName) -> str:
    return f"metadata/{name.version}-m{name.number}.avro"


def list_name(number: int) -> str:
    """Of the manifest list of commit `number`."""
    return f"metadata/snap-{number}.avro"


def metadata_name(number: int) -> str:
    return f"metadata/v{number}.metadata.json"


def delta_name(number: int, end: str = ".json") -> str:
    """Delta counts from 0, and a table from 1."""
    return f"_delta_log/{number - 1:020d}{end}"


def has_checkpoint(number: int, delta_from: int) -> bool:
    """Whether Delta's log has a checkpoint of this commit."""
    return number % CHECKPOINT_EVERY == 0 or number == delta_from > 1


def names_in_use(table: LakeTable) -> Callable[[str], bool]:
    """Whether a kept snapshot, a reader of the newest one, or a later commit needs the object of a
    name. What someone else wrote under the name of a later commit is not removed: a repair may have
    replaced it by then."""
    head = table.head
    oldest = head.snapshots[0].number if head.snapshots else head.number
    used = {HINT, LAST_CHECKPOINT, *table.files}
    used |= {manifest_name(one.name) for one in head.manifests}
    used |= {manifest_name(name) for name, _ in head.dropped}
    used |= {list_name(one.number) for one in head.snapshots}
    used |= {metadata_name(number) for number, _ in head.times}
    # Readers of an older state begin at the checkpoint before it.
    delta_since = max(head.delta_from, oldest - oldest % CHECKPOINT_EVERY)

    def is_used(name: str) -> bool:
        log, printed = _DELTA.fullmatch(name), _ICEBERG.fullmatch(name)
        if log is not None:
            return int(log[1]) + 1 >= (delta_since if head.delta_from else head.number + 1)
        return name in used or (printed is not None and int(printed[1]) > head.number)

    return is_used


def next_names(head: TableHead) -> list[str]:
    """Of the metadata by which readers without a catalog would find a commit after the last one."""
    named = {"delta": delta_name, "iceberg": metadata_name}
    return [named[one](head.number + 1) for one in head.definition.formats]


def misleads(name: str, number: int) -> bool:
    """Whether the object of a name leads readers past commit `number`, the last one: metadata of a
    later commit, or a checkpoint of this one, unless it is printed afterwards."""
    found = _LATER.fullmatch(name)
    if found is None:
        return name == LAST_CHECKPOINT
    if found[3] is not None:
        return int(found[3]) > number
    version = int(found[1]) + 1
    return version > number or (version == number and found[2] != "json")


def unused(listed: Iterable[str], used: Mapping[str, Callable[[str], bool]]) -> list[str]:
    """Of the keys below locations those that no table needs. `used`: the names that are in use, by
    location. Another location was a table's if all names below it are such as we give; what
    somebody has put into a folder of his own stays."""
    names: dict[str, list[str]] = {}
    for key in listed:
        cut = key.index("/", key.index("/") + 1) + 1
        names.setdefault(key[:cut], []).append(key[cut:])
    return [
        location + name
        for location, found in names.items()
        if location in used or all(map(_is_ours, found))
        for name in found
        if location not in used or not used[location](name)
    ]


def _is_ours(name: str) -> bool:
    if name in (HINT, LAST_CHECKPOINT):
        return True
    return any(one.fullmatch(name) for one in (_DATA, _DELTA, _ICEBERG))


def earlier_metadata(head: TableHead) -> Iterator[tuple[str, int]]:
    """What readers of the kept snapshots need that earlier commits printed, and its length; 0 for
    one that is not known."""
    number = head.number
    if head.iceberg_from:
        since = head.iceberg_from if head.iceberg_from > 1 else 0
        for one in head.manifests:
            if since < one.name.version < number:
                yield manifest_name(one.name), one.length
        for name, _ in head.dropped:
            if since < name.version < number:
                yield manifest_name(name), 0
        for snapshot in head.snapshots:
            if since < snapshot.number < number:
                yield list_name(snapshot.number), 0
        oldest = head.snapshots[0].number if head.snapshots else 0
        for made, _ in head.times:
            if max(head.iceberg_from, oldest) <= made < number:
                yield metadata_name(made), 0
    if head.delta_from:
        begin = max(head.delta_from, number - number % CHECKPOINT_EVERY)
        if begin < number and has_checkpoint(begin, head.delta_from):
            yield delta_name(begin, ".checkpoint.parquet"), 0
        for version in range(begin, number):
            yield delta_name(version), 0


def earlier_faults(head: TableHead, sizes: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """What is gone of `earlier_metadata`, or has another length, and what is wrong with it.
    `sizes`: of the objects below the location of the table, by name."""
    for name, length in earlier_metadata(head):
        if name not in sizes:
            yield name, "it is gone"
        elif length not in (0, sizes[name]):
            yield name, f"it has {sizes[name]:,} bytes, not {length:,}"
