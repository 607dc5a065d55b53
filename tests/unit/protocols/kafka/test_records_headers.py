"""Kafka's headers in a map of text to bytes, and back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.values import pack_headers
from seb_appliance.protocols.kafka.errors import KafkaError
from seb_appliance.protocols.kafka.records.headers import RAW_HEADERS, map_of, section_of
from seb_appliance.protocols.kafka.records.layout import packed_varint
from tests.unit.protocols.kafka.record_sets import Header

names = st.binary(max_size=3) | st.sampled_from([b"a", RAW_HEADERS.encode()])
headers = st.lists(
    st.tuples(names, st.none() | st.binary(max_size=70)), max_size=limits.RECORD_HEADERS_MAX - 1
)


def section(pairs: list[Header]) -> bytes:
    parts = [packed_varint(len(pairs))]
    for name, value in pairs:
        parts += [packed_varint(len(name)), name]
        parts += [packed_varint(-1)] if value is None else [packed_varint(len(value)), value]
    return b"".join(parts)


def of(pairs: list[Header]) -> dict[str, bytes]:
    item = map_of(section(pairs))
    return msgspec.msgpack.decode(item, type=dict[str, bytes]) if item else {}


@given(headers)
def test_every_list_of_headers_comes_back_as_it_was(pairs: list[Header]) -> None:
    assert section_of(map_of(section(pairs))) == section(pairs)


def test_what_a_map_can_say_is_a_map_and_nothing_else() -> None:
    assert of([]) == {}
    assert of([(b"a", b"1"), ("é".encode(), b"")]) == {"a": b"1", "é": b""}


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([(b"a", b"1"), (b"a", b"2")], {"a": b"2"}),
        ([(b"a", b"1"), (b"b", None)], {"a": b"1"}),
        ([(b"a", b"1"), (b"\xff", b"2"), (b"\xff", None)], {"a": b"1"}),
    ],
)
def test_what_a_map_cannot_say_is_kept_beside_what_it_can(
    pairs: list[Header], said: dict[str, bytes]
) -> None:
    assert of(pairs) == said | {RAW_HEADERS: section(pairs)}


def test_a_header_of_the_name_of_ours_is_not_taken_for_ours() -> None:
    pairs: list[Header] = [(RAW_HEADERS.encode(), section([(b"x", b"y")]))]
    assert section_of(map_of(section(pairs))) == section(pairs)


@pytest.mark.parametrize("raw", [b"", b"\x02", b"\0\0", b"\x01", b"\xff" * 11, b"\x02\x02a\x03"])
def test_bytes_of_that_name_that_are_no_headers_are_a_header(raw: bytes) -> None:
    item = pack_headers({RAW_HEADERS: raw})
    assert section_of(item) == section([(RAW_HEADERS.encode(), raw)])


@pytest.mark.parametrize(
    "pairs",
    [
        [(b"%d" % i, b"") for i in range(limits.RECORD_HEADERS_MAX + 1)],
        [(b"a", bytes(limits.RECORD_HEADERS_BYTES_MAX))],
        [(b"a", bytes(limits.RECORD_HEADERS_BYTES_MAX // 2))] * 2,
    ],
)
def test_headers_beyond_their_limits_are_refused(pairs: list[Header]) -> None:
    with pytest.raises(KafkaError) as caught:
        map_of(section(pairs))
    assert caught.value.code == 87


def test_a_flood_of_headers_is_refused_before_it_is_read() -> None:
    with pytest.raises(KafkaError, match="at most 32"):
        map_of(packed_varint(10**6))


@pytest.mark.parametrize("data", [b"\x01", b"\x02\x01\0", b"\x02\x02a\x03", b"\x02\x02a", b"\0\0"])
def test_a_section_that_does_not_decode_is_refused(data: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        map_of(data)
    assert caught.value.code == 87
