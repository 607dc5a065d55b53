"""Asking the running appliance through its socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seb_appliance.cli.commands.serve import ask
from seb_appliance.errors import StartError


@contextmanager
def answering(data: Path, answer: Callable[[bytes], bytes]) -> Iterator[None]:
    """Somebody at the socket in `data` who answers one line."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(data / "control.sock"))
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                connection.sendall(answer(lines.readline()))

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(10)


def test_the_answer_comes_back(tmp_path: Path) -> None:
    def answer(line: bytes) -> bytes:
        assert json.loads(line) == {"command": "reset-key"}
        return b'{"ok": true, "path": "x/admin.key"}\n'

    with answering(tmp_path, answer):
        assert ask(tmp_path, "reset-key") == {"ok": True, "path": "x/admin.key"}


def test_a_refusal_is_told_in_the_appliances_words(tmp_path: Path) -> None:
    with (
        answering(tmp_path, lambda _: b'{"error": {"code": "fenced", "detail": "it is over"}}\n'),
        pytest.raises(StartError, match="it is over"),
    ):
        ask(tmp_path, "reset-key")


@pytest.mark.parametrize("answer", [b"", b"nonsense\n", b"[1]\n"])
def test_an_answer_that_is_none_is_an_error(tmp_path: Path, answer: bytes) -> None:
    with answering(tmp_path, lambda _: answer), pytest.raises(StartError, match="cannot talk"):
        ask(tmp_path, "reset-key")


def test_without_an_appliance_the_sentence_says_so(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no appliance runs"):
        ask(tmp_path, "reset-key")


def test_a_socket_that_a_crash_left_is_no_appliance(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control.sock"))
    with pytest.raises(StartError, match="nothing listens"):
        ask(tmp_path, "reset-key")


def test_an_appliance_that_does_not_answer_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "control.sock"))
        silent.listen(1)
        with pytest.raises(StartError, match="did not answer"):
            ask(tmp_path, "reset-key", timeout_s=0.05)
