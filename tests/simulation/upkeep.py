"""What the appliance did to the bucket, step by step, held against the order that the model has."""

from __future__ import annotations

from collections.abc import Sequence

from seb_appliance import limits
from seb_appliance.broker.ports import EntryRef
from seb_appliance.formats.entry import Entry
from seb_appliance.formats.operations import ObjectsAdopted, ObjectsCondemned, SegmentsReplaced
from seb_appliance.storage import layout
from tests.model.upkeep_order import Order
from tests.simulation.fold import Fold

OBJECTS = (layout.SEGMENTS, layout.PACKED)


def out_of_order(
    steps: Sequence[tuple[str, str]], entries: Sequence[Entry], mode: str
) -> list[str]:
    """Sentences, of steps that should not have been taken when they were. `steps`: as
    `Bucket.steps`; `entries`: the whole log. What was stored beside the log is none of it."""
    fold, order = Fold(), Order(kept=limits.SNAPSHOTS_KEPT)
    coming = {_key(entry, mode): entry for entry in entries}
    seqs: dict[str, int] = {}  # of the entries that were stored
    for what, key in steps:
        if key.startswith(OBJECTS):
            tell = {"stored": order.object_stored, "read": order.object_read}
            tell.get(what, order.object_deleted)(key)
        elif what == "stored" and key in coming:
            entry = coming.pop(key)
            seqs[key] = entry.header.seq
            _entry_stored(order, fold, entry, mode)
        elif what == "deleted" and key in seqs:
            order.entry_deleted(seqs[key])
        elif key.startswith(layout.SNAPSHOTS) and what != "read":
            name = layout.parse_snapshot(key)
            assert name is not None
            tell_of = order.snapshot_stored if what == "stored" else order.snapshot_deleted
            tell_of(name.seq)
    return order.wrong


def _key(entry: Entry, mode: str) -> str:
    header = entry.header
    ref = EntryRef(header.seq, header.epoch, header.writer_id)
    return layout.object_key("A" if mode == "A" else "B", ref)


def _entry_stored(order: Order, fold: Fold, entry: Entry, mode: str) -> None:
    operations = entry.contents.operations
    switches = [each for each in operations if isinstance(each, SegmentsReplaced | ObjectsAdopted)]
    condemned = [k for each in operations if isinstance(each, ObjectsCondemned) for k in each.keys]
    in_force = fold.in_force if condemned else set()
    fold.apply(entry)
    order.entry_stored(
        entry.header.seq,
        is_first=mode == "A" and entry.header.is_epoch,
        made=[
            made.key for each in switches for made in each.objects if made.key.startswith(OBJECTS)
        ],
        condemned=condemned,
        tidied=fold.tidied_seq,
        in_force=in_force,
    )
