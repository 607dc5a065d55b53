"""Requests that are known again, and those that only look like it."""

from __future__ import annotations

import pytest

from seb_appliance.protocols.kafka.wire.codec import APIS, codec, read_request, write_response
from seb_appliance.protocols.kafka.wire.repeats import FETCH, PRODUCE, Repeats
from seb_appliance.protocols.kafka.wire.templates import Template
from seb_appliance.protocols.kafka.wire.types import Frame
from tests.support.kafka_client import head, of, to

VERSIONS = APIS[PRODUCE].versions


def frame_of(key, version, body, correlation_id=1):
    out = bytearray(head(APIS[key], version, correlation_id))
    at = len(out)
    codec(key, version, "request")[1](out, body)
    return Frame(out), at


def knowing(key, version, body):
    """What has read this request."""
    repeats, (frame, at) = Repeats(), frame_of(key, version, body)
    repeats.keep(key, version, frame, at, read_request(key, version, frame, at))
    return repeats


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 16_381, 16_382, 16_383, 70_000])
def test_produce_with_other_records_is_read_as_if_it_was_the_first(version, size):
    repeats = knowing(PRODUCE, version, to("orders", b"first", transactional_id="mine"))
    body = to("orders", b"r" * size, transactional_id="mine")
    frame, at = frame_of(PRODUCE, version, body, correlation_id=2)
    assert repeats.find(PRODUCE, frame) == read_request(PRODUCE, version, frame, at)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "other",
    [
        to("orders", b"r", index=1),
        to("order2", b"r"),
        to("orders", b"r", acks=1),
        to("orders", b"r", timeout_ms=1),
        to("orders", b"r", transactional_id="mine"),
        to("orders", None),
    ],
)
def test_produce_that_differs_in_anything_else_is_not_known(version, other):
    repeats = knowing(PRODUCE, version, to("orders", b"first"))
    assert repeats.find(PRODUCE, frame_of(PRODUCE, version, other)[0]) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_produce_that_ends_early_or_late_is_not_known(version):
    repeats = knowing(PRODUCE, version, to("orders", b"first"))
    whole, _ = frame_of(PRODUCE, version, to("orders", b"second"))
    for cut in range(10, len(whole)):
        assert repeats.find(PRODUCE, Frame(whole[:cut])) is None, cut
    assert repeats.find(PRODUCE, Frame(whole + b"\0")) is None


def test_produce_in_another_version_or_of_several_partitions_is_not_known():
    repeats = knowing(PRODUCE, 8, to("orders", b"first"))
    assert repeats.find(PRODUCE, frame_of(PRODUCE, 7, to("orders", b"first"))[0]) is None
    body = to("orders", b"first")
    body["topic_data"] *= 2
    assert knowing(PRODUCE, 8, body).find(PRODUCE, frame_of(PRODUCE, 8, body)[0]) is None


def test_a_fetch_is_known_if_nothing_but_its_correlation_id_differs():
    body = of(("orders", 0, 7), max_wait_ms=500)
    repeats = knowing(FETCH, 12, body)
    frame, at = frame_of(FETCH, 12, body, correlation_id=2)
    assert repeats.find(FETCH, frame) == read_request(FETCH, 12, frame, at)
    assert repeats.find(FETCH, frame) is repeats.find(FETCH, frame)
    for other in (of(("orders", 0, 8), max_wait_ms=500), of(("orders", 0, 7), max_wait_ms=501)):
        assert repeats.find(FETCH, frame_of(FETCH, 12, other)[0]) is None
    assert repeats.find(FETCH, frame_of(FETCH, 11, body)[0]) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [0, 1, -1, 255, 2**62])
def test_a_template_gives_what_is_written_for_a_number(version, offset):
    def answer(number):
        part = {"index": 3, "base_offset": number}
        return {"responses": [{"name": "orders", "partition_responses": [part]}]}

    template = Template(PRODUCE, version, answer)
    assert template.response(5, offset) == write_response(PRODUCE, version, 5, answer(offset))
    assert template.response(6, 1) == write_response(PRODUCE, version, 6, answer(1))
