"""Which objects below `tables/` nothing needs."""

from __future__ import annotations

from seb_appliance.broker.lake.names import (
    HINT,
    LAST_CHECKPOINT,
    data_name,
    delta_name,
    list_name,
    manifest_name,
    metadata_name,
    unused,
)
from seb_appliance.formats.lake.tables import ManifestName

OURS = (
    HINT,
    LAST_CHECKPOINT,
    data_name(0, 9, bytes(8)),
    manifest_name(ManifestName(3, 0)),
    list_name(3),
    metadata_name(3),
    delta_name(10),
    delta_name(10, ".checkpoint.parquet"),
)


def test_a_folder_that_was_never_a_table_is_left_alone() -> None:
    dropped = [f"tables/0123abcd-orders/{name}" for name in OURS]
    theirs = [f"tables/20261129-orders/{name}" for name in ("part-0.parquet", delta_name(1))]
    assert unused([*dropped, *theirs], {}) == dropped


def test_below_a_table_all_goes_that_it_does_not_need() -> None:
    place = "tables/0123abcd-orders/"
    listed = [place + name for name in (metadata_name(1), metadata_name(2), "mine")]
    assert unused(listed, {place: metadata_name(2).__eq__}) == [listed[0], listed[2]]
