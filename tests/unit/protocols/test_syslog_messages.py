"""Where a syslog message ends, and what its header says."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.protocols.syslog import limits as syslog_limits
from seb_appliance.protocols.syslog.messages import AT_ONCE, BadFrameError, Framer, read_header

LATEST_US = 2_000_000_000_000_000
MESSAGES = st.lists(st.binary(min_size=1, max_size=40))


def all_of(framer: Framer, data: bytes) -> list[bytes]:
    found = messages = framer.feed(data)
    while messages:
        assert len(messages) <= AT_ONCE
        messages = framer.feed()
        found = found + messages
    return found


def in_pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """What a framer finds in `data` if it arrives in pieces of these sizes."""
    framer, found, at = Framer(), list[bytes](), 0
    for size in [*sizes, len(data)]:
        found += all_of(framer, data[at : at + size])
        at += size
    return found + framer.end()


@given(MESSAGES, st.lists(st.integers(1, 30)))
def test_counted_messages_are_found_however_they_arrive(
    messages: list[bytes], sizes: list[int]
) -> None:
    data = b"".join(b"%d %b\n" % (len(one) + 1, one) for one in messages)
    assert in_pieces(data, sizes) == messages
    data = b"".join(b"%d %b" % (len(one), one) for one in messages)
    assert in_pieces(data, sizes) == [one.removesuffix(b"\n") or one for one in messages]


@given(
    st.lists(st.binary(min_size=1, max_size=40).map(lambda m: b"<" + m.replace(b"\n", b"") + b">")),
    st.lists(st.integers(1, 30)),
)
def test_lines_are_found_however_they_arrive(messages: list[bytes], sizes: list[int]) -> None:
    data = b"".join(one + b"\n" for one in messages)
    assert in_pieces(data, sizes) == messages


def test_both_framings_may_follow_each_other_and_the_last_line_needs_no_end() -> None:
    assert in_pieces(b"4 <1>a<2>b\r\n\n\n<3>c", []) == [b"<1>a", b"<2>b", b"<3>c"]
    assert in_pieces(b"<1>a\n9 <2>", []) == [b"<1>a"]  # the rest of a counted one never came


@pytest.mark.parametrize("frame", [b"<1>\n", b"3 <1>"])
def test_so_many_messages_are_returned_at_once_and_the_others_by_the_next_calls(
    frame: bytes,
) -> None:
    framer = Framer()
    sizes = [len(framer.feed(frame * (2 * AT_ONCE + 1))), *(len(framer.feed()) for _ in range(3))]
    assert sizes == [AT_ONCE, AT_ONCE, 1, 0]
    assert not framer.is_inside


def test_empty_lines_are_no_messages() -> None:
    framer = Framer()
    assert framer.feed(b"\n" * 10_000 + b"\0\r\n<1>a\0\n\n") == [b"<1>a"]
    assert framer.feed() == []
    assert not framer.is_inside


@pytest.mark.parametrize("bad", [b"1234567x", b"x" * syslog_limits.BYTES_MAX + b"x\n"])
def test_the_messages_before_a_bad_frame_are_returned(bad: bytes) -> None:
    framer = Framer()
    assert framer.feed(b"<1>a\n4 <1>b" + bad) == [b"<1>a", b"<1>b"]
    for _ in range(2):
        with pytest.raises(BadFrameError):
            framer.feed()


@pytest.mark.parametrize(
    "data",
    [
        b"%d x" % (syslog_limits.BYTES_MAX + 1),
        b"1234567x",
        b"12345678 x",
        b"<1>" + b"x" * syslog_limits.BYTES_MAX,
    ],
)
def test_a_frame_that_cannot_be_ends_the_connection(data: bytes) -> None:
    with pytest.raises(BadFrameError):
        Framer().feed(data)


@given(st.binary(), st.lists(st.integers(1, 5)))
def test_any_bytes_are_messages_or_a_bad_frame(data: bytes, sizes: list[int]) -> None:
    try:
        found = in_pieces(data, sizes)
    except BadFrameError:
        return
    assert all(found)
    for message in found:
        read_header(message, LATEST_US)


def headers_of(message: bytes) -> tuple[int | None, dict[str, str]]:
    at_us, packed = read_header(message, LATEST_US)
    headers = msgspec.msgpack.decode(packed, type=dict[str, bytes]) if packed else {}
    return at_us, {name: value.decode() for name, value in headers.items()}


def test_the_header_of_rfc_5424_becomes_timestamp_and_headers() -> None:
    message = b'<165>1 2003-10-11T22:14:15.003Z host.example evntslog - ID47 [a b="c"] text'
    assert headers_of(message) == (
        1_065_910_455_003_000,
        {
            "facility": "20", "severity": "5", "hostname": "host.example",
            "app_name": "evntslog", "msgid": "ID47",
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"<34>Oct 11 22:14:15 host su: failed", (None, {"facility": "4", "severity": "2"})),
        (b"<0>", (None, {"facility": "0", "severity": "0"})),
        (b"<192>1 - h a p m", (None, {})),
        (b"plain text", (None, {})),
        (b"<13>1 9999-01-01T00:00:00Z h - - - -", (None, {"hostname": "h"})),  # a wrong clock
        (b"<13>1 2003-99-11T22:14:15Z h - - - -", (None, {"hostname": "h"})),
    ],
)
def test_a_message_in_another_form_has_what_it_has(
    message: bytes, expected: tuple[int | None, dict[str, str]]
) -> None:
    at_us, headers = headers_of(message)
    assert at_us == expected[0]
    assert expected[1].items() <= headers.items()
