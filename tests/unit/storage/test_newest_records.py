"""Which records are the newest of their record key: as a dictionary says, in little memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.storage.objects.compacting import NewestRecords

keys = st.none() | st.binary(max_size=3)


def expected(all_keys: list[bytes | None]) -> list[int]:
    newest = {key: i for i, key in enumerate(all_keys) if key is not None}
    return sorted([*newest.values(), *(i for i, key in enumerate(all_keys) if key is None)])


@given(st.lists(st.lists(keys, max_size=20), max_size=20), st.sampled_from([200, 1_000, 1 << 20]))
def test_the_newest_of_each_record_key_stays_whatever_fits_memory(
    batches: list[list[bytes | None]], memory_bytes: int
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(limits, "COMPACTION_KEYS_BYTES", memory_bytes),
        patch.object(limits, "COMPACTION_SORTED_FILES_MAX", 3),
    ):
        newest = NewestRecords(Path(folder))
        for batch in batches:
            newest.add(batch)
        survivors = newest.finish()
    all_keys = [key for batch in batches for key in batch]
    assert survivors.among(0, len(all_keys)) == expected(all_keys)
    assert survivors.count == len(expected(all_keys))


def test_many_record_keys_are_sorted_in_files_that_have_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMPACTION_KEYS_BYTES", 10_000)
    newest = NewestRecords(tmp_path)
    for n in range(50):
        newest.add([b"key-%d" % (i * 7919 % 1_000) for i in range(n * 40, n * 40 + 40)])
    assert len(newest._sorted) > 3
    assert list(tmp_path.iterdir()) == []
    assert newest.finish().count == 1_000
