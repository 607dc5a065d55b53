"""The objects that a state cannot do without, and whether the bucket still has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from seb_appliance.broker.ports import ObjectRow
from seb_appliance.start_errors import StoreUnusableError
from seb_appliance.storage import layout
from seb_appliance.storage.object_store import ObjectInfo, ObjectStore, list_all
from seb_appliance.storage.patience import Patience
from seb_appliance.storage.rebuilding import Rebuilt


@dataclass(frozen=True, slots=True)
class Needed:
    """`objects`: what a whole copy consists of, `bucket.json` left out, in the order in which it is
    to be made; entries up to `may_be_gone_seq` are among them while the bucket has them."""

    objects: tuple[ObjectInfo, ...]
    may_be_gone_seq: int

    @property
    def size_bytes(self) -> int:
        return sum(info.size for info in self.objects)


async def needed_objects(
    rebuilt: Rebuilt, rows: Sequence[ObjectRow], tidied_seq: int, patience: Patience
) -> Needed:
    """What the state `rebuilt` rests on. `rows`: the objects outside the journal in force in
    it; entries up to `tidied_seq` hold nothing that is.

    Raises StoreUnusableError that names what is not in the bucket, or not as the state knows it.
    """

    async def listed(folder: str) -> list[ObjectInfo]:
        store = cast("ObjectStore", rebuilt.view)  # only read
        return await patience.ask(partial(list_all, store, folder))

    entries = await listed(layout.JOURNAL)
    _require_entries(entries, tidied_seq, rebuilt.position.seq)
    adopted = {place[0] for row in rows if (place := layout.parse_go_batch(row.key))}
    outside = {
        info.key: info
        for folder in (layout.SEGMENTS, layout.PACKED, *(f"{name}/" for name in sorted(adopted)))
        for info in await listed(folder)
    }
    for row in rows:
        found = outside.get(row.key)
        if found is None or found.size != row.length:
            raise _missing(row.key, rebuilt.position.seq)
    found_objects = [*entries, *(outside[row.key] for row in rows)]
    for folder in (layout.SNAPSHOTS, layout.CLAIMS, layout.BASES):
        found_objects += await listed(folder)
    return Needed(tuple(found_objects), min(tidied_seq, rebuilt.floor))


def _require_entries(entries: Sequence[ObjectInfo], tidied_seq: int, end_seq: int) -> None:
    """The tidier may have merged and removed some after the entry `end_seq`."""
    places = (layout.parse_entry(info.key) for info in entries)
    seqs = {place[1] for place in places if place is not None}
    for seq in range(tidied_seq + 1, end_seq + 1):
        if seq not in seqs:
            raise _missing(f"entry {seq}", end_seq)


def _missing(what: str, end_seq: int) -> StoreUnusableError:
    return StoreUnusableError(
        f"{what} is needed for the state as of entry {end_seq}, and is not in the bucket as it was "
        "then. If it was merged and removed since, a later entry can be gone back to; else it is "
        "lost."
    )
