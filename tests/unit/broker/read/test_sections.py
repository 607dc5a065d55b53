"""Sections in memory: only the batches that are asked for are decoded, and only so much is kept."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from crc32c import crc32c

from seb_appliance.broker.counters import Counters
from seb_appliance.broker.ports import EntryRef, SectionRef
from seb_appliance.broker.read import sections
from seb_appliance.broker.read.sections import DecodedSection, SectionReader
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s


class Source:
    """Sections in a dict; `asked`: how often one was read."""

    def __init__(self) -> None:
        self.asked = 0
        self.data: dict[int, bytes] = {}

    def cached(self, ref: SectionRef) -> bytes | None:
        return None

    async def read(self, ref: SectionRef) -> bytes:
        self.asked += 1
        return self.data[ref.entry.seq]

    def put(self, seq: int, *, size: int = 100, damaged: int | None = None) -> SectionRef:
        """Ten compressed batches of three records each; one of them perhaps with a wrong body."""
        data = b""
        for n in range(10):
            values = [b"%d" % (3 * n + i) + b"x" * size for i in range(3)]
            columns = Columns(int64s([7] * 3), BinaryColumn.of(values))
            made = batch.encode(columns, base_offset=3 * n, created_us=1, zstd_level=1)
            data += made[:72] + b"?" + made[73:] if n == damaged else made
        self.data[seq] = data
        return SectionRef(EntryRef(seq, 1, b"W" * 16), 1, 0, 29, 0, len(data), crc32c(data))


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def reader(source: Source) -> AsyncIterator[SectionReader]:
    with ThreadPoolExecutor(1) as executor:
        yield SectionReader(source, executor, Counters())


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offset of each batch that is decoded, in that order."""
    bases: list[int] = []
    decode = batch.decode

    def noting(data: bytes, at: int, header: batch.BatchHeader) -> batch.Batch:
        bases.append(header.base_offset)
        return decode(data, at, header)

    monkeypatch.setattr(sections.batch, "decode", noting)
    return bases


def bases_of(found: DecodedSection | None) -> list[int]:
    assert found is not None
    return [item.batch.header.base_offset for item in found]


async def test_one_record_costs_the_decoding_of_its_batch_only(
    source: Source, reader: SectionReader, decoded: list[int]
) -> None:
    ref = source.put(1)
    assert bases_of(await reader.read(ref, 13, 14)) == [12] == decoded
    assert bases_of(reader.cached(ref, 14, 16)) == [12, 15] == decoded
    assert source.asked == 1


async def test_a_batch_is_decoded_once_and_the_section_is_whole_then(
    source: Source, reader: SectionReader, decoded: list[int]
) -> None:
    ref = source.put(1)
    await reader.read(ref, 5, 6)
    assert bases_of(await reader.read(ref, 0, 30)) == list(range(0, 30, 3))
    assert sorted(decoded) == list(range(0, 30, 3))
    assert len(reader.cached(ref, 7, 8) or ()) == 10
    assert (len(decoded), source.asked) == (10, 1)


async def test_a_damaged_batch_does_not_hinder_those_who_ask_for_another(
    source: Source, reader: SectionReader
) -> None:
    ref = source.put(1, damaged=4)
    assert bases_of(await reader.read(ref, 9, 12)) == [9]
    for _ in range(2):
        with pytest.raises(CorruptObjectError):
            await reader.read(ref, 12, 13)


async def test_an_error_that_comes_after_the_reader_left_is_nobodys(
    source: Source, reader: SectionReader
) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    asked, answers = asyncio.Event(), asyncio.Event()

    async def fail(ref: SectionRef) -> bytes:
        asked.set()
        await answers.wait()
        raise CorruptObjectError("damaged")

    source.read = fail  # type: ignore[method-assign]
    reading = asyncio.create_task(reader.read(source.put(1), 0, 1))
    await asked.wait()
    reading.cancel()
    answers.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.sleep(0)
    gc.collect()
    assert told == []


async def test_what_is_handed_out_as_it_is_stored_is_not_decoded(
    source: Source, reader: SectionReader, decoded: list[int]
) -> None:
    ref, ahead = source.put(1, size=100_000), source.put(2)
    reader.fetch_ahead(ahead, as_stored=True)
    found = await reader.read(ref, 4, 20, as_stored=True)
    assert bases_of(found) == [3, 6, 9, 12, 15, 18]
    data = b"".join(item.stored for item in found)
    assert data in source.data[1]
    assert len(data) == sum(item.batch.header.total_bytes for item in found)
    assert len(reader.cached(ref, 0, 30, as_stored=True) or ()) == 10
    assert len(await reader.read(ahead, 0, 30, as_stored=True)) == 10
    assert (decoded, source.asked) == ([], 2)
    assert found[0].batch.columns.values.get(0) == b"3" + b"x" * 100_000
    assert list(found[0].batch.offsets()) == [3, 4, 5]


async def test_a_damaged_batch_is_not_handed_out_as_it_is_stored(
    source: Source, reader: SectionReader
) -> None:
    ref = source.put(1, damaged=4)
    assert bases_of(await reader.read(ref, 9, 12, as_stored=True)) == [9]
    with pytest.raises(CorruptObjectError):
        await reader.read(ref, 9, 13, as_stored=True)


async def test_large_batches_are_decoded_in_a_thread(source: Source, reader: SectionReader) -> None:
    ref = source.put(1, size=100_000)
    await reader.read(ref, 0, 1)
    assert reader.cached(ref, 0, 30) is None
    assert len(await reader.read(ref, 0, 30)) == 10
    assert reader.cached(ref, 0, 30) is not None


async def test_what_is_inflated_counts_among_what_is_kept(
    source: Source, reader: SectionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections, "KEPT_BYTES", 100_000)
    a, b = source.put(1, size=3_000), source.put(2, size=3_000)
    await reader.read(a, 0, 1)
    await reader.read(b, 0, 1)
    assert reader.cached(a, 0, 1) is not None  # both lie here, with one batch of each
    await reader.read(a, 0, 20)
    await reader.read(b, 0, 20)
    assert reader.cached(a, 0, 1) is None
    assert reader.cached(b, 0, 1) is not None


async def test_a_section_that_is_larger_than_all_that_is_kept_is_not_kept(
    source: Source, reader: SectionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = source.put(1), source.put(2, size=9_000)
    monkeypatch.setattr(sections, "KEPT_BYTES", 100_000)
    await reader.read(small, 0, 30)
    await reader.read(large, 0, 1)
    assert reader.cached(large, 0, 1) is not None
    assert len(await reader.read(large, 0, 30)) == 10
    assert reader.cached(large, 0, 1) is None
    assert reader.cached(small, 0, 30) is not None
