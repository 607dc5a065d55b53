"""What commands make of answers, and of those that do not come: a sentence and an exit code."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

from seb_appliance import __version__
from seb_appliance.addresses import is_loopback, parse_url
from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.errors import REFUSED, UNAVAILABLE, UNKNOWN, AnswerError, CommandError
from seb_appliance.client.transport import Answer
from seb_appliance.clock import SystemClock

OURS = "Seb-Version: 0.1.0\r\n"


def answer(status: int, body: object = None, headers: str = OURS) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    return (
        f"HTTP/1.1 {status} Said\r\n{headers}Content-Length: {len(content)}\r\n\r\n".encode()
        + content
    )


def problem(status: int, code: str, *, retryable: bool, side_effects: str = "none") -> bytes:
    members = {"detail": "No.", "code": code, "retryable": retryable, "side_effects": side_effects}
    return answer(status, members, OURS + "Retry-After: 2\r\n")


class Cut(bytes):
    """A part of an answer, after which the server hangs up."""


class Clock(SystemClock):
    """Sleeping is what makes time pass."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.slept: list[float] = []

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


class Script:
    """A server that answers requests with `answers`, one after another."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.connections = 0
        self.hung_up = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def _serve(self) -> None:
        while self.answers:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, connection.makefile("rb") as coming:
                while self.answers and (request := read_request(coming)):
                    self.requests.append(request)
                    said = self.answers.pop(0)
                    connection.sendall(said)
                    if isinstance(said, Cut):
                        break
            self.hung_up.set()


def read_request(coming: BinaryIO) -> bytes:
    """One request, whole; b"" when the client has gone."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = coming.readline()
        if not line:
            return b""
        head += line
    length = re.search(rb"Content-Length: (\d+)", head)
    return head + (coming.read(int(length[1])) if length else b"")


@contextmanager
def talking(*answers: bytes) -> Iterator[tuple[HttpClient, Script, Clock]]:
    script, clock = Script(list(answers)), Clock()
    client = HttpClient(script.url, "seb_x", clock=clock, random=lambda: 1.0)
    script.thread.start()
    try:
        yield client, script, clock
    finally:
        client.close()
        if script.answers:  # it waits for more
            script.answers.clear()
            socket.create_connection(script.listener.getsockname()).close()
        script.thread.join()
        script.listener.close()


def patiently(client: HttpClient, method: str = "GET") -> Answer:
    """As `seb consume` asks, and with POST as `seb produce`."""
    body = None if method == "GET" else b"x"
    request = client.caller.endpoint.request(method, "/v1/x", body=body)
    asked = client.caller.ask(request, is_known_again=True)
    return client.wait_for(asked, is_read=method == "GET")


def failure(client: HttpClient, method: str = "POST") -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        client.request(method, "x")
    return caught.value


def test_a_success_is_handed_over() -> None:
    with talking(answer(200, {"a": 1}, OURS + "Seb-Next-Offset: 7\r\n")) as (client, script, _):
        got = client.request("GET", "x", query={"a": "b c", "none": None})
        assert got.json() == {"a": 1}
        assert got.number("seb-next-offset") == 7
        assert script.requests[0].startswith(b"GET /v1/x?a=b+c HTTP/1.1\r\n")
        assert b"Authorization: Bearer seb_x\r\n" in script.requests[0]
        assert b"User-Agent: seb/" in script.requests[0]


@pytest.mark.parametrize(
    ("said", "on_read", "on_change"),
    [
        (problem(400, "bad_name", retryable=False), REFUSED, REFUSED),
        (problem(503, "overloaded", retryable=True), UNAVAILABLE, UNAVAILABLE),
        (problem(503, "fenced", retryable=True, side_effects="unknown"), UNAVAILABLE, UNKNOWN),
        (problem(504, "outcome_unknown", retryable=False, side_effects="unknown"), 1, UNKNOWN),
        (Cut(), UNAVAILABLE, UNKNOWN),
        (Cut(b"HTTP/1.1 200"), UNAVAILABLE, UNKNOWN),
        (Cut(answer(200, {"a": "b" * 99})[:-50]), UNAVAILABLE, UNKNOWN),
        (Cut(b"220 mail.example.org ESMTP\r\n\r\n"), UNAVAILABLE, UNKNOWN),
        (answer(200, "<html>", headers=""), REFUSED, UNKNOWN),
        (answer(404, "<html>", headers=""), REFUSED, UNKNOWN),
        (answer(502, "<html>", headers=""), UNAVAILABLE, UNKNOWN),
    ],
)
def test_the_exit_code_says_whether_anything_may_have_happened(
    said: bytes, on_read: int, on_change: int
) -> None:
    for method, exit_code in (("GET", on_read), ("POST", on_change)):
        with talking(said) as (client, script, _):
            error = failure(client, method)
            assert error.exit_code == exit_code
            assert ("It may have been done or not." in error.sentence) == (exit_code == UNKNOWN)
            assert "\n" not in error.sentence
            assert len(script.requests) == 1


def test_what_is_no_appliance_is_told() -> None:
    with talking(answer(502, "<html>", headers="")) as (client, script, _):
        assert failure(client, "GET").sentence == (
            f"{script.url} answered 502, but is not an appliance. Is the url right?"
        )


OVERLOADED = problem(503, "overloaded", retryable=True)


@pytest.mark.parametrize("said", [Cut(), answer(502, "<html>", headers="")])
def test_a_request_that_is_known_again_is_sent_until_it_is_answered(said: bytes) -> None:
    with talking(said, said, answer(200, {"a": 1})) as (client, script, _):
        assert patiently(client, "POST").json() == {"a": 1}
        assert len(set(script.requests)) == 1


def test_patience_has_an_end() -> None:
    with talking(*[OVERLOADED] * 40) as (client, _, clock):
        with pytest.raises(AnswerError):
            patiently(client)
        assert 50 < sum(clock.slept) <= 60


@pytest.mark.parametrize("then", [problem(401, "unauthenticated", retryable=False), OVERLOADED])
def test_after_a_lost_answer_no_other_says_that_nothing_happened(then: bytes) -> None:
    with talking(Cut(), *[then] * 40) as (client, _, _):
        with pytest.raises(AnswerError) as caught:
            patiently(client, "POST")
        assert caught.value.exit_code == UNKNOWN


def test_an_appliance_that_was_never_there_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    clock = Clock()
    client = HttpClient(f"http://127.0.0.1:{port}", "seb_x", clock=clock)
    for method in ("GET", "POST"):
        with pytest.raises(AnswerError, match="cannot reach an appliance") as caught:
            patiently(client, method)
        assert caught.value.exit_code == UNAVAILABLE
    assert clock.slept == []
    client.close()


def test_one_that_takes_a_request_and_goes_away_is_waited_for() -> None:
    """Nobody has answered here yet, but somebody may have done it."""
    with talking(Cut()) as (client, script, clock):

        def gone() -> None:
            script.hung_up.wait()
            script.listener.close()

        thread = threading.Thread(target=gone)
        thread.start()
        with pytest.raises(AnswerError) as caught:
            patiently(client, "POST")
        thread.join()
        assert caught.value.exit_code == UNKNOWN
        assert 50 < sum(clock.slept) <= 60


def test_one_that_goes_away_is_waited_for() -> None:
    with talking(Cut(answer(200))) as (client, script, clock):
        client.request("GET", "x")
        script.hung_up.wait()
        script.listener.close()
        with pytest.raises(AnswerError):
            patiently(client)
        assert 50 < sum(clock.slept) <= 60


@pytest.mark.parametrize(("theirs", "told"), [("7.1.0", True), ("0.9.9", False)])
def test_the_versions_are_told_when_an_appliance_of_another_major_one_refuses(
    theirs: str, told: bool
) -> None:
    refusal = problem(404, "not_found", retryable=False)
    said = refusal.replace(b"Seb-Version: 0.1.0", f"Seb-Version: {theirs}".encode())
    with talking(said) as (client, _, _):
        remark = f" It is version {theirs}, this is {__version__}."
        assert failure(client).sentence.endswith(remark) == told


@pytest.mark.parametrize("theirs", ["7.1.0", "0.9.9"])
def test_an_answer_that_is_not_understood_is_told_if_the_version_is_another(theirs: str) -> None:
    with talking(answer(200, {}, f"Seb-Version: {theirs}\r\n")) as (client, _, _):
        client.request("GET", "x")
        with (
            pytest.raises(CommandError, match=r"not understood \(KeyError: 'topics'\)"),
            client,
        ):
            raise KeyError("topics")
    with talking(answer(200, {}, f"Seb-Version: {__version__}\r\n")) as (client, _, _):
        client.request("GET", "x")
        with pytest.raises(KeyError), client:
            raise KeyError("topics")


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:51313", True),
        ("http://localhost", True),
        ("http://[::1]:51313/seb", True),
        ("https://seb.example.org", False),
        ("http://localhost.example.org", False),
        ("http://10.0.0.1", False),
    ],
)
def test_this_machine_is_known(url: str, local: bool) -> None:
    assert is_loopback(parse_url(url).hostname or "") is local
