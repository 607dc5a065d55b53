"""Targets: bodies and headers that clients send."""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import json
import re
from typing import Final

import msgspec

from seb_appliance import limits, zstd
from seb_appliance.api.encoding.formats import media_type, negotiate
from seb_appliance.api.encoding.parameters import read_headers
from seb_appliance.api.encoding.record_bodies import parse_batches, parse_single
from seb_appliance.api.encoding.record_json import parse_json, parse_ndjson
from seb_appliance.api.encoding.trace_context import keep_traceparent
from seb_appliance.api.routes.groups.offsets import parse_offsets
from seb_appliance.api.routes.records.transactions import parse_transaction
from seb_appliance.api.server.auth import token_of
from seb_appliance.api.server.bodies import Inflater
from seb_appliance.broker.access.api_keys import ApiKeys
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import RefusedError
from seb_appliance.protocols.cloud_events import mode_of, parse_events, to_records
from seb_appliance.protocols.go import wire as go_multipart
from seb_appliance.protocols.go.wire import go_token_of
from seb_appliance.ui import forms
from tests.fuzz.formats import NUMBERS, SENT
from tests.fuzz.target import Target, tried
from tests.support.go_client import BOUNDARY, body_of
from tests.unit.formats.samples import recrc

_STEPS_MAX: Final = 8
_HEADER_LINE: Final = re.compile(rb"([!#-'*+.0-9A-Z^-z|~-]+):[ \t]*([^\r\n\0]*)")
_unpack: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def split(data: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """Lines of headers as the HTTP parser lets them through, an empty line, and a body."""
    head, _, body = data.partition(b"\n\n")
    found = (_HEADER_LINE.fullmatch(line) for line in head.split(b"\n"))
    return read_headers([(line[1].lower(), line[2]) for line in found if line]), body


def encoded(records: NewRecords) -> bytes:
    """The same as JSON, all of it in base64."""

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    shown = []
    for i, value in enumerate(records.values):
        key = records.keys[i] if records.keys else None
        packed = records.headers[i] if records.headers else b""
        record: dict[str, object] = {"headers_base64": {}}
        record |= {"value": None} if value is None else {"value_base64": text(value)}
        record |= {} if key is None else {"key_base64": text(key)}
        if packed:
            record["headers_base64"] = {name: text(v) for name, v in _unpack(packed).items()}
        shown.append(record)
    return msgspec.json.encode({"records": shown})


def _headers(records: NewRecords) -> list[dict[str, bytes]]:
    packed = records.headers or [b""] * len(records.values)
    return [_unpack(item) if item else {} for item in packed]


def same_again(records: NewRecords) -> None:
    again = parse_json(encoded(records))
    count = len(records.values)
    assert again.values == records.values
    assert (again.keys or [None] * count) == (records.keys or [None] * count)
    assert _headers(again) == _headers(records)


def check_json(data: bytes) -> None:
    """Also: what was not a string is stored as it was sent, so it must be JSON to others, too."""
    records = parse_json(data)
    same_again(records)
    sent = json.loads(data)["records"]
    for record, value in zip(sent, records.values, strict=True):
        if isinstance(record.get("value"), str):
            assert value == record["value"].encode()
        elif record.get("value") is not None:
            assert value is not None
            assert json.loads(value) == record["value"]


def check_ndjson(data: bytes) -> None:
    same_again(parse_ndjson(data))


def check_single(data: bytes) -> None:
    headers, body = split(data)
    records = keep_traceparent(parse_single(body, headers), headers)
    assert records.values == [body]
    same_again(records)


def _batches(data: bytes) -> None:
    found = parse_batches(data, limits.REQUEST_BYTES_MAX)
    assert sum(header.total_bytes for header, _ in found.batches) == len(data)


def check_batches(data: bytes) -> None:
    tried(_batches, (data, recrc(bytearray(data))))


def check_multipart(data: bytes) -> None:
    content_type, _, body = data.partition(b"\n")
    boundary = go_multipart.boundary_of(content_type)
    records = go_multipart.parse_records(body, boundary)
    values = [value for value in records.values if value is not None]
    again = body_of(values).replace(BOUNDARY.encode(), boundary)
    if boundary not in b"".join(values):
        assert go_multipart.parse_records(again, boundary).values == values


def check_cloud_events(data: bytes) -> None:
    headers, body = split(data)
    mode = mode_of(headers)
    if mode is None:
        return
    events = parse_events(mode, body, headers)
    assert events
    same_again(to_records(events))


def check_transaction(data: bytes) -> None:
    for records in parse_transaction(data)[0].produce.values():
        same_again(records)


def check_commit(data: bytes) -> None:
    asked = parse_offsets(data)
    assert parse_offsets(msgspec.json.encode(asked)) == asked


def _inflated(data: bytes, encoding: str) -> None:
    member = Inflater(encoding)
    step = member.step(data)
    steps = 1
    while not member.ended and steps < _STEPS_MAX:
        assert len(step) <= limits.MIB
        step = member.step(b"")
        steps += 1
    assert not member.ended or data.endswith(member.rest)


def check_inflating(data: bytes) -> None:
    for encoding in ("gzip", "deflate", "zstd"):
        with contextlib.suppress(RefusedError):
            _inflated(data, encoding)


def check_media_types(data: bytes) -> None:
    content_type, _, accept = data.partition(b"\n")
    offered = ("application/json", "application/x-ndjson", "application/vnd.seb.batch")
    with contextlib.suppress(RefusedError):
        assert media_type(content_type) == media_type(content_type).strip().lower()
    assert negotiate(accept, offered) in offered


def check_authorization(data: bytes) -> None:
    """No bytes are an API key: there is none."""
    keys = ApiKeys(())
    for read_token in (token_of, go_token_of):
        with contextlib.suppress(RefusedError):
            keys.authenticate(read_token(data), 0)
            raise AssertionError("it was taken")


def check_form(data: bytes) -> None:
    known = frozenset({"a", "name", "value"})
    form = forms.parse(data, known)
    assert set(form.values) <= known
    for name in form.values:
        assert form.all(name)
    assert len(form.digest) == 32


_JSON: Final = (
    b'{"records":[{"value":{"a":[1,2.5e3,null]}}]}',
    (
        b'{"records":[{"value":"h\\u00e9llo","key":"k","headers":{"n":"v"},'
        b'"timestamp":"2026-01-01T00:00:00Z"},{"value":null,"key_base64":"AAE="},'
        b'{"value_base64":"aGk=","headers_base64":{"b":"AA=="}},{"value":-12.5}]}'
    ),
)
_JSON_WORDS: Final = (
    b'"records"', b'"value"', b'"value_base64"', b'"key"', b'"key_base64"', b'"headers"', b'null',
    b'"timestamp"', b'"2026-01-01T00:00:00Z"', b"\\ud83d\\ude00", b"1e308", b"1e309", b"NaN",
    b"Infinity", b"[" * 600, b'{"a":' * 600, b'"\\"', b'"AA=="',
)  # fmt: skip
_NDJSON: Final = tuple(
    b"\n".join(msgspec.json.encode(record) for record in msgspec.json.decode(body)["records"])
    for body in _JSON
)
_HEADERS: Final = (
    b"seb-key: a%20b\nseb-header-n: 1\nseb-timestamp: 2026-01-01T00:00:00Z\n\nvalue",
    b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\nseb-key: %ff\n\n",
)
_HEADER_WORDS: Final = (b"seb-key: ", b"seb-header-", b"seb-timestamp: ", b"traceparent: ", b"%c3")
_EVENT: Final = (
    b'{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-01-01T00:00:00Z",'
    b'"subject":"k","datacontenttype":"application/json","n":7,"data":{"a":1}}'
)
_EVENTS: Final = (
    b"content-type: application/cloudevents+json\n\n" + _EVENT,
    b"content-type: application/cloudevents-batch+json\n\n[" + _EVENT + b"," + _EVENT + b"]",
    (
        b'ce-specversion: 1.0\nce-id: 1\nce-source: /s\nce-type: t\nce-subject: "a b%c3%a9"\n'
        b"content-type: text/plain\n\nhello"
    ),
)
_MULTIPART: Final = tuple(
    b"multipart/form-data; boundary=" + given + b"\n" + body_of(values)
    for given in (BOUNDARY.encode(), b'"%b"' % BOUNDARY.encode())
    for values in ([b"a"], [b"a", b"", b"bc\r\n--d"])
)
_TRANSACTION: Final = (
    b'{"produce":{"a":[{"value":1}],"b.c":[{"value":"x","key":"k"}]},"commit":{"group":"g",'
    b'"offsets":{"a":3},"metadata":{"a":"m"},"expected":{"a":null},"generation":7}}'
)
_COMMIT: Final = (
    b'{"offsets":{"t":1},"metadata":{"t":"m"},"expected":{"t":0},"topic_ids":{"t":1},'
    b'"generation":7,"allow_backward":true}'
)

TARGETS: Final = (
    Target("json", check_json, _JSON, _JSON_WORDS),
    Target("ndjson", check_ndjson, _NDJSON, _JSON_WORDS),
    Target("single", check_single, _HEADERS, _HEADER_WORDS),
    Target("batches", check_batches, SENT, NUMBERS),
    Target(
        "multipart",
        check_multipart,
        _MULTIPART,
        (b"Content-Disposition: form-data; name=", b"\r\n\r\n", b"--", BOUNDARY.encode(), b"[1]"),
    ),
    Target("cloud_events", check_cloud_events, _EVENTS, (*_JSON_WORDS, b"ce-", b"data_base64")),
    Target("transaction", check_transaction, (_TRANSACTION,), _JSON_WORDS),
    Target("commit", check_commit, (_COMMIT,), _JSON_WORDS),
    Target(
        "inflating",
        check_inflating,
        (gzip.compress(b"hello" * 50, mtime=0), zstd.compress(b"hello" * 50)),
        NUMBERS,
    ),
    Target(
        "media_types",
        check_media_types,
        (b"application/json; charset=utf-8\napplication/*;q=0.5, */*;q=0.1",),
        (b";q=", b"charset=", b"*/*", b"nan", b"inf", b"utf-16"),
    ),
    Target(
        "authorization",
        check_authorization,
        (
            b"Bearer seb_abcdefgh_0123456789012345678901234567890123456789abc_abcdef",
            b"Basic " + binascii.b2a_base64(b"user:seb_abcdefgh", newline=False),
        ),
        (b"Bearer ", b"Basic ", b"seb_"),
    ),
    Target("form", check_form, (b"name=a+b&value=%C3%A9&a=1&a=2",), (b"name", b"value", b"&")),
)
