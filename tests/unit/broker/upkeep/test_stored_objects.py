"""Objects in use, garbage, and entries that wait to be merged: their counts and bytes."""

from __future__ import annotations

from seb_appliance.broker.ports import ObjectRow
from seb_appliance.broker.upkeep.stored_objects import StoredObjects, Untidied


def test_an_object_without_a_section_in_use_is_unused_until_it_is_condemned() -> None:
    stored = StoredObjects([ObjectRow(1, "a", 100), ObjectRow(2, "b", 50)], [])
    stored.use(1, 60)
    assert stored.unused() == ["b"]
    stored.release([(1, 60)])
    assert stored.unused() == ["a", "b"]
    stored.condemn(["b"], 7)
    assert (stored.unused(), stored.garbage, stored.stored_bytes) == (["a"], {"b": 7}, 150)
    stored.remove(["b"])
    assert (stored.garbage, stored.stored_bytes) == ({}, 100)


def test_a_merged_entry_counts_as_stored_until_it_is_removed() -> None:
    untidied = Untidied([(1, 10, 0), (2, 20, 0)])
    untidied.drop(1)
    assert (untidied.total_bytes, untidied.stored_bytes) == (20, 30)
    untidied.gone(1)
    assert (untidied.total_bytes, untidied.stored_bytes) == (20, 20)
