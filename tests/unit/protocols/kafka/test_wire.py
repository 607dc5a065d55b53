"""Messages of the Kafka protocol: they are read as they were written, and as `kio` does.

`kio` has the schemas of all messages from Kafka's own source. It does not know all the versions
that are spoken here, nor the other way round.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import itertools
import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.wire.codec import (
    APIS,
    Api,
    Field,
    codec,
    read_request,
    write_response,
)
from seb_appliance.protocols.kafka.wire.framing import Framer
from seb_appliance.protocols.kafka.wire.long_requests import steps_of_request
from seb_appliance.protocols.kafka.wire.types import NUMBERS, BadMessageError, Frame
from tests.support.kafka_client import framed

SIDES: typing.Final[tuple[Any, ...]] = ("request", "response")
# Names that Kafka changed when it gave newer versions other fields.
_RENAMED = {
    "generation_id_or_member_epoch": "generation_id",
    "results_by_topic_v3_and_below": "results_by_topic",
    "v3_and_below_producer_epoch": "producer_epoch",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_topics": "topics",
    "v3_and_below_transactional_id": "transactional_id",
}
_BITS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63}


def oracle(api: Api, version: int, side: str) -> Any:
    """The class of `kio`; None if it does not know the version."""
    known = schema_name_map[api_key_map[api.key]]
    if version not in known:
        return None
    module, _, name = known[version][EntityType[side]].partition(":")
    return getattr(importlib.import_module(module), name)


def fields_of(api: Api, side: str, version: int) -> tuple[Field, ...]:
    fields = api.request if side == "request" else api.response
    return tuple(field for field in fields if version in field.versions)


# --- any message ---


def _scalar(field: Field) -> st.SearchStrategy[Any]:
    if field.kind == "bool":
        return st.booleans()
    if field.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if field.name.endswith(("_ms", "timestamp")):  # times, which kio does not keep as numbers
        return st.integers(0, 2**31 - 1)
    if field.kind in NUMBERS:
        assert isinstance(field.kind, str)
        most = 1 << _BITS[field.kind]
        return st.integers(-most, most - 1)
    if field.kind == "uuid":
        return st.binary(min_size=16, max_size=16)
    return st.text(max_size=200) if field.kind == "str" else st.binary(max_size=200)


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    one = _scalar(field) if isinstance(field.kind, str) else messages(field.kind, version)
    if field.is_array:
        one = st.lists(one, max_size=3)
    return one | st.none() if version >= field.null_from else one


def messages(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    here = [field for field in fields if version in field.versions]
    return st.fixed_dictionaries(
        {field.name: _values(field, version) for field in here if field.tag is None},
        optional={field.name: _values(field, version) for field in here if field.tag is not None},
    )


def _without_defaults(fields: tuple[Field, ...], message: Any) -> Any:
    """A tagged field with its default is not sent by others."""
    for field in fields:
        if field.name not in message:
            continue
        value = message[field.name]
        if isinstance(field.kind, tuple) and value is not None:
            for one in value if field.is_array else [value]:
                _without_defaults(field.kind, one)
        if field.tag is not None and value in (field.default, _full(field)):
            del message[field.name]
    return message


def _full(field: Field) -> Any:
    """The default of a structure, with all its fields; of an array as it is read."""
    if field.is_array:
        return list(field.default or ())
    if isinstance(field.kind, tuple):
        return {one.name: one.default for one in field.kind}
    return field.default


def _complete(fields: tuple[Field, ...], message: Any) -> Any:
    """As it is read: with the defaults of what was not sent."""
    found = {field.name: field.default for field in fields}
    for field in fields:
        if field.name in message:
            value = message[field.name]
            if isinstance(field.kind, tuple) and value is not None:
                kind = field.kind
                value = (
                    [_complete(kind, one) for one in value]
                    if field.is_array
                    else _complete(kind, value)
                )
            found[field.name] = value
    return found


# --- the tests ---


BY_API = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)


@pytest.mark.parametrize("side", SIDES)
@BY_API
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_message_is_read_as_it_was_written_and_as_the_oracle_does(api, side, data):
    version = data.draw(st.sampled_from(api.versions))
    fields = api.request if side == "request" else api.response
    message = _without_defaults(fields, data.draw(messages(fields, version)))
    read, write = codec(api.key, version, side)
    out = bytearray()
    write(out, message)
    found, end = read(Frame(out), 0)
    assert (found, end) == (_complete(fields, message), len(out))
    if side == "request":
        assert in_steps(api.key, version, out) == found
    kind = oracle(api, version, side)
    if kind is not None:
        entity, end = entity_reader(kind)(bytes(out), 0)
        assert end == len(out)
        again = io.BytesIO()
        entity_writer(kind)(again, entity)
        assert again.getvalue() == out


@BY_API
def test_the_fields_have_the_names_of_the_oracle_in_its_order(api):
    for version, side in itertools.product(api.versions, SIDES):
        kind = oracle(api, version, side)
        if kind is not None:
            ours, theirs = _ours(fields_of(api, side, version), version), _theirs(kind)
            assert ours == theirs, (version, side)
            assert api.is_flexible(version) == kind.__flexible__


def _ours(fields: tuple[Field, ...], version: int) -> list[Any]:
    return [
        (
            field.name.removesuffix("_ms"),
            field.tag,
            field.is_array,
            _ours(tuple(f for f in field.kind if version in f.versions), version)
            if isinstance(field.kind, tuple)
            else None,
        )
        for field in sorted(fields, key=lambda field: field.tag is not None)
    ]


def _theirs(kind: Any) -> list[Any]:
    hints = typing.get_type_hints(kind)
    found = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        given_ = [one for one in typing.get_args(hint) if one is not type(None)]
        if type(None) in typing.get_args(hint):
            hint = given_[0]
        is_array = typing.get_origin(hint) is tuple
        inner = typing.get_args(hint)[0] if is_array else hint
        nested = _theirs(inner) if dataclasses.is_dataclass(inner) else None
        name = _RENAMED.get(field.name, field.name).removesuffix("_ms")
        found.append((name, field.metadata.get("tag"), is_array, nested))
    return sorted(found, key=lambda one: one[1] is not None)


@BY_API
def test_a_request_that_ends_early_is_refused(api):
    for version in api.versions:
        read, write = codec(api.key, version, "request")
        out = bytearray()
        write(out, {})
        assert read(Frame(out), 0)[1] == len(out)
        for size in range(len(out)):
            for reads in (at_once, in_steps):
                with pytest.raises(BadMessageError):
                    reads(api.key, version, Frame(out[:size]))


def at_once(key: int, version: int, message: bytes) -> Any:
    return read_request(key, version, message, 0)


def in_steps(key: int, version: int, message: bytes) -> Any:
    """What is read in many short steps, as long requests are."""
    steps = steps_of_request(key, version, Frame(message), 0)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value


def test_a_long_request_is_read_in_as_many_steps_as_its_arrays_have_elements():
    parts = [{"partition": index, "leader_epoch": 0} for index in range(100)]
    topics = [{"topic": "a", "partitions": parts}, {"topic": "b", "partitions": parts}]
    out = bytearray()
    codec(23, 4, "request")[1](out, {"topics": topics})
    assert len(list(steps_of_request(23, 4, Frame(out), 0))) == 202


def test_a_response_begins_with_its_length_and_the_number_of_its_request():
    answer = write_response(60, 0, 7, {})
    assert answer[:9] == bytes([0, 0, 0, len(answer) - 4, 0, 0, 0, 7, 0])
    # ApiVersions has the old header in every version (KIP-511).
    assert write_response(18, 3, 7, {})[4:10] == b"\0\0\0\7\0\0"


def test_an_unknown_tagged_field_is_skipped():
    out = bytearray()
    codec(60, 0, "request")[1](out, {})
    assert read_request(60, 0, Frame(out[:-1] + b"\1\x63\2ab"), 0) == read_request(
        60, 0, Frame(out), 0
    )
    with pytest.raises(BadMessageError):
        read_request(60, 0, Frame(out[:-1] + b"\1\x63\3ab"), 0)


def test_requests_come_in_any_pieces():
    sent = framed(b"0123456789") + framed(b"abcdefghijklmnop")
    for size in range(1, len(sent) + 1):
        framer, found = Framer(), []
        for at in range(0, len(sent), size):
            framer.feed(sent[at : at + size])
            while (frame := framer.next()) is not None:
                found.append(bytes(frame))
        assert found == [b"0123456789", b"abcdefghijklmnop"]
        assert framer.waiting_bytes == 0


def test_the_time_that_arrays_take_is_bounded_by_their_elements_together():
    most = kafka_limits.MESSAGE_ELEMENTS_MAX
    frame = Frame(bytes(4 * most))
    frame.count(most - 1, 0)
    frame.count(1, 0)
    with pytest.raises(BadMessageError, match="elements"):
        frame.count(1, 0)
