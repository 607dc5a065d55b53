"""What LIST shows of the bucket: which keys are there, in little memory."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field

from seb_appliance.ops.checks.findings import Findings
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Claim, SnapshotName
from seb_appliance.storage.stores.object_store import ObjectInfo


class Runs:
    """Numbers that come in ascending order and are mostly neighbours: 16 bytes for each run."""

    def __init__(self) -> None:
        self.firsts = array("q")
        self.lasts = array("q")

    def add(self, number: int) -> None:
        if self.lasts and self.lasts[-1] == number - 1:
            self.lasts[-1] = number
        else:
            self.firsts.append(number)
            self.lasts.append(number)

    def holds(self, first: int, last: int) -> bool:
        """Whether every number from `first` to `last` is there; True when there is none."""
        if first > last:
            return True
        run = bisect_right(self.firsts, first) - 1
        return run >= 0 and last <= self.lasts[run]


@dataclass(slots=True)
class Listing:
    """Everything below our folder. `entries`: seqs, by writer in mode B; `objects`: segments and
    packed objects, by key; `adopted`: the Go broker's files that are in force, beside it."""

    entries: dict[Claim | None, Runs] = field(default_factory=dict)
    entry_count: int = 0
    entry_bytes: int = 0
    objects: dict[str, ObjectInfo] = field(default_factory=dict)
    adopted: dict[str, ObjectInfo] = field(default_factory=dict)
    snapshots: list[SnapshotName] = field(default_factory=list)
    bases: list[Claim] = field(default_factory=list)
    has_info: bool = False
    first_entry_key: str = ""

    def has_entries(self, claim: Claim | None, first: int, last: int) -> bool:
        runs = self.entries.get(claim)
        return runs.holds(first, last) if runs is not None else first > last

    @property
    def total_bytes(self) -> int:
        of_records = (*self.objects.values(), *self.adopted.values())
        return self.entry_bytes + sum(info.size for info in of_records)


async def list_bucket(store: RetryingStore, findings: Findings) -> Listing:
    """LIST our folder once, page by page. What is nobody's is a finding."""
    listing, after = Listing(), ""
    while page := await store.list_after(layout.OURS, after):
        for info in page:
            if not _take(listing, info):
                findings.add(
                    "foreign_object", info.key, f"{info.size:,} bytes at a key that is none of ours"
                )
        after = page[-1].key
    listing.snapshots.sort()
    return listing


async def list_adopted(store: RetryingStore, listing: Listing, in_force: Collection[str]) -> None:
    """LIST those files of the Go broker that are among the keys `in_force`."""
    places = (layout.parse_go_batch(key) for key in in_force)
    for name in sorted({place[0] for place in places if place is not None}):
        folder, after = f"{name}/", ""
        while page := await store.list_after(folder, after):
            listing.adopted.update((info.key, info) for info in page if info.key in in_force)
            after = page[-1].key


def _take(listing: Listing, info: ObjectInfo) -> bool:
    """Note one object; False if its key is none that an appliance makes."""
    key = info.key
    if key.startswith(layout.JOURNAL):
        place = layout.parse_entry(key)
        if place is None:
            return False
        claim, seq = place
        listing.entries.setdefault(claim, Runs()).add(seq)
        listing.entry_count += 1
        listing.entry_bytes += info.size
        listing.first_entry_key = listing.first_entry_key or key
        return True
    if key.startswith(layout.SNAPSHOTS):
        name = layout.parse_snapshot(key)
        if name is not None:
            listing.snapshots.append(name)
        return name is not None
    if key.startswith((layout.SEGMENTS, layout.PACKED)):
        if layout.epoch_of(key) is None:
            return False
        listing.objects[key] = info
        return True
    if key.startswith((layout.BASES, layout.CLAIMS)):
        claim = layout.parse_claim(key)
        if claim is not None and key.startswith(layout.BASES):
            listing.bases.append(claim)
        return claim is not None
    listing.has_info = listing.has_info or key == layout.BUCKET
    return key == layout.BUCKET or key.startswith(layout.PROBE)
