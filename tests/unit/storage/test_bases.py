"""What is a base, and what is damage."""

from __future__ import annotations

import msgspec
import pytest

from seb_appliance.formats.entry import ORIGIN
from seb_appliance.storage.journal.bases import decode_base, encode_base, make_base
from seb_appliance.storage.layout import Claim


@pytest.mark.parametrize("body", [b'{"a":' + b"[" * 5_000, b'{"crc32c":"\xff"}'])
def test_bytes_that_are_no_base_are_damage(body):
    with pytest.raises(ValueError, match=r"."):
        decode_base(body, Claim(1, b"w" * 16))


@pytest.mark.parametrize("field", ["bucket_id", "previous_writer"])
def test_a_base_with_an_id_that_is_none_is_damage(field):
    base = make_base(Claim(2, b"w" * 16), Claim(1, b"v" * 16), ORIGIN, b"b" * 16)
    body = encode_base(msgspec.structs.replace(base, **{field: "00"}))
    with pytest.raises(ValueError, match="an id has the wrong length"):
        decode_base(body, Claim(2, b"w" * 16))


@pytest.mark.parametrize("previous", [Claim(2, b"w" * 16), Claim(3, b"v" * 16)])
def test_a_base_that_names_no_earlier_writer_is_damage(previous):
    """A chain of such bases has no end."""
    body = encode_base(make_base(Claim(2, b"w" * 16), previous, ORIGIN, b"b" * 16))
    with pytest.raises(ValueError, match="names a later writer"):
        decode_base(body, Claim(2, b"w" * 16))
