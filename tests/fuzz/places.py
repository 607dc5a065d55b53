"""Targets: what callers name: streams, deliveries, record paths, group ids, addresses, tokens."""

from __future__ import annotations

import contextlib
import ipaddress
from functools import partial
from typing import Any, Final

import msgspec
from crc32c import crc32c

from seb_appliance.addresses import BucketAddress, host_and_port, networks, parse_url
from seb_appliance.api.encoding.conditions import read_conditions
from seb_appliance.api.encoding.trace_context import traceparent
from seb_appliance.api.routes.queues.work import parse_deliveries, parse_take
from seb_appliance.api.server.auth import Call, forwarded_for
from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.tokens import DeliveryTokens
from seb_appliance.broker.topics.names import check_group_name
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import (
    BadRequestError,
    ConfigurationError,
    RefusedError,
    StoreUnusableError,
)
from seb_appliance.formats.entry import ORIGIN
from seb_appliance.protocols.durable_streams import wire
from seb_appliance.protocols.durable_streams.contents import json_values
from seb_appliance.protocols.durable_streams.subscriptions import (
    StreamSubscriptionIn,
    Tokens,
    Wake,
    topic_patterns,
)
from seb_appliance.protocols.go import wire as go
from seb_appliance.protocols.iceberg.wire import secret_of
from seb_appliance.protocols.kafka.groups.names import group_of, id_of
from seb_appliance.protocols.kafka.partitions import partition_of, topic_of
from seb_appliance.protocols.mqtt import sessions
from seb_appliance.protocols.mqtt.codec import MqttError
from seb_appliance.protocols.mqtt.messages.records import check_filter, check_topic
from seb_appliance.protocols.mqtt.messages.routes import Routes, parse
from seb_appliance.protocols.mqtt.sessions import Document, read_document
from seb_appliance.protocols.subscriptions.addresses import Target as Address
from seb_appliance.protocols.subscriptions.addresses import is_permitted
from seb_appliance.storage.journal.bases import Base, decode_base, encode_base
from seb_appliance.storage.journal.bucket_info import (
    BucketInfo,
    decode_bucket_info,
    encode_bucket_info,
)
from seb_appliance.storage.layout import Claim
from seb_appliance.ui.answers import local_path
from seb_appliance.ui.records.json_paths import condition_of, paths_in, paths_of
from seb_appliance.ui.sessions import COOKIE, token_in
from tests.fuzz.requests import split
from tests.fuzz.target import Target
from tests.unit.protocols.test_mqtt_messages import matches

_KEY: Final = ApiKeyView("fuzzed", "", (), 0)


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# --- Durable Streams ---


def check_stream_paths(data: bytes) -> None:
    """A path is one topic, and the topic's path is one path."""
    topic = wire.topic_of(wire.PREFIX + data)
    path = wire.path_of(topic)
    assert path is not None
    assert wire.topic_of(path.encode()) == topic


def check_stream_headers(data: bytes) -> None:
    headers, body = split(data)
    for read in (wire.wanted_stream, partial(wire.wanted_append, owner="key")):
        with contextlib.suppress(RefusedError):
            read(headers)
    with contextlib.suppress(RefusedError):
        token = headers.get(b"offset", b"").decode("latin-1")
        assert wire.offset_token(wire.parse_offset(token)).decode() == token
    cursors = wire.Cursors(lambda: 1.9e9, lambda most: most)
    given = headers.get(b"cursor")
    after = cursors.after(None if given is None else given.decode("latin-1"))
    assert after > 0
    wire.is_closing(headers)
    for value in json_values(body, may_be_none=True):
        msgspec.json.decode(value)
        assert b"\n" not in value


_subscription_decoder: Final = msgspec.json.Decoder(StreamSubscriptionIn)


def check_stream_subscriptions(data: bytes) -> None:
    """And the token of a worker, which nobody can make up."""
    tokens, wake = Tokens(b"k" * 32), Wake("w1", 7, [])
    assert tokens.wake_of("s", tokens.of("s", wake)) == (7, "w1")
    assert tokens.wake_of("s", text_of(data)) is None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        topic_patterns(_subscription_decoder.decode(data))


# --- queues ---


def check_deliveries(data: bytes) -> None:
    """No bytes are the name of a delivery but those that were given out."""
    tokens = DeliveryTokens(lambda count: b"s" * count)
    given = tokens.token(b"q", Place(3, 17), 1)
    assert tokens.read(b"q", given) == (Place(3, 17), 1)
    assert tokens.read(b"r", given) is None
    with contextlib.suppress(RefusedError):
        parse_take(data)
    for token in parse_deliveries(data).deliveries:
        assert token == given or tokens.read(b"q", token) is None


# --- names of other protocols ---


def check_group_ids(data: bytes) -> None:
    """Each group id of Kafka has a name of its own."""
    group_id = text_of(data)
    name = group_of(group_id)
    with contextlib.suppress(RefusedError):
        check_group_name(name)
        assert id_of(name) == group_id
    topic, partition = partition_of(group_id)
    assert topic_of(topic, partition) == group_id


def check_mqtt_routes(data: bytes) -> None:
    """A setting and a topic: it has a place, and the place has it."""
    setting, _, topic = text_of(data).partition("\n")
    try:
        routes = Routes("mqtt", parse(setting), ["mqtt-retained"])
        check_topic(topic)
        name, is_keyed = routes.place(topic)
    except (ConfigurationError, MqttError):
        return
    if "\0" not in topic:
        assert routes.topic_of(name, topic.encode() if is_keyed else None) == topic
    assert routes.is_log(name)
    with contextlib.suppress(MqttError):
        wanted = check_filter(setting.partition("=")[0])
        assert not matches(wanted, topic) or routes.may_have(name, wanted)


def check_mqtt_sessions(data: bytes) -> None:
    """A record in the topic of sessions."""
    key, _, value = data.partition(b"\n")
    sessions._log.disabled = True  # each record that is none is worth a line
    try:
        found = read_document(key, value)
    finally:
        sessions._log.disabled = False
    if found is not None:
        again = read_document(key, msgspec.json.encode(found[1]))
        assert again == found
        assert isinstance(found[1], Document)


def check_go_parameters(data: bytes) -> None:
    kind, parameters = go.parameters_of(data)
    written = b"; ".join(
        [kind, *(b'%b="%b"' % (name, _escaped(value)) for name, value in parameters.items())]
    )
    assert go.parameters_of(written) == (kind, parameters)


def _escaped(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


# --- requests ---


def check_conditions(data: bytes) -> None:
    """Idempotency-Key, Producer headers and If-Match; and a traceparent."""
    headers, _ = split(data)
    given = traceparent(headers)
    assert given is None or len(given) == 55
    read_conditions(Call(_KEY, headers, {}, address=""))


def check_forwarded(data: bytes) -> None:
    """The address of a client is one, and none that a proxy has."""
    proxies = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8")]
    lines = [(b"x-forwarded-for", line) for line in data.split(b"\n")]
    scope: Any = {"client": ("10.0.0.1", 5), "headers": lines}
    found = forwarded_for(scope, proxies)
    if found is not None:
        ipaddress.ip_address(found)
    scope["client"] = ("192.0.2.1", 5)
    assert forwarded_for(scope, proxies) is None


def check_catalog_secrets(data: bytes) -> None:
    form = dict(
        pair.partition("=")[::2] for pair in data.decode("latin-1").split("&") if "=" in pair
    )
    secret_of(form, data)


def check_pages(data: bytes) -> None:
    """A cookie, and where a log-in leads to."""
    text = data.decode("latin-1")
    assert ";" not in token_in(data)
    assert token_in(f"{COOKIE}=a; ".encode() + data) == "a"
    found = local_path(text)
    assert found.startswith("/ui")
    assert not set(found) & set("\\\r\n\t ;,<>\"'")
    assert "//" not in found.partition("?")[0]


def check_record_paths(data: bytes) -> None:
    """Paths or a condition, and in further lines JSON that they are tried with."""
    given, *lines = data.split(b"\n")
    text = text_of(given)
    documents = []
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            documents.append(msgspec.json.decode(line))
    with contextlib.suppress(BadRequestError):
        condition = condition_of(text)
        for document in documents:
            assert condition.fits(document) in (True, False)
    for path in paths_of(text):
        for document in documents:
            path.text(document)
    for document in documents:
        for found in paths_in(document):
            (path,) = paths_of(found)
            path.find(document)


# --- addresses ---


def check_addresses(data: bytes) -> None:
    text = text_of(data)
    with contextlib.suppress(BadRequestError):
        found = Address.of(text)
        assert 0 < found.port < 65_536
        head = f"{found.path}{found.authority}"
        assert head.isascii()
        assert head.isprintable()
        assert " " not in head
        is_permitted(found.host, ())
    with contextlib.suppress(ConfigurationError):
        parse_url(text)
    with contextlib.suppress(ConfigurationError):
        assert BucketAddress.parse(text).uri
    with contextlib.suppress(ValueError):
        host_and_port(text)
    with contextlib.suppress(ValueError):
        networks(text)
    with contextlib.suppress(ValueError):
        assert not is_permitted(text, ()) or ipaddress.ip_address(text)


# --- documents in the bucket ---

_CLAIM: Final = Claim(3, b"w" * 16)


def check_bases(data: bytes) -> None:
    def read(body: bytes) -> None:
        found = decode_base(body, _CLAIM)
        assert decode_base(encode_base(found), _CLAIM) == found

    with contextlib.suppress(ValueError, ConfigurationError):
        read(b'{"base":%b,"crc32c":%d}' % (data, crc32c(data)))
    read(data)


def check_bucket_info(data: bytes) -> None:
    found = decode_bucket_info(data)
    assert decode_bucket_info(encode_bucket_info(found)) == found


_BASE: Final = encode_base(
    Base(
        n=3,
        writer=(b"w" * 16).hex(),
        previous_n=2,
        previous_writer=(b"v" * 16).hex(),
        cut=ORIGIN,
        bucket_id=(b"b" * 16).hex(),
    )
)
_NESTED: Final = b"[" * 999
_SESSION: Final = (
    b'key/device\n{"expiry_s":60,"filters":[[{"topic_filter":"a/#","qos":1},5],'
    b'[{"topic_filter":"b","qos":0,"no_local":true},{"3":7}]],"routes":[["a/#","t"],["b","*"]]}'
)
_TAKE: Final = b'{"max":5,"wait_ms":100,"lease_ms":30000,"values":"json"}'

TARGETS: Final = (
    Target(
        "stream_paths",
        check_stream_paths,
        (b"chat/room:1", b"a_3A/b%3ac", b"_/__/a~b"),
        (b"%2F", b"%5F", b"_3A", b"__ds", b"..", b"/", b"%"),
    ),
    Target(
        "stream_headers",
        check_stream_headers,
        (
            (
                b"content-type: a/json\nstream-ttl: 60\nstream-forked-from: /v1/stream/a\n"
                b'stream-fork-offset: 0000000000000005_0000000000000000\ncursor: 5\n\n[1,{"a":[2]}]'
            ),
            (
                b"stream-expires-at: 2030-01-01T00:00:00Z\nstream-closed: true\nstream-seq: a1\n"
                b'producer-id: p\nproducer-epoch: 0\nproducer-seq: 1\noffset: -1\n\n"x"'
            ),
        ),
        (b"stream-", b"cursor: 9", b"0000000000000001_", b"\xa0", b"\\u2028", _NESTED, b"1e999"),
    ),
    Target(
        "stream_subscriptions",
        check_stream_subscriptions,
        (
            b'{"type":"webhook","pattern":"a/*","webhook":{"url":"https://a.example"}}',
            b'{"type":"pull-wake","streams":["a"],"wake_stream":"w","lease_ttl_ms":5000}',
            b"7.w1.00ff",
        ),
        (b'"**"', b'"pattern":', b".", _NESTED, b"\xb2"),
    ),
    Target(
        "deliveries",
        check_deliveries,
        (b'{"deliveries":["AAAAAAAAAAMAAAAAAAAAEQAAAAAAAAABx0k3m9x2apQ4s5t6u7v8w9"]}', _TAKE),
        (b'"deliveries":', b"AAAA", b"-_", b"=", b"\\u00e9", _NESTED),
    ),
    Target(
        "group_ids",
        check_group_ids,
        (b"my group", b"kafka-id.my_20group", b"orders.kafka-2", "é".encode()),
        (b"kafka-id.", b"_20", b".kafka-", b".", b"_"),
    ),
    Target(
        "mqtt_routes",
        check_mqtt_routes,
        (b"a/+=t, b/#=*\na/1", b"$SYS/#=s\nb/c", b"+/x=y,#=z\nb"),
        (b"=", b"*", b"/", b"+", b"#", b"$", b",", b"\n", b"mqtt"),
    ),
    Target(
        "mqtt_sessions",
        check_mqtt_sessions,
        (_SESSION,),
        (b'"filters":', b"null", b"{}", b'"5":6', _NESTED, b"9" * 30),
    ),
    Target(
        "go_parameters",
        check_go_parameters,
        (b'form-data; name="a\\"b"; filename=x', b"text/plain;charset=utf-8"),
        (b";", b'="', b"\\", b'"', b"\t", b"\xff"),
    ),
    Target(
        "conditions",
        check_conditions,
        (
            b'idempotency-key: a\nif-match: "17"\n\n',
            b"producer-id: p\nproducer-epoch: 0\nproducer-seq: 5\nproducer-checksum: 7\n\n",
            b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n\n",
        ),
        (b"producer-", b'"', b"9007199254740992", b"\xb2", b"+1", b"00-"),
    ),
    Target(
        "forwarded",
        check_forwarded,
        (b"198.51.100.7, 10.1.1.1", b"::ffff:192.0.2.9\nfd00::1", b"unknown"),
        (b",", b"10.0.0.2", b"::", b"%eth0", b"\n"),
    ),
    Target(
        "catalog_secrets",
        check_catalog_secrets,
        (
            b"grant_type=client_credentials&client_secret=x",
            b"grant_type=urn:ietf:params:oauth:grant-type:token-exchange&subject_token=y",
            b"Bearer x&grant_type=client_credentials",
        ),
        (b"grant_type=", b"&", b"Basic ", b"\xe9"),
    ),
    Target(
        "pages",
        check_pages,
        (b"/ui/topics/a?x=1", b"seb_session=abc; x=y", b"/ui//evil.example"),
        (b"/ui", b"//", b"..", b"%2f", b"\\", b"?", b"=", b";"),
    ),
    Target(
        "record_paths",
        check_record_paths,
        (
            b'$.customer.name, lines[0]["unit price"]\n{"customer":{"name":1},"lines":[{}]}',
            b'$.total > 100\n{"total":5}\n{"total":"x"}\n[1]',
            b'a ~ "x"\n{"a":{"b":1e300}}',
        ),
        (b" = ", b" != ", b" <= ", b" ~ ", b"[-1]", b"['a']", b"9" * 30, _NESTED, b"\xb2", b"null"),
    ),
    Target(
        "addresses",
        check_addresses,
        (
            b"https://a.example:443/x?y=z",
            b"http://[2001:db8::1]:80/",
            b"s3://bucket/prefix",
            b"file:/a/b",
            b"memory:1MiB",
            b"::ffff:10.0.0.1",
            b"64:ff9b::a00:1",
            b"10.0.0.0/8,::/0",
        ),
        (b"http://", b"@", b"#", b"[", b"]", b":0", b"%", b"//", b"\xe2\x84\x80", b"::ffff:"),
    ),
    Target(
        "bases",
        check_bases,
        (_BASE, _BASE.partition(b'"base":')[2].rpartition(b',"crc32c"')[0]),
        (b'"crc32c":', b'"base":', b"null", _NESTED, b"zz"),
        (ValueError, ConfigurationError),
    ),
    Target(
        "bucket_info",
        check_bucket_info,
        (encode_bucket_info(BucketInfo(bucket_id="00" * 16, mode="A")),),
        (b'"bucket_id":', b'"mode":', b'"snapshot":2', _NESTED, b"zz", b"\xb2"),
        (StoreUnusableError, ConfigurationError),
    ),
)
