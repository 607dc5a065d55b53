"""Compressed records: each codec as clients send it, within the room that there is."""

from __future__ import annotations

import gzip
import resource
import struct
import sys

import cramjam
import pytest

from seb_appliance import limits, zstd
from seb_appliance.protocols.kafka.errors import KafkaError
from seb_appliance.protocols.kafka.records import reading
from seb_appliance.protocols.kafka.records.inflating import inflate
from seb_appliance.protocols.kafka.records.reading import read_batches, read_batches_in_slices
from tests.unit.protocols.kafka.golden_batches import LIBRDKAFKA, LINKED_LZ4, PYTHON
from tests.unit.protocols.kafka.record_sets import RECORDS_AT, T_MS, Sent, made, with_body

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
XERIAL = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"


def xerial(*blocks: bytes) -> bytes:
    return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


PACKERS = {
    "gzip": (GZIP, gzip.compress),
    "snappy": (SNAPPY, snappy),
    "xerial": (SNAPPY, lambda data: xerial(snappy(data[:1000]), snappy(data[1000:]))),
    "lz4": (LZ4, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (ZSTD, zstd.compress),
}


def code_of(codec: int, stored: bytes, room: int) -> int:
    with pytest.raises(KafkaError) as caught:
        inflate(codec, stored, room)
    return caught.value.code


@pytest.mark.parametrize(
    "data", [*LIBRDKAFKA.values(), *PYTHON.values()], ids=[*LIBRDKAFKA, *PYTHON]
)
def test_what_clients_have_sent_is_read(data: bytes) -> None:
    records = read_batches(data, limits.MIB).records
    assert records.values == [b"value-%d " % i * 20 for i in range(3)]
    assert records.keys == [b"key"] * 3
    assert records.timestamps_us == [(T_MS + i) * 1000 for i in range(3)]
    assert records.headers is not None


def test_blocks_of_lz4_may_depend_on_each_other() -> None:
    batch = with_body(made(Sent(), Sent()), LINKED_LZ4, LZ4)
    assert read_batches(batch, limits.MIB).records.values == [b"0123456789abcdef" * 5000] * 2


@pytest.mark.parametrize("name", PACKERS)
def test_what_fills_the_room_is_taken_and_more_refused(name: str) -> None:
    codec, pack = PACKERS[name]
    data = b"abcdefghij" * 500
    assert inflate(codec, pack(data), len(data)) == data
    assert code_of(codec, pack(data), len(data) - 1) == 10
    assert code_of(codec, pack(data), 10) == 10


@pytest.mark.parametrize("name", PACKERS)
def test_what_is_cut_short_or_goes_on_is_refused(name: str) -> None:
    codec, pack = PACKERS[name]
    stored = pack(b"abcdefghij" * 500)
    for end in (0, 1, 8, len(stored) // 2, len(stored) - 1):
        if codec != SNAPPY or end:
            assert code_of(codec, stored[:end], 10_000) == 87
    assert code_of(codec, stored + b"more", 10_000) == 87
    assert code_of(codec, b"nonsense that is long enough", 10_000) in {87, 10}


@pytest.mark.parametrize("name", PACKERS)
def test_a_bomb_takes_no_memory(name: str) -> None:
    codec, pack = PACKERS[name]
    stored = pack(bytes(100 * limits.MIB))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert code_of(codec, stored, limits.MIB) == 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 8 * limits.KIB


def test_a_snappy_block_that_lies_about_its_length_is_refused() -> None:
    block = snappy(b"abc")
    assert block[0] == 3
    assert code_of(SNAPPY, b"\x04" + block[1:], 100) == 87
    assert code_of(SNAPPY, xerial(b"\x04" + block[1:]), 100) == 87


def test_many_empty_snappy_blocks_are_refused() -> None:
    assert inflate(SNAPPY, xerial(*[b"\0"] * 64), 100) == b""
    assert code_of(SNAPPY, xerial(*[b"\0"] * 100), 100) == 87


def test_a_frame_that_needs_a_large_window_is_refused() -> None:
    options = {zstd.CompressionParameter.window_log: 25}
    packer = zstd.ZstdCompressor(options=options)
    stored = packer.compress(b"a" * 1000) + packer.flush()
    assert code_of(ZSTD, stored, limits.MIB) == 87


def test_an_unknown_codec_is_told_as_such() -> None:
    assert code_of(5, b"", 100) == 76


@pytest.mark.parametrize("codec", [SNAPPY, LZ4])
def test_without_their_decoders_snappy_and_lz4_are_told_as_unknown(
    codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert code_of(codec, b"abc", 100) == 76
    assert inflate(GZIP, gzip.compress(b"abc"), 3) == b"abc"


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("value_bytes", [10, 3 * reading._INFLATED_HERE_BYTES])
async def test_slices_give_the_same_records(name: str, value_bytes: int) -> None:
    codec, pack = PACKERS[name]
    plain = made(Sent(b"a" * value_bytes), Sent(b"b", b"k"))
    data = with_body(plain, pack(plain[RECORDS_AT:]), codec)
    assert await read_batches_in_slices(data, 2**24) == read_batches(plain, 2**24)
    for room in (10, value_bytes):
        with pytest.raises(KafkaError) as caught:
            await read_batches_in_slices(data, room)
        assert caught.value.code == 10
