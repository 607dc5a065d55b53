"""Which batches are stored compressed, and that their records do not change by it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.append.sealing import seal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.values import NewRecords, Prepared
from seb_appliance.formats import batch
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.columns import BinaryColumn
from seb_appliance.formats.compression import (
    BATCH_BYTES_MIN,
    LEVEL,
    MISSES_MAX,
    TRIED_EVERY,
    Compressor,
)
from seb_appliance.formats.entry import EncodedEntry
from tests.unit.broker.conftest import House
from tests.unit.formats.samples import columns, plain

TEXT = [b'{"device":"thermo-%04d","temperature":21.%d,"ok":true}' % (n, n) for n in range(50)]
NOISE = random.Random(7).randbytes(4_000)


def stored_in(encoded: EncodedEntry) -> list[Batch]:
    """The batches of an entry's sections, decoded."""
    found = []
    for section in encoded.entry.contents.sections:
        at = encoded.entry.header.sections_at + section.start
        data = encoded.body[at : at + section.length]
        found += [batch.decode(data, at) for at, _ in batch.walk(data)]
    return found


def is_compressed(found: Batch) -> bool:
    return bool(found.header.flags & batch.ZSTD)


def encoded(*values: bytes) -> bytes:
    return batch.encode(plain(*values), base_offset=3, created_us=5)


async def test_text_is_stored_compressed_and_read_back(house: House) -> None:
    await house.appended("t", *TEXT)
    (found,) = stored_in(house.journal.entries[-1])
    assert is_compressed(found)
    assert found.header.total_bytes < found.header.inflated_bytes // 2
    assert await house.values("t") == TEXT
    assert await house.values("t", max_records=3) == TEXT[:3]


async def test_what_does_not_shrink_by_a_tenth_is_stored_plain(house: House) -> None:
    await house.appended("t", NOISE)
    assert not any(map(is_compressed, stored_in(house.journal.entries[-1])))
    assert house.broker.counters.plain_bytes == 0
    assert await house.values("t") == [NOISE]


@pytest.mark.parametrize(("zeros", "pays"), [(200, False), (800, True)])
def test_a_batch_is_compressed_when_it_loses_a_tenth(zeros: int, pays: bool) -> None:
    whole = encoded(NOISE + b"\0" * zeros)
    smaller = batch.compress(whole, LEVEL)
    assert len(smaller) < len(whole)
    assert (Compressor().pack(whole) == smaller) is pays


async def test_a_topic_that_wants_none_is_stored_plain(house: House) -> None:
    await house.topic("t", compression="none")
    await house.appended("t", *TEXT)
    assert not any(map(is_compressed, stored_in(house.journal.entries[-1])))


async def test_a_change_of_the_setting_holds_for_later_windows(house: House) -> None:
    await house.topic("t", compression="none")
    await house.done(house.broker.topics.change("t", {"compression": "zstd"}))
    await house.appended("t", *TEXT)
    await house.done(house.broker.topics.change("t", {"compression": "none"}))
    await house.appended("t", *TEXT)
    kinds = [[is_compressed(b) for b in stored_in(e)] for e in house.journal.entries]
    assert [kind for kind in kinds if kind] == [[True], [False]]
    assert await house.values("t") == TEXT * 2


async def test_the_bytes_before_and_after_are_counted(house: House) -> None:
    await house.appended("t", *TEXT)
    (found,) = stored_in(house.journal.entries[-1])
    counters = house.broker.counters
    assert counters.packed_bytes == found.header.total_bytes
    assert counters.plain_bytes == batch.HEADER_BYTES + found.header.inflated_bytes


@given(columns(), st.integers(1, 200))
def test_what_goes_in_comes_out_and_never_larger(written, repeated: int) -> None:
    items = written.values.slice() * repeated
    timestamps_us = [min(t, limits.OFFSET_MAX) for t in written.timestamps_us] * repeated
    window = Window()
    records = NewRecords(items, keys=[b"k"] * len(items))
    window.add_records(1, 7, Compressor(), Prepared(records, len(items), 1, timestamps_us, 0))
    sealed = seal(window, 9)
    section, data = sealed.contents.sections[0], b"".join(sealed.parts)
    (header,) = [header for _, header in batch.walk(data)]
    read = batch.decode(data)
    assert read.columns.values.slice() == items
    assert read.columns.timestamps_us.tolist() == timestamps_us
    assert (header.base_offset, header.last_offset) == (7, 6 + len(items))
    assert (section.length, section.crc) == (len(data), batch.crc32c(data))
    assert section.length % 8 == 0
    assert sealed.packed_bytes * 10 <= sealed.plain_bytes * 9


@given(columns())
def test_compressing_changes_nothing_but_how_the_body_is_stored(written) -> None:
    last = written.offsets[-1] if written.offsets is not None else len(written) - 1
    whole = batch.encode(written, base_offset=0, created_us=5, last_offset=last)
    before, after = batch.decode(whole), batch.decode(batch.compress(whole, 1))
    assert after.offsets() == before.offsets()
    for name in ("values", "keys", "headers"):
        one, other = getattr(before.columns, name), getattr(after.columns, name)
        assert (one is None) == (other is None)
        if isinstance(one, BinaryColumn) and isinstance(other, BinaryColumn):
            assert one.slice() == other.slice()


def test_a_small_batch_is_left_as_it_is() -> None:
    small = encoded(b"x" * (BATCH_BYTES_MIN - batch.HEADER_BYTES - 40))
    assert len(small) < BATCH_BYTES_MIN
    assert Compressor().pack(small) is small


def tries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what is compressed from now on, whether it pays or not."""
    tried: list[int] = []
    compress = batch.compress

    def noting(whole: bytes, zstd_level: int) -> bytes:
        tried.append(len(whole))
        return compress(whole, zstd_level)

    monkeypatch.setattr(batch, "compress", noting)
    return tried


def test_a_topic_that_does_not_shrink_is_tried_only_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried, compressor, noise = tries(monkeypatch), Compressor(), encoded(NOISE)
    for _ in range(MISSES_MAX + 3 * TRIED_EVERY):
        assert compressor.pack(noise) is noise
    assert len(tried) == MISSES_MAX + 3


def test_one_batch_that_shrinks_makes_the_next_ones_be_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried, compressor, text = tries(monkeypatch), Compressor(), encoded(*TEXT)
    for _ in range(MISSES_MAX):
        compressor.pack(encoded(NOISE))
    packed = [compressor.pack(text) is not text for _ in range(TRIED_EVERY + 5)]
    assert packed == [False] * (TRIED_EVERY - 1) + [True] * 6
    assert len(tried) == MISSES_MAX + 6
