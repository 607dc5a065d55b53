"""Targets: what senders of other projects send, log shippers and webhooks.

A first line chooses the media type, or what else the request says beside its body.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
from typing import Final

import cramjam
import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.parameters import read_query
from seb_appliance.api.encoding.plain_bodies import PARAMETERS, BodyReader, text_at
from seb_appliance.api.server.bodies import decode_json
from seb_appliance.broker.access.api_keys import ApiKeys
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import RefusedError, UnauthenticatedError
from seb_appliance.protocols.inlets.inlets import InletWanted, check_settings
from seb_appliance.protocols.inlets.settings import Verify
from seb_appliance.protocols.inlets.verifying import (
    HMAC_SCHEMES,
    Delivery,
    check,
    check_secret,
    sign_standard,
)
from seb_appliance.protocols.push import confluent, loki, otlp, splunk
from seb_appliance.protocols.push.pushing import Bounds, Pushed, Sent
from tests.fuzz.requests import same_again, split
from tests.fuzz.target import Target, tried
from tests.http.test_push import loki_json, loki_protobuf

_BOUNDS: Final = Bounds(limits.RECORD_BYTES_DEFAULT, limits.REQUEST_BYTES_MAX, 2 * 10**15)
_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"


def _sent(media_type: str) -> Sent:
    return Sent({b"content-type": media_type.encode()}, {"source": "s"}, {"topic": "t"})


def _stored(pushed: Pushed) -> NewRecords | None:
    """None if there is no record."""
    if not pushed.values:
        return None
    records = pushed.records()
    given = (len(value or b"") for value in (*pushed.values, *pushed.keys, *pushed.headers))
    assert pushed.size_bytes == sum(given)
    same_again(records)
    return records


def _is_json(value: bytes) -> None:
    """To others, too: those who nest as deeply."""
    with contextlib.suppress(RecursionError):
        json.loads(value)


# --- push protocols ---


def check_otlp(data: bytes) -> None:
    """A record is a request of OTLP with this log record alone."""
    chosen, body = data[:1], data[1:]
    pushed = otlp.read(body, _sent(_JSON if chosen == b"j" else _PROTOBUF), _BOUNDS)
    _stored(pushed)
    for value, at_us in zip(pushed.values, pushed.timestamps_us, strict=True):
        assert value is not None
        again = otlp.read(value, _sent(_JSON), _BOUNDS)
        assert (again.values, again.timestamps_us) == ([value], [at_us])
        _is_json(value)


def _loki(body: bytes, media_type: str) -> None:
    loki.LOKI.inflated_bytes(body, media_type)
    records = _stored(loki.read(body, _sent(media_type), _BOUNDS))
    assert records is None or records.keys is None


def check_loki(data: bytes) -> None:
    """A body of protobuf is also tried as the contents of a snappy block."""
    if data[:1] == b"j":
        _loki(data[1:], _JSON)
        return
    block = bytes(cramjam.snappy.compress_raw(data[1:]))
    tried(lambda body: _loki(body, _PROTOBUF), (data[1:], block))


def check_loki_labels(data: bytes) -> None:
    found = loki.labels_of(data.decode("utf-8", "replace"))
    written = ", ".join(f"{name}={json.dumps(text)}" for name, text in found.items())
    assert loki.labels_of(f"{{{written}}}") == found


def check_splunk(data: bytes) -> None:
    records = _stored(splunk.read_events(data, _sent(_JSON), _BOUNDS))
    for value in () if records is None else records.values:
        with contextlib.suppress(ValueError):  # a text is stored as its UTF-8
            _is_json(value or b"")


def check_splunk_raw(data: bytes) -> None:
    records = _stored(splunk.read_raw(data, _sent("text/plain"), _BOUNDS))
    if records is not None:
        assert b"\n" not in b"".join(value or b"" for value in records.values)


def check_confluent(data: bytes) -> None:
    """`b`: keys and values in base64."""
    kind = "binary" if data[:1] == b"b" else "json"
    pushed = confluent.read(data[1:], _sent(f"application/vnd.kafka.{kind}.v2+json"), _BOUNDS)
    _stored(pushed)
    if kind == "json":
        with contextlib.suppress(RecursionError):
            _same_values(json.loads(data[1:])["records"], pushed)


def _same_values(sent: list[dict[str, object]], pushed: Pushed) -> None:
    for record, value in zip(sent, pushed.values, strict=True):
        given = record.get("value")
        if isinstance(given, str):
            assert value == given.encode()
        elif given is not None:
            assert json.loads(value or b"") == given


# --- bodies as they are ---


def check_plain(data: bytes) -> None:
    """A query, headers, an empty line and a body: `body=items` in whatever form."""
    query_string, _, rest = data.partition(b"\n")
    query = read_query(query_string, frozenset(PARAMETERS))
    reader = BodyReader.of(query, "value")
    if reader is None:
        return
    headers, body = split(rest)
    records = reader.parse(body, headers)
    same_again(records)
    if reader.shape == "value":
        assert records.values == [body]
    elif reader.shape == "items":
        for value in records.values:
            _is_json(value or b"")
    else:
        assert not any(b"\n" in (value or b"") for value in records.values)
    if reader.key is not None:
        assert text_at(records.values[0] or b"", reader.key) == (records.keys or [None])[0]


# --- inlets ---

_settings_decoder: Final = msgspec.json.Decoder(InletWanted)
_SECRET: Final = "whsec_" + base64.b64encode(b"s" * 24).decode()
_NOW_S: Final = 1_763_900_000
_SCHEMES: Final = (
    *(Verify(scheme=scheme) for scheme in HMAC_SCHEMES),  # type: ignore[arg-type]
    Verify(scheme="hmac", header="X-Signature", algorithm="sha512", prefix="v="),
    Verify(scheme="hmac", header="X-Signature", algorithm="sha1", encoding="base64"),
    Verify(scheme="token", header="X-Token", prefix="t "),
    Verify(scheme="proxy", header="X-Name"),
    Verify(scheme="basic", user="u"),
    Verify(scheme="path"),
)


def check_inlet_settings(data: bytes) -> None:
    wanted = decode_json(data, _settings_decoder)
    for secret in wanted.secrets or ():
        check_secret(wanted.verify, secret)
    check_settings(wanted, 5)
    assert _settings_decoder.decode(msgspec.json.encode(wanted)) == wanted


def check_inlet_signatures(data: bytes) -> None:
    """No bytes prove anything without the secret, and any body is proved with it."""
    verify = _SCHEMES[data[0] % len(_SCHEMES)] if data else _SCHEMES[0]
    headers, body = split(data[1:])
    secrets = [_SECRET, _SECRET + "AAAA"]
    sent = Delivery(body, headers, headers.get(b"secret", b"").decode("latin-1"), True)
    with contextlib.suppress(UnauthenticatedError):
        check(verify, secrets, sent, _NOW_S)
        raise AssertionError("it was taken")
    name = headers.get(b"webhook-id", b"").decode("latin-1")
    signatures = b" ".join(sign_standard([_SECRET], name, _NOW_S, body))
    signed = {b"webhook-id": name.encode(), b"webhook-timestamp": b"%d" % _NOW_S}
    signed[b"webhook-signature"] = b"v1,x " + signatures
    check(Verify(scheme="standard"), secrets, Delivery(body, signed, "", False), _NOW_S + 9)
    digest = b"v=" + hmac.digest(_SECRET.encode(), body, "sha512").hex().encode()
    own = _SCHEMES[len(HMAC_SCHEMES)]
    check(own, secrets, Delivery(body, {b"x-signature": digest}, "", False), _NOW_S)


def check_push_tokens(data: bytes) -> None:
    """No bytes are an API key: there is none."""
    with contextlib.suppress(RefusedError):
        ApiKeys(()).authenticate(splunk.EVENTS.token_of(data), 0)
        raise AssertionError("it was taken")


_LOG: Final = {
    "timeUnixNano": "1763900000123456000", "severityNumber": 9, "body": {"stringValue": "hé"},
    "attributes": [{"key": "k", "value": {"intValue": "7"}}], "traceId": "0af7651916cd43dd",
}  # fmt: skip
_LOGS: Final = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]},
            "scopeLogs": [{"scope": {"name": "n"}, "logRecords": [_LOG, {}], "schemaUrl": "u"}],
            "schemaUrl": "https://opentelemetry.io/schemas/1.0.0",
        }
    ]
}


def _otlp_protobuf() -> bytes:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    request = ParseDict({**_LOGS}, ExportLogsServiceRequest())
    return bytes(request.SerializeToString())


_WORDS: Final = (
    b"null", b"[]", b"{}", b"1e308", b"1e309", b"NaN", b"\\ud800", b'"AA=="', b"[" * 600,
    b'{"a":' * 600, b"\x1e", b"true",
)  # fmt: skip
_SPLUNK: Final = (
    (
        b'{"event":"a line","time":"1763900000.5","host":"h","index":"i"}'
        b'{"event":{"n":1.0},"time":1763900000,"fields":{"a":1,"b":"x"},"index":"i"}'
    ),
    b'[{"event":[1],"source":"s"},{"event":null,"sourcetype":"t"}]\n',
)
_CONFLUENT: Final = (
    b'j{"records":[{"value":{"a":[1.5,null]},"key":"k","timestamp":1763900000123},{"value":"x"}]}',
    b'b{"records":[{"value":"AAE=","key":"aw=="},{"value":null,"key":"aw=="}]}',
)
_PLAIN: Final = (
    b'body=items&key=/a/0&timestamp=/t\n\n\n[{"a":["k"],"t":1763900000},{"a":[2.5],"t":1.5e18}]',
    b'body=items&keep_headers=x-a\nx-a: 1\n\n{"a":1}{"b":"\\u00e9"} [2]\n3 "x"',
    b"body=items\ncontent-type: application/json-seq\n\n\x1e{}\n\x1e[1]\n",
    b'body=items&key=/~1a\ncontent-type: application/x-ndjson\n\n{"/a":"k"}\n{"/a":null}\n',
    (
        b"body=lines&key_header=x-key\nx-key: k\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-"
        b"00f067aa0ba902b7-01\n\none\r\n\ntwo"
    ),
    b'body=value&timestamp=/t\n\n\n{"t":"2026-01-01T00:00:00Z"}',
)
_INLETS: Final = (
    (
        b'{"topic":"webhooks.github","verify":{"scheme":"github"},"secrets":["abc"],"body":"items",'
        b'"key":"/repository/full_name","keep_headers":["X-GitHub-Event"],"quotas":{}}'
    ),
    (
        b'{"topic":"t","verify":{"scheme":"hmac","header":"X-S","algorithm":"sha1","encoding":'
        b'"base64","prefix":"p","tolerance_s":60},"delivery":"/id","answer":"admitted"}'
    ),
    b'{"topic":"t","verify":{"scheme":"standard"},"secrets":["whsec_AAAA"],"keep_previous":true}',
)
_SIGNED: Final = (
    b"x-hub-signature-256: sha256=00ff\n\nbody",
    b"x-slack-request-timestamp: 1763900000\nx-slack-signature: v0=00\n\nbody",
    b"stripe-signature: t=1763900000,v1=00ff,v1=aa\n\nbody",
    b"webhook-id: m\nwebhook-timestamp: 1763900000\nwebhook-signature: v1,AAAA v1,BBBB\n\nbody",
    b"x-token: t x\nx-name: y\nx-signature: v=00\nauthorization: Basic dTp4\nsecret: z\n\n",
)

TARGETS: Final = (
    Target(
        "otlp",
        check_otlp,
        (b"j" + json.dumps(_LOGS).encode(), b"p" + _otlp_protobuf()),
        (*_WORDS, b'"logRecords":', b'"timeUnixNano":', b"\x0a\x02\x12\x00", b"\x12\x02\x12\x00"),
    ),
    Target(
        "loki",
        check_loki,
        (
            b"j" + loki_json("one", "two", job="nginx"),
            b'j{"streams":[{"stream":{},"values":[["1","x",{"trace":"t"}],["0",""]]}]}',
            b"p" + bytes(cramjam.snappy.decompress_raw(loki_protobuf('{job="nginx"}', "one", "t"))),
            b"p" + loki_protobuf('{job="nginx", a="b\\"c"}', "one"),
        ),
        (*_WORDS, b"\xff\xff\xff\xff\x0f", b'{a="b"}', b"\x0a\x02", b"\x12\x00"),
    ),
    Target(
        "loki_labels",
        check_loki_labels,
        (rb'{a="x, y", b="q\"u\n", c=""}', rb'{ a = "\x41" , b="\u00e9",}', b"{}"),
        (b'="', b'",', b"\\", b"\\ud83d\\ude00", b"\\ud800", b"{", b"}", b"\x1c", b"\n"),
    ),
    Target("splunk", check_splunk, _SPLUNK, (*_WORDS, b'"event":', b'"time":', b'"fields":')),
    Target("splunk_raw", check_splunk_raw, (b"one\r\ntwo\n\n", b"\xff\n"), (b"\r\n",)),
    Target("confluent", check_confluent, _CONFLUENT, (*_WORDS, b'"value":', b'"key":')),
    Target(
        "plain",
        check_plain,
        _PLAIN,
        (
            *_WORDS,
            b"body=items",
            b"key=/",
            b"timestamp=/",
            b"&",
            b"~1",
            b"-1",
            b"1e400",
            b"Infinity",
        ),
    ),
    Target(
        "inlet_settings",
        check_inlet_settings,
        _INLETS,
        (*_WORDS, b'"secrets":', b'"scheme":', b'"svix"', b'"path"', b'"quotas":', b"whsec_"),
    ),
    Target(
        "inlet_signatures",
        check_inlet_signatures,
        tuple(
            bytes((i,)) + one for i, _ in enumerate(_SCHEMES) for one in _SIGNED[i % 5 : i % 5 + 1]
        ),
        (b"v1=", b"t=", b"v1,", b"sha256=", b" ", b",", b"1763900000", b"Basic ", b"\xb2"),
    ),
    Target("push_tokens", check_push_tokens, (b"Splunk x", b"Bearer y"), (b"Splunk ", b"\xe9")),
)
