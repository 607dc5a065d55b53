"""The bounds within which `upkeep_model.py` is explored: what holds, and what each rule is for."""

from __future__ import annotations

from typing import Any

from tests.model.upkeep_model import UpkeepModel

_ONE: dict[str, Any] = {"appends": (1, 0), "jobs": (1, 0)}
_BOTH: dict[str, Any] = {"appends": (1, 1), "jobs": (1, 1), "keys": "aa"}
_DAMAGED: dict[str, Any] = {**_ONE, "snapshots": (3, 0), "bad": 1}
_ALONE: dict[str, Any] = {"takes_over": False}
_DELETED: dict[str, Any] = {"appends": (3, 0), "keys": "aAb", "reads": True, **_ALONE}
_CLUSTER: dict[str, Any] = {"keys": "ab", "jobs": (3, 0), "clusters": (1, 0), **_ALONE}

SOUND: dict[str, UpkeepModel] = {
    "A: both compact": UpkeepModel(mode="A", **_BOTH),
    "B: both compact": UpkeepModel(mode="B", **_BOTH),
    "A: compaction of what was compacted": UpkeepModel(mode="A", appends=(2, 0), jobs=(1, 1)),
    "A: a cluster compacts": UpkeepModel(mode="A", **{**_BOTH, "clusters": (1, 0)}),
    "A: retention during compaction": UpkeepModel(mode="A", trims=(1, 0), **_ALONE),
    "A: a reader during a compaction, with a tombstone": UpkeepModel(mode="A", **_DELETED),
    "A: tombstones in compaction of what was compacted": UpkeepModel(
        mode="A", **{**_DELETED, "reads": False, "jobs": (3, 0)}
    ),
}

# For a larger bound, in seconds.
SOUND_LARGER: dict[str, UpkeepModel] = {
    "A: retention by the one that took over": UpkeepModel(mode="A", **_BOTH, trims=(0, 1)),
    "B: retention by the one that took over": UpkeepModel(mode="B", **_BOTH, trims=(0, 1)),
    "A: a damaged snapshot": UpkeepModel(mode="A", **_DAMAGED),
    "B: a damaged snapshot": UpkeepModel(mode="B", **_DAMAGED),
    "B: a cluster compacts": UpkeepModel(mode="B", **{**_BOTH, "clusters": (1, 0)}),
    "A: a reader during compaction and retention": UpkeepModel(
        mode="A", reads=True, trims=(1, 0), **_ALONE
    ),
}

SOUND_AT_LENGTH: dict[str, UpkeepModel] = {
    "A: both compact and snapshot, with retention": UpkeepModel(
        mode="A", **{**_BOTH, "appends": (1, 0)}, snapshots=(1, 1), trims=(0, 1)
    ),
    "B: both compact and snapshot, with retention": UpkeepModel(
        mode="B", **{**_BOTH, "appends": (1, 0)}, snapshots=(1, 1), trims=(0, 1)
    ),
    "A: two records, a damaged snapshot": UpkeepModel(mode="A", **{**_DAMAGED, "appends": (2, 0)}),
    "B: two records, a damaged snapshot": UpkeepModel(mode="B", **{**_DAMAGED, "appends": (2, 0)}),
    # The inputs are looked at again: what a cluster reads need not be left alone for safety.
    "A: the appliance compacts what a cluster reads": UpkeepModel(
        mode="A", **_CLUSTER, leaves_held_alone=False
    ),
    "A: a reader, entries deleted": UpkeepModel(mode="A", reads=True, snapshots=(2, 0), **_ALONE),
}

BROKEN: dict[str, UpkeepModel] = {
    "with inputs deleted before the switch is stored": UpkeepModel(
        mode="A", switches_before_deleting=False
    ),
    "with a zombie that deletes what looks unused to it": UpkeepModel(
        mode="B", **_ONE, condemns_before_deleting=False
    ),
    "with a switch to what was condemned meanwhile": UpkeepModel(
        mode="A",
        **_ONE,
        clusters=(1, 0),
        spares_names_that_were_given=False,
        switch_checks_inputs=False,
    ),
    "B with a switch that counts before its claims check": UpkeepModel(
        mode="B", **_BOTH, checks_after_put=False
    ),
    "with compaction that keeps the oldest": UpkeepModel(mode="A", keeps_newest=False),
    "with tombstones that go together with what they delete": UpkeepModel(
        mode="A", **_DELETED, tombstones_outlive=False
    ),
    "with a reader that steps over what is missing": UpkeepModel(
        mode="A", **_ONE, snapshots=(2, 0), **_ALONE, reads=True, reader_looks_again=False
    ),
    "A with a take-over that does not LIST the snapshots again": UpkeepModel(
        mode="A", **_DAMAGED, checks_floor=False, checks_newest_snapshot=False
    ),
    "B with a take-over that does not LIST the snapshots again": UpkeepModel(
        mode="B", **_DAMAGED, checks_floor=False, checks_newest_snapshot=False
    ),
    "A with a take-over that looks at the floor alone, which goes back": UpkeepModel(
        mode="A", **_DAMAGED, checks_newest_snapshot=False
    ),
    "B with a take-over that looks at the floor alone, which goes back": UpkeepModel(
        mode="B", **_DAMAGED, checks_newest_snapshot=False
    ),
}

BROKEN_LARGER: dict[str, UpkeepModel] = {
    "with a switch whose inputs were replaced meanwhile": UpkeepModel(
        mode="A", **_CLUSTER, leaves_held_alone=False, switch_checks_inputs=False
    ),
}
