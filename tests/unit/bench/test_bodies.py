"""Records that prove themselves, in bodies that an appliance would take."""

from __future__ import annotations

import json

import pytest

from seb_appliance.bench.accounts import Identity, identify, make_bodies, values_of
from seb_appliance.formats import batch

KINDS = ("single", "json", "ndjson", "batch")


def values_in(kind: str, body: bytes) -> list[bytes]:
    if kind == "single":
        return [body]
    if kind == "batch":
        return list(batch.decode(body).columns.values.slice())  # type: ignore[arg-type]
    lines = [json.loads(line) for line in body.splitlines()]
    objects = lines if kind == "ndjson" else lines[0]["records"]
    return [record["value"].encode() for record in objects]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [0, 77, 2**40])
def test_a_body_holds_the_records_of_its_request(kind: str, number: int) -> None:
    count = 1 if kind == "single" else 5
    bodies = make_bodies(kind, values_of(3, count, 100), 1_700_000_000_000_000)
    values = values_in(kind, bodies.make(number))
    assert [identify(value) for value in values] == [Identity(3, number, i) for i in range(count)]
    assert {len(value) for value in values} == {100}


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_of_all_requests_are_of_one_length(kind: str) -> None:
    bodies = make_bodies(kind, values_of(3, 1, 100), 1_700_000_000_000_000)
    assert len({len(bodies.make(number)) for number in (0, 9, 10**12)}) == 1


@pytest.mark.parametrize("at", range(16, 64))
def test_a_record_with_a_changed_byte_is_not_taken_for_one(at: int) -> None:
    value = bytearray(make_bodies("single", values_of(1, 1, 64), 0).make(7))
    value[at] ^= 1
    assert identify(bytes(value)) is None


@pytest.mark.parametrize("value", [b"", b"short", b"x" * 64, b"\xff" * 64])
def test_what_is_no_record_of_ours_is_not_taken_for_one(value: bytes) -> None:
    assert identify(value) is None


def test_records_differ_in_their_filler() -> None:
    fillers = {value[32:] for producer in (0, 1) for value in values_of(producer, 10, 200)}
    assert len(fillers) == 20


def test_a_record_may_be_longer_than_the_filler_at_hand() -> None:
    assert len(values_of(0, 1, 5 * 2**20)[0]) == 5 * 2**20
