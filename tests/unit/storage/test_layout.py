"""Which keys in the bucket are ours."""

from __future__ import annotations

import pytest

from seb_appliance.storage import layout
from seb_appliance.storage.layout import Mode
from tests.golden.buckets import stored_at, unpack

SEGMENT = layout.segment_key(7, 0, 99, 3, b"\1" * 8)


@pytest.mark.parametrize("digit", ["٣", "߁", "৩"])
def test_a_key_with_digits_beyond_ascii_is_none_of_ours(digit: str) -> None:
    """They are numbers to Python: such a key would be taken for another one."""
    assert layout.parse_entry(layout.create_only_key(17)) == (None, 17)
    assert layout.parse_entry(layout.create_only_key(17).replace("1", digit)) is None
    snapshot = layout.SnapshotName(17, "0" * 16).key
    assert layout.parse_snapshot(snapshot) is not None
    assert layout.parse_snapshot(snapshot.replace("1", digit)) is None
    claim = layout.claim_key(layout.Claim(1, b"w" * 16))
    assert layout.parse_claim(claim) is not None
    assert layout.parse_claim(claim.replace("0000000001", f"000000000{digit}")) is None
    assert layout.epoch_of(SEGMENT) == 3
    assert layout.epoch_of(SEGMENT.replace("-3-", f"-{digit}-")) is None


@pytest.mark.parametrize(("number", "spelled"), [("/7/", "/07/"), ("-3-", "-03-")])
def test_a_number_in_a_key_has_one_spelling(number: str, spelled: str) -> None:
    assert layout.is_key_of(SEGMENT, 7, 0, 99)
    assert not layout.is_key_of(SEGMENT.replace(number, spelled), 7, 0, 99)
    assert layout.epoch_of(SEGMENT.replace(number, spelled)) is None


@pytest.mark.parametrize("mode", ["A", "B"])
def test_our_keys_have_one_order_by_bytes_and_folder_by_folder(mode: Mode) -> None:
    """SeaweedFS lists folder by folder: "a/b" before "a-b". In our own folders that is the same."""
    keys = list(unpack(stored_at(mode).read_bytes()))
    keys += [
        f"tables/{number:08x}-orders-{number}/data/a.parquet" for number in (1, 9, 10, 16, 256)
    ]
    keys += [layout.segment_key(topic, 1, 2, 3, bytes(8)) for topic in (1, 2, 10, 19, 100)]
    assert sorted(keys) == sorted(keys, key=lambda key: key.split("/"))


def test_an_entry_of_a_number_that_no_state_can_hold_is_none() -> None:
    """One such object ended `seb fsck` with a traceback."""
    assert layout.parse_entry(layout.create_only_key((1 << 63) - 1)) == (None, (1 << 63) - 1)
    assert layout.parse_entry(layout.create_only_key(1 << 63)) is None


def test_a_key_that_leads_out_of_its_table_is_none_of_a_table() -> None:
    location = "tables/00000007-a/"
    assert layout.may_be_deleted(location + "data/..a")
    for name in ("../../_seb/bucket.json", "data/../x", "./x", "x/..", "a/./b"):
        assert not layout.is_of_table(location + name), name
        assert not layout.may_be_deleted(location + name), name
