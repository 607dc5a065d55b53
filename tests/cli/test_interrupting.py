"""Ctrl-C at a question ends as Ctrl-C anywhere else does, and nothing is done."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from click import termui

from seb_appliance.client.blocking import LoopThread
from seb_appliance.client.transport import Answer
from tests.cli.conftest import Seb

QUESTIONS = [
    ["topics", "delete", "t"],
    ["topics", "trim", "t", "--before", "1"],
    ["groups", "reset", "g", "--to", "earliest"],
    ["groups", "delete", "g"],
    ["record-keys", "delete", "t", "k"],
    ["api-keys", "revoke", "{id}"],
    ["apply", "{file}", "--prune"],
    ["profiles", "remove", "p"],
]


@pytest.fixture
def asked(seb: Seb, monkeypatch: pytest.MonkeyPatch) -> Seb:
    """A topic, a group, an API key and a profile to take away, and a file that names none."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(seb.folder))
    seb.good("produce", "t", "--key", "k", stdin=b"1\n2\n")
    seb.good("groups", "commit", "g", "t=2", "--allow-backward")
    where = ["--url", seb.appliance.base_url, "--key-file", str(seb.key_file)]
    seb.good("profiles", "add", "p", *where)
    (seb.folder / "empty.yaml").write_text("topics: {}\n")
    return seb


def state(seb: Seb) -> list[object]:
    topic, group, profiles, keys = (
        seb.good(*command, "--json").json
        for command in (
            ["topics", "show", "t"],
            ["groups", "show", "g"],
            ["profiles"],
            ["api-keys"],
        )
    )
    ids = [key["api_key_id"] for key in keys["api_keys"]]
    committed = [one["committed_offset"] for one in group["topics"]]
    return [topic["log_start_offset"], topic["log_end_offset"], committed, profiles, ids]


@pytest.mark.parametrize("command", QUESTIONS, ids=lambda one: " ".join(one[:2]))
def test_ctrl_c_at_a_question_ends_with_130_and_nothing_is_done(
    asked: Seb, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: str) -> str:
        raise KeyboardInterrupt

    made = asked.good("api-keys", "create", "x", "--grant", "consume", "--json").json
    names = {"id": made["api_key_id"], "file": asked.folder / "empty.yaml"}
    before = state(asked)
    monkeypatch.setattr(termui, "visible_prompt_func", interrupted)
    told = asked(*(word.format(**names) for word in command))
    assert (told.code, told.raw) == (130, b""), told.err
    assert "seb: " not in told.err
    assert state(asked) == before


@pytest.mark.parametrize("command", QUESTIONS[:3], ids=lambda one: " ".join(one[:2]))
def test_the_end_of_input_is_a_no(asked: Seb, command: list[str]) -> None:
    told = asked(*command, stdin=b"")
    assert told.code == 1
    assert "nothing was" in told.err


def test_ctrl_c_while_the_answer_is_waited_for_says_that_it_may_have_been_done(
    asked: Seb, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for = LoopThread.wait_for

    def interrupted(thread: LoopThread, work: Coroutine[Any, Any, object]) -> object:
        done = wait_for(thread, work)
        if isinstance(done, Answer):
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(LoopThread, "wait_for", interrupted)
    for command, words in (("create", "it may have been done or not\n"), ("list", "")):
        told = asked("api-keys", command, *(["k", "--grant", "admin"] if words else []))
        assert (told.code, told.raw, told.err) == (130, b"", f"{words}\n")
