"""Answers that are no appliance's, and files that hold no API key."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark_seb import client
from pyspark_seb.client import Appliance, Connection
from pyspark_seb.errors import ApplianceError, BadOptionError, TopicChangedError
from pyspark_seb.jobs.lag_report import groups
from pyspark_seb.jobs.steps.compacting import begin
from pyspark_seb.options import (
    TASKS_MAX,
    TopicRange,
    committed_offsets,
    find_topics,
    offset_since,
    split,
)
from pyspark_seb.reading.ranges import SegmentReader, by_api
from pyspark_seb.tables import pin

from seb_appliance.limits import OFFSET_MAX

HEAD = b"HTTP/1.1 200 OK\r\n"
TOPIC = b"""{"topic": "t", "topic_id": 1, "log_start_offset": 0, "log_end_offset": %d,
    "effective_settings": {"cleanup": "delete"}}"""
NESTED = b"[" * 200_000


def with_length(body: bytes, head: bytes = HEAD) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def endless(head: bytes, piece: bytes) -> Iterator[bytes]:
    yield head + b"\r\n"
    while True:
        yield piece


@contextmanager
def answering(answer: Callable[[], Iterable[bytes]]) -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a server that answers so to each connection, and the requests that came."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    requests.append(connection.recv(65_536))
                    for part in answer():
                        connection.sendall(part)
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "seb.key"
    path.write_text("seb_abcdefgh_secret_0000\n")
    return path


WRONG = {
    "a page": lambda: [with_length(b"<html>")],
    "no topic": lambda: [with_length(b"[]")],
    "offsets beyond all": lambda: [with_length(TOPIC % 2**70)],
    "an end before its start": lambda: [with_length(TOPIC % -1)],
    "deep JSON": lambda: [with_length(NESTED)],
    "a body without end": lambda: endless(
        HEAD + b"Transfer-Encoding: chunked\r\n", b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    ),
    "a body without end or length": lambda: endless(HEAD, b"x" * 65_536),
    "a length of an exabyte": lambda: [HEAD + b"Content-Length: 1000000000000000000\r\n\r\n"],
    "a refusal in deep JSON": lambda: [with_length(NESTED, b"HTTP/1.1 400 Bad\r\n")],
    "Retry-After in another script": lambda: [
        with_length(b"", b"HTTP/1.1 503 Busy\r\nRetry-After: \xb2\r\n")
    ],
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG)
def test_what_is_no_answer_of_an_appliance_is_an_error_of_ours(
    answer: Callable[[], Iterable[bytes]], token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection.__init__, "__defaults__", (1_000_000,))
    with answering(answer) as (url, _):
        appliance = Appliance(url, str(token_file), patience_s=0)
        with pytest.raises(ApplianceError):
            find_topics(appliance, ["t"])
        appliance.close()


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 10\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\n"]
)
def test_a_body_that_is_cut_short_is_no_answer(framing: bytes) -> None:
    with answering(lambda: [HEAD + framing + b"[1]"]) as (url, _):
        connection = Connection(url)
        with pytest.raises((HTTPException, OSError)):
            connection.exchange("GET", "/", None, {})


@pytest.mark.parametrize("framing", [b"Content-Length: 10\r\n\r\n", b"\r\n"])
def test_an_answer_that_takes_too_long_is_cut_off(
    framing: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_EXCHANGE_S", 0.2)
    is_over = threading.Event()

    def trickles() -> Iterator[bytes]:
        yield HEAD + framing + b"[1]"
        is_over.wait(20)

    with answering(trickles) as (url, _):
        with pytest.raises(TimeoutError, match="took more than"):
            Connection(url).exchange("GET", "/", None, {})
        is_over.set()


LATER = {
    "of a group": lambda appliance: committed_offsets(appliance, "g"),
    "of a page of topics": lambda appliance: find_topics(appliance, ["t.*"]),
    "of records": lambda appliance: offset_since(appliance, "t", "@2026-11-21T10:00:00Z", 5),
    "of a manifest": lambda appliance: list(
        SegmentReader(appliance, TopicRange("t", 1, 0, 5)).read(0, lambda _begin, _end: iter(()))
    ),
}


@pytest.mark.parametrize("ask", LATER.values(), ids=LATER)
def test_a_member_that_an_answer_lacks_is_named(
    ask: Callable[[Appliance], object], token_file: Path
) -> None:
    with answering(lambda: [with_length(b"{}")]) as (url, _):
        appliance = Appliance(url, str(token_file), patience_s=0)
        with pytest.raises(ApplianceError, match=r"not an appliance's: .* missing required field"):
            ask(appliance)
        appliance.close()


OF_ANOTHER_TYPE = {
    "a group": (LATER["of a group"], b'{"topics": [7]}'),
    "an offset of a group": (
        LATER["of a group"],
        b'{"topics": [{"topic": "t", "topic_id": 1, "committed_offset": "7", "metadata": ""}]}',
    ),
    "a page of topics": (LATER["of a page of topics"], b'{"topics": 7}'),
    "settings": (
        LATER["of a page of topics"],
        b'{"topics": [%s]}' % (TOPIC % 7).replace(b'{"cleanup": "delete"}', b"null"),
    ),
    "a record": (LATER["of records"], b'{"records": [{"offset": null}]}'),
    "segments": (LATER["of a manifest"], b'{"topic_id": 1, "next_offset": 5, "segments": null}'),
    "sections": (
        LATER["of a manifest"],
        (
            b'{"topic_id": 1, "next_offset": 5, "segments": [{"url": "http://127.0.0.1", '
            b'"sections": [{"base_offset": 0, "last_offset": "4"}]}]}'
        ),
    ),
    "a table": (lambda appliance: pin(appliance, "t"), b'{"topic_id": 1, "published": 7}'),
    "groups": (lambda appliance: list(groups(appliance)), b'{"groups": ["g"], "next_after": 7}'),
    "a compaction": (lambda appliance: begin(appliance, "t"), b'{"compaction": 7}'),
}


@pytest.mark.parametrize(("ask", "body"), OF_ANOTHER_TYPE.values(), ids=OF_ANOTHER_TYPE)
def test_a_member_of_another_type_is_named(
    ask: Callable[[Appliance], object], body: bytes, token_file: Path
) -> None:
    with answering(lambda: [with_length(body)]) as (url, _):
        appliance = Appliance(url, str(token_file), patience_s=0)
        with pytest.raises(ApplianceError, match=r"not an appliance's: .* - at `\$\."):
            ask(appliance)
        appliance.close()


def test_a_manifest_that_leads_nowhere_ends_the_read(token_file: Path) -> None:
    body = b'{"topic_id": 1, "next_offset": 0, "segments": []}'
    with answering(lambda: [with_length(body)]) as (url, sent):
        appliance = Appliance(url, str(token_file), patience_s=0)
        with pytest.raises(TopicChangedError, match="ends at 0"):
            LATER["of a manifest"](appliance)
        appliance.close()
    assert len(sent) == 1


def test_a_topic_that_was_made_anew_while_it_is_read_ends_the_read(token_file: Path) -> None:
    body = b'{"code": "topic_replaced", "detail": "It has the id 2, not 1."}'
    with answering(lambda: [with_length(body, b"HTTP/1.1 409 Conflict\r\n")]) as (url, sent):
        appliance = Appliance(url, str(token_file), patience_s=0)
        with pytest.raises(TopicChangedError, match="while it was read"):
            list(by_api(appliance, TopicRange("t", 1, 0, 5), 3, 5))
        appliance.close()
    assert b"topic_id=1&offset=3&until=5" in sent[0]


def test_a_refusal_is_shown_in_part_and_lacks_what_it_lacks(token_file: Path) -> None:
    long = b'{"code": 7, "detail": "%s"}' % (b"x" * 100_000)
    with answering(lambda: [with_length(long, b"HTTP/1.1 409 Conflict\r\n")]) as (url, _):
        appliance = Appliance(url, str(token_file), patience_s=0)
        with pytest.raises(ApplianceError) as told:
            appliance.get("/v1/topics/t")
        appliance.close()
    assert (told.value.code, len(str(told.value)) < 3_000) == ("7", True)
    again = pickle.loads(pickle.dumps(told.value))  # as to the driver
    with pytest.raises(ApplianceError, match="no number 'expected'"):
        again.number("expected")


def test_the_api_key_goes_to_no_other_host(token_file: Path) -> None:
    with answering(lambda: [with_length(b"{}")]) as (elsewhere, sent_there):
        moved = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: " + elsewhere.encode() + b"\r\n"
        with answering(lambda: [with_length(b"", moved)]) as (url, sent):
            appliance = Appliance(url, str(token_file), patience_s=0)
            with pytest.raises(ApplianceError):
                find_topics(appliance, ["t"])
            appliance.close()
        assert (len(sent), sent_there) == (1, [])


@pytest.mark.parametrize(
    "held", [b"root:x:0:0\nsecret\n", b"secret", b"seb_a\r\nX: secret", b"\xff"]
)
def test_a_file_that_holds_no_api_key_is_neither_sent_nor_shown(
    tmp_path: Path, held: bytes
) -> None:
    path = tmp_path / "other"
    path.write_bytes(held)
    with pytest.raises(BadOptionError, match="holds no API key") as told:
        Appliance("http://127.0.0.1:1", str(path))
    assert "secret" not in str(told.value)


def test_a_log_end_that_lies_makes_no_more_tasks_than_a_driver_holds() -> None:
    parts = split([TopicRange("t", 1, 0, OFFSET_MAX)], 1)
    assert len(parts) == TASKS_MAX
    assert (parts[0].start, parts[-1].end) == (0, OFFSET_MAX)
