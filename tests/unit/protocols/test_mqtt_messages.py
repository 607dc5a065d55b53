"""MQTT without sockets: bytes, filters, grants, and what a client is sent."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import ConfigurationError
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.protocols.mqtt import codec
from seb_appliance.protocols.mqtt import limits as mqtt_limits
from seb_appliance.protocols.mqtt.codec import V5, Code, Framer, MqttError, Publish
from seb_appliance.protocols.mqtt.messages.filters import Filters
from seb_appliance.protocols.mqtt.messages.grants import Grants
from seb_appliance.protocols.mqtt.messages.records import (
    check_filter,
    to_publish,
    to_records,
)
from seb_appliance.protocols.mqtt.messages.routes import Route, Routes, common, parse
from seb_appliance.protocols.mqtt.sending.outgoing import Outgoing
from seb_appliance.protocols.mqtt.sessions import Session
from seb_appliance.protocols.mqtt.unfinished import Place

READERS = (
    codec.read_connect,
    lambda body: codec.read_publish(2, body, V5),
    lambda body: codec.read_ack(codec.PUBACK, body, V5),
    lambda body: codec.read_subscribe(body, V5),
    lambda body: codec.read_unsubscribe(body, V5),
    lambda body: codec.read_disconnect(body, V5),
)
CONNECT = b"\0\x04MQTT\x05"
levels = st.text(st.sampled_from("ab_x.$"), max_size=3)
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.lists(levels | st.just("+"), min_size=1, max_size=4).flatmap(
    lambda words: st.sampled_from(["/".join(words), "/".join([*words, "#"])])
).filter(bool)  # fmt: skip


@given(st.binary(max_size=60), st.sampled_from([b"", CONNECT, b"\0\x01a\0\x01"]))
def test_any_body_is_read_or_refused(body, begin):
    for read in READERS:
        with contextlib.suppress(MqttError):
            read(begin + body)


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 50))
def test_packets_are_found_however_their_bytes_arrive(bodies, size):
    framer, found = Framer(), []
    data = b"".join(codec.packet(codec.PUBLISH, body) for body in bodies)
    for at in range(0, len(data), size):
        framer.feed(data[at : at + size])
        while (one := framer.next()) is not None:
            found.append(one)
    assert found == [(0x30, body) for body in bodies]
    assert framer.waiting_bytes == 0


@given(topics, st.binary(max_size=20), st.integers(0, 2), st.text(max_size=5))
def test_a_message_is_read_as_it_was_written(topic, payload, qos, name):
    users = [(name.replace("\0", ""), "v")]
    message = Publish(topic, payload, qos, packet_id=7 if qos else 0,
                      properties={"message_expiry": 3, "user_properties": users})  # fmt: skip
    framer = Framer()
    framer.feed(codec.write_publish(message, V5))
    first, body = framer.next()
    assert codec.read_publish(first & 15, body, V5) == message


def matches(topic_filter, topic):
    """As the standard says it, level by level."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for i, one in enumerate(wanted):
        if one == "#":
            return True
        if i >= len(levels) or one not in ("+", levels[i]):
            return False
    return len(wanted) == len(levels)


@given(st.sets(filters, max_size=6), topics)
def test_those_filters_match_that_the_standard_says(chosen, topic):
    tree = Filters()
    for one in chosen:
        tree.put(one, "owner", one)
    expected = {one for one in chosen if matches(one, topic)}
    assert {value for _, value in tree.match(topic)} == expected
    for one in chosen:
        tree.remove(one, "owner")
    assert tree.count == 0
    assert not tree._root.below


@given(filters, filters, topics)
def test_what_two_filters_have_in_common_is_what_both_match(one, other, topic):
    found = common(one, other)
    both = matches(one, topic) and matches(other, topic)
    assert both == (found is not None and matches(found, topic))
    assert found is None or check_filter(found)


@given(st.lists(filters, max_size=3), filters, topics)
def test_the_parts_of_a_filter_match_what_it_matches(routes, topic_filter, topic):
    tree = Routes("mqtt", [Route(one, None) for one in routes])
    parts = list(tree.parts(topic_filter))
    assert matches(topic_filter, topic) == any(matches(part, topic) for part, _ in parts)
    if matches(topic_filter, topic):
        with contextlib.suppress(MqttError):
            _, is_keyed = tree.place(topic)
            assert any(matches(part, topic) for part, keyed in parts if keyed is is_keyed)


@pytest.mark.parametrize(
    "setting", ["a/#", "a#=b", "a=b c", "=b", "a=mqtt-retained", ",".join(["a=b"] * 101)]
)
def test_routes_that_cannot_be_are_refused_with_the_name_of_the_setting(setting):
    with pytest.raises(ConfigurationError, match="mqtt_routes"):
        Routes("mqtt", parse(setting), ["mqtt-retained"])


def grants_of(*patterns):
    grants = tuple(Grant(operation=o, topics=p) for o in ("produce", "consume") for p in patterns)
    return Grants(ApiKeyView("k", "k", grants, 0), Routes("mqtt"))


@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "*", "**"]), max_size=3), min_size=1, max_size=2),
    filters,
    topics,
)
def test_who_may_subscribe_may_read_every_topic_that_matches(patterns, topic_filter, topic):
    grants = grants_of(*(".".join(["mqtt", *words]) for words in patterns))
    if grants.may_subscribe(check_filter(topic_filter)) and matches(topic_filter, topic):
        assert grants.may_publish(topic)  # by the same patterns


def test_a_grant_for_one_level_is_not_fooled_by_dots_or_escapes():
    grants = grants_of("mqtt.a.*", "mqtt._x00")
    assert grants.may_publish("a/b.c")
    assert not grants.may_publish("a.b")
    assert not grants.may_publish("_x00")
    assert grants.may_publish("a/")
    assert not grants.may_subscribe("a/#")


def test_decisions_about_topics_are_kept_for_some():
    grants = grants_of("mqtt.a.**")
    for number in range(2 * mqtt_limits.TOPICS_KNOWN_MAX):
        assert grants.may_publish(f"a/{number}")
    assert len(grants._known) <= mqtt_limits.TOPICS_KNOWN_MAX


def test_a_packet_has_so_many_properties_and_no_more():
    users = [("a", "b")] * (mqtt_limits.PROPERTIES_MAX + 1)
    body = codec.properties({"user_properties": users})
    with pytest.raises(MqttError) as caught:
        codec.read_properties(codec.Reader(body), codec.PUBLISH)
    assert caught.value.code == Code.QUOTA


@pytest.mark.parametrize("read", [codec.read_subscribe, codec.read_unsubscribe])
def test_a_packet_has_so_many_topic_filters_and_no_more(read):
    one = codec.text("a") + (b"\1" if read is codec.read_subscribe else b"")
    assert len(read(b"\0\1\0" + one * mqtt_limits.FILTERS_MAX, V5)[1]) == mqtt_limits.FILTERS_MAX
    with pytest.raises(MqttError) as caught:
        read(b"\0\1\0" + one * (mqtt_limits.FILTERS_MAX + 1), V5)
    assert caught.value.code == Code.QUOTA


def test_a_header_that_mqtt_cannot_carry_is_left_out():
    long = b"x" * (mqtt_limits.TEXT_CHARACTERS_MAX + 1)
    headers = msgspec.msgpack.encode({"good": b"1", "bad": b"\xff", "long": long})
    message, _ = to_publish("a", b"", headers, 0)
    assert message.properties == {"user_properties": [("good", "1")]}


def test_a_message_that_has_expired_is_not_delivered():
    records = to_records(Publish("a", b"", 1, properties={"message_expiry": 2}), 0)
    assert to_publish("a", b"", records.headers[0], 1_000_000)[0].properties == {
        "message_expiry": 1
    }
    assert to_publish("a", b"", records.headers[0], 2_000_000) is None


class Deaf:
    """A connection whose client reads nothing."""

    version = V5
    holds_key = True

    def __init__(self):
        self.written, self.ended = [], None

    def may_write(self, _size_bytes):
        return not self.written

    def write(self, data):
        self.written.append(data)

    def end(self, code, _reason):
        self.ended = code


def test_a_subscriber_that_does_not_read_loses_qos_0_alone():
    broker = SimpleNamespace(access=SimpleNamespace(meters=SimpleNamespace(of=lambda _: None)))
    deaf, session = Deaf(), Session(("k", "c"), 0)
    outgoing = Outgoing(deaf, broker, ApiKeyView("k", "k", (), 0), {}, session, None, None)
    assert outgoing.deliver(Publish("a", b"", 0)) == "sent"
    assert outgoing.deliver(Publish("a", b"", 0)) == "dropped"
    reading = []
    outgoing.feed = SimpleNamespace(read_on=lambda topic_id, at: reading.append(at.next_offset))
    assert outgoing.deliver(Publish("a", b"", 1), Place(7, 3)) == "delayed"
    assert reading == [3]


def test_others_have_turns_while_thousands_of_filters_are_compared() -> None:
    tree, levels = Filters[int](), ["a"] * 32
    for number, ways in enumerate(itertools.product((False, True), repeat=11)):
        wild = ["+" if way else "a" for way in ways]
        tree.put("/".join([*wild, *levels[11:]]), "owner", number)
    longest = since = 0
    found = []
    for step in tree.steps("/".join(levels)):
        since += 1
        if step is None:
            longest, since = max(longest, since), 0
            tree.put(f"{len(found)}/new", "owner", 0)
        else:
            found.append(step)
    assert sorted(value for _, value in found) == list(range(2**11))
    assert max(longest, since) <= 500
