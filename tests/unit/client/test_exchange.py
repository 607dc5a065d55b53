"""HTTP/1.1 from bytes, however they are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.client.transport import Answer, AnswerReader, Endpoint, MalformedAnswerError
from seb_appliance.errors import ConfigurationError

SIZED = b"HTTP/1.1 201 Created\r\nSeb-Version: 1\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
)


def read(pieces: list[bytes]) -> Answer | None:
    reader = AnswerReader()
    answer = None
    for piece in pieces:
        assert answer is None
        answer = reader.feed(piece)
    return answer


@given(st.sampled_from([SIZED, CHUNKED]), st.lists(st.integers(1, 150), max_size=8))
def test_an_answer_is_the_same_however_it_is_cut(whole: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    answer = read([whole[a:b] for a, b in pairwise(places)])
    assert answer is not None
    assert answer.body == b"hello"
    assert answer.keeps
    assert answer.status == (201 if whole is SIZED else 200)


@given(st.binary(max_size=200))
def test_anything_is_an_answer_or_refused(noise: bytes) -> None:
    for begin in (
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        try:
            answer = AnswerReader().feed(begin + noise)
        except MalformedAnswerError:
            continue
        assert answer is None or answer.status < 1000


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\nhel") is None
    assert reader.feed(b"lo") is None
    answer = reader.end()
    assert (answer.body, answer.keeps) == (b"hello", False)


@pytest.mark.parametrize("whole", [SIZED[:-1], CHUNKED[:-2], SIZED[:20], b""])
def test_an_answer_that_breaks_off_is_none(whole: bytes) -> None:
    reader = AnswerReader()
    assert reader.feed(whole) is None
    with pytest.raises(MalformedAnswerError):
        reader.end()


@pytest.mark.parametrize("length", ["9" * 5_000, "268435457", "-1", "+1", "1_0", "\xb2"])
def test_a_length_that_cannot_be_is_refused(length: str) -> None:
    with pytest.raises(MalformedAnswerError):
        AnswerReader().feed(
            f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode("latin-1")
        )


def test_thousands_of_interim_answers_are_read_over() -> None:
    answer = read([b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000 + SIZED])
    assert answer is not None
    assert answer.status == 201


def test_a_request_names_where_it_goes_and_who_asks() -> None:
    endpoint = Endpoint("http://broker.example:8080/seb/", "seb_secret")
    request = endpoint.request("GET", "/v1/topics", {"pattern": "a.*", "after": None})
    assert request.head.startswith(b"GET /seb/v1/topics?pattern=a.%2A HTTP/1.1\r\n")
    assert b"\r\nHost: broker.example:8080\r\nAuthorization: Bearer seb_secret\r\n" in request.head
    assert request.head.endswith(b"\r\n\r\n")
    assert (request.body, request.is_read) == (b"", True)


@pytest.mark.parametrize(
    ("url", "key"),
    [("ftp://x", "k"), ("http://u:p@x", "k"), ("http://x", ""), ("http://x", "a\r\nX: y")],
)
def test_a_wrong_url_or_api_key_is_found_before_anything_is_sent(url: str, key: str) -> None:
    with pytest.raises(ConfigurationError):
        Endpoint(url, key)
