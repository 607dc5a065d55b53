"""What the client makes of answers, of answers that do not come, and when it asks again."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

from seb_appliance.addresses import is_local
from seb_appliance.cli.failures import REFUSED, UNAVAILABLE, UNKNOWN, AnswerError
from seb_appliance.cli.http_client import Answer, HttpClient

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


class Clock:
    """Sleeping is what makes time pass."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
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
    client = HttpClient(script.url, "seb_x", monotonic_s=lambda: clock.now_s, sleep=clock.sleep)
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


def failure(client: HttpClient, method: str = "POST") -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        client.request(method, "/v1/x", body=b"x")
    return caught.value


def test_a_success_is_handed_over() -> None:
    with talking(answer(200, {"a": 1}, OURS + "Seb-Next-Offset: 7\r\n")) as (client, script, _):
        got = client.request("GET", "/v1/x", query={"a": "b c", "none": None})
        assert got.json() == {"a": 1}
        assert got.number("seb-next-offset") == 7
        assert script.requests[0].startswith(b"GET /v1/x?a=b+c HTTP/1.1\r\n")
        assert b"Authorization: Bearer seb_x\r\n" in script.requests[0]


def test_a_connection_is_kept_until_the_other_side_closes_it() -> None:
    with talking(answer(200), Cut(answer(200)), answer(201)) as (client, script, _):
        client.request("GET", "/v1/x")
        client.request("GET", "/v1/x")
        assert script.connections == 1
        script.hung_up.wait()
        assert client.request("POST", "/v1/x", body=b"x").status == 201
        assert script.connections == 2


def test_a_connection_is_closed_when_the_answer_says_so() -> None:
    last = answer(200, headers=OURS + "Connection: close\r\n")
    with talking(Cut(last), answer(201)) as (client, script, _):
        client.request("GET", "/v1/x")
        assert client.request("POST", "/v1/x", body=b"x").status == 201
        assert script.connections == 2


@pytest.mark.parametrize(
    ("said", "exit_code", "harmless"),
    [
        (problem(400, "bad_name", retryable=False), REFUSED, False),
        (problem(503, "overloaded", retryable=True), UNAVAILABLE, True),
        (problem(504, "outcome_unknown", retryable=False, side_effects="unknown"), UNKNOWN, False),
        (problem(503, "fenced", retryable=True, side_effects="unknown"), UNKNOWN, False),
    ],
)
def test_a_problem_says_whether_it_is_safe_to_go_on(
    said: bytes, exit_code: int, harmless: bool
) -> None:
    with talking(said) as (client, _, _):
        error = failure(client)
        assert (error.exit_code, error.harmless) == (exit_code, harmless)
        assert error.sentence == f"No ({error.problem['code']})."
        assert error.retry_after_s == 2


WHOLE = answer(200, {"a": "b" * 99})
CUTS = [
    Cut(),
    Cut(b"HTTP/1.1 200"),
    Cut(WHOLE[: WHOLE.index(b"Content-Length")]),
    Cut(WHOLE[: WHOLE.index(b"Content-Length") + 17]),
    Cut(WHOLE[:-50]),
    Cut(b"??\n"),
]


@pytest.mark.parametrize("cut", CUTS)
def test_an_answer_that_is_lost_leaves_a_change_open(cut: Cut) -> None:
    with talking(cut) as (client, _, _):
        error = failure(client)
        assert (error.exit_code, error.harmless) == (UNKNOWN, False)
        assert "may have been made or not" in error.sentence


@pytest.mark.parametrize("cut", CUTS)
def test_a_read_whose_answer_is_lost_may_be_asked_again(cut: Cut) -> None:
    with talking(cut, answer(200, {"a": 1})) as (client, _, _):
        error = failure(client, "GET")
        assert (error.exit_code, error.harmless) == (UNAVAILABLE, True)
        assert client.request("GET", "/v1/x").json() == {"a": 1}


@pytest.mark.parametrize(
    ("status", "method", "exit_code"),
    [
        (200, "GET", REFUSED),
        (301, "GET", REFUSED),
        (404, "POST", REFUSED),
        (502, "GET", UNAVAILABLE),
        (502, "POST", UNKNOWN),
    ],
)
def test_what_is_no_appliance_is_told(status: int, method: str, exit_code: int) -> None:
    with talking(answer(status, "<html>", headers="")) as (client, _, _):
        error = failure(client, method)
        assert error.exit_code == exit_code
        assert "not as an appliance does" in error.sentence


OVERLOADED = problem(503, "overloaded", retryable=True)


def test_what_is_harmless_is_asked_again_after_the_time_that_was_told() -> None:
    with talking(OVERLOADED, OVERLOADED, answer(201, {"a": 1})) as (client, script, clock):
        got = client.patiently(lambda: client.request("POST", "/v1/x", body=b"x"))
        assert got.json() == {"a": 1}
        assert clock.slept == [2, 4]
        assert len(script.requests) == 3


def test_patience_has_an_end() -> None:
    with talking(*[OVERLOADED] * 40) as (client, _, clock):
        with pytest.raises(AnswerError):
            client.patiently(lambda: client.request("POST", "/v1/x", body=b"x"))
        assert 50 < sum(clock.slept) <= 60


@pytest.mark.parametrize(
    "said",
    [
        problem(400, "bad_name", retryable=False),
        problem(504, "outcome_unknown", retryable=False, side_effects="unknown"),
        problem(503, "fenced", retryable=True, side_effects="unknown"),
        Cut(),
    ],
)
def test_what_may_have_happened_is_never_asked_again(said: bytes) -> None:
    with talking(said, answer(201)) as (client, script, clock):
        with pytest.raises(AnswerError):
            client.patiently(lambda: client.request("POST", "/v1/x", body=b"x"))
        assert len(script.requests) == 1
        assert clock.slept == []


UNKNOWN_OUTCOME = problem(504, "outcome_unknown", retryable=False, side_effects="unknown")


@pytest.mark.parametrize("said", [UNKNOWN_OUTCOME, Cut(), answer(502, "<html>", headers="")])
def test_a_request_that_is_known_again_is_sent_until_it_is_answered(said: bytes) -> None:
    with talking(said, said, answer(200, {"a": 1})) as (client, script, _):
        got = client.patiently(
            lambda: client.request("POST", "/v1/x", body=b"x"), is_known_again=True
        )
        assert got.json() == {"a": 1}
        assert len(set(script.requests)) == 1


def test_a_refusal_of_what_is_known_again_is_final() -> None:
    with talking(problem(400, "bad_name", retryable=False)) as (client, script, _):
        with pytest.raises(AnswerError) as caught:
            client.patiently(
                lambda: client.request("POST", "/v1/x", body=b"x"), is_known_again=True
            )
        assert caught.value.exit_code == REFUSED
        assert len(script.requests) == 1


@pytest.mark.parametrize("then", [problem(401, "unauthenticated", retryable=False), OVERLOADED])
def test_after_a_lost_answer_no_other_says_that_nothing_happened(then: bytes) -> None:
    with talking(Cut(), *[then] * 40) as (client, _, _):
        with pytest.raises(AnswerError) as caught:
            client.patiently(
                lambda: client.request("POST", "/v1/x", body=b"x"), is_known_again=True
            )
        assert caught.value.exit_code == UNKNOWN


def test_one_that_goes_away_with_the_answer_is_waited_for() -> None:
    """Nobody has answered here yet, but somebody has taken the request."""
    with talking(Cut()) as (client, script, clock):

        def ask() -> Answer:
            try:
                return client.request("POST", "/v1/x", body=b"x")
            finally:
                script.listener.close()

        with pytest.raises(AnswerError) as caught:
            client.patiently(ask, is_known_again=True)
        assert caught.value.exit_code == UNKNOWN
        assert 50 < sum(clock.slept) <= 60


def test_an_appliance_that_was_never_there_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    clock = Clock()
    client = HttpClient(f"http://127.0.0.1:{port}", "seb_x", sleep=clock.sleep)
    with pytest.raises(AnswerError, match="cannot reach an appliance") as caught:
        client.patiently(lambda: client.request("GET", "/v1/x"))
    assert (caught.value.exit_code, caught.value.harmless) == (UNAVAILABLE, True)
    assert clock.slept == []


def test_one_that_goes_away_is_waited_for() -> None:
    with talking(answer(200)) as (client, script, clock):
        client.request("GET", "/v1/x")
        client.close()
        script.listener.close()
        with pytest.raises(AnswerError):
            client.patiently(lambda: client.request("GET", "/v1/x"))
        assert 50 < sum(clock.slept) <= 60


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
    assert is_local(url) is local
