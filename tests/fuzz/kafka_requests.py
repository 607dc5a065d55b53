"""Target: whole requests of the Kafka protocol, up to their messages."""

from __future__ import annotations

import random
from typing import Any, Final

from seb_appliance.protocols.kafka.wire.codec import APIS, Field, codec, read_request
from seb_appliance.protocols.kafka.wire.framing import Framer
from seb_appliance.protocols.kafka.wire.types import BadMessageError, Frame
from tests.fuzz.formats import NUMBERS
from tests.fuzz.target import Target

_HEAD: Final = 3  # bytes that choose API, version and side


def message_of(fields: tuple[Field, ...], version: int, chance: random.Random) -> dict[str, Any]:
    """Any that can be written."""
    found = dict[str, Any]()
    for field in fields:
        if version in field.versions and (field.tag is None or chance.random() < 0.5):
            found[field.name] = (
                [_value(field, version, chance) for _ in range(chance.randrange(3))]
                if field.is_array
                else _value(field, version, chance)
            )
    return found


def _value(field: Field, version: int, chance: random.Random) -> Any:
    if isinstance(field.kind, tuple):
        return message_of(field.kind, version, chance)
    if field.kind == "str":
        return chance.choice(("", "t", "orders", "x" * 200))
    if field.kind in ("bytes", "records"):
        return chance.randbytes(chance.randrange(80))
    if field.kind == "uuid":
        return chance.randbytes(16)
    return chance.choice((0, 1)) if field.kind == "bool" else chance.choice((-1, 0, 1, 100))


def _check(data: bytes) -> None:
    if len(data) < _HEAD:
        return
    api = [*APIS.values()][data[0] % len(APIS)]
    version = api.versions[data[1] % len(api.versions)]
    message = read_request(api.key, version, Frame(data[_HEAD:]), 0)
    out = bytearray()
    codec(api.key, version, "request")[1](out, message)
    again = bytearray()
    codec(api.key, version, "request")[1](again, read_request(api.key, version, Frame(out), 0))
    assert again == out


def _check_framing(data: bytes) -> None:
    framer = Framer()
    framer.is_trusted = bool(data and data[0] & 1)
    for at in range(0, len(data), 7):
        framer.feed(data[at : at + 7])
        while framer.next() is not None:
            pass


def _seeds() -> tuple[bytes, ...]:
    chance, found = random.Random(1), []
    for number, api in enumerate(APIS.values()):
        for place, version in enumerate(api.versions):
            out = bytearray((number, place, 0))
            message = message_of(api.request, version, chance)
            codec(api.key, version, "request")[1](out, message)
            found.append(bytes(out))
    return tuple(found)


TARGETS: Final = (
    Target("kafka_requests", _check, _seeds(), NUMBERS, (BadMessageError,)),
    Target(
        "kafka_framing",
        _check_framing,
        (b"\0\0\0\x0a\0\0\0\1\0\0\0\1\xff\xff" * 3,),
        (*NUMBERS, b"\x7f\xff\xff\xff", b"\0\0\0\x0a"),
        (BadMessageError,),
    ),
)
