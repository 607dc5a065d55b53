"""Answers that are no appliance's, and files that hold no API key."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark_seb.client import Appliance, Connection
from pyspark_seb.errors import ApplianceError, BadOptionError
from pyspark_seb.options import TASKS_MAX, TopicRange, find_topics, split

from seb_appliance.limits import OFFSET_MAX

HEAD = b"HTTP/1.1 200 OK\r\n"
TOPIC = b"""{"topic": "t", "topic_id": 1, "log_start_offset": 0, "log_end_offset": %d,
    "effective_settings": {"cleanup": ["delete"]}}"""
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
