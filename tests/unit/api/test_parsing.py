"""Large bodies are read in a child process, in which the API keys take turns."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest

from seb_appliance import limits
from seb_appliance.api.encoding.record_json import parse_ndjson
from seb_appliance.api.server.parsing import Parser
from seb_appliance.errors import BadJsonError, OverloadedError, RequestTooLargeError

SMALL = b"x" * limits.PARSED_AT_ONCE_BYTES
LARGE = b"x" * (limits.PARSED_AT_ONCE_BYTES + 1)


@pytest.fixture
async def parser() -> AsyncIterator[Parser]:
    parser = Parser()
    yield parser
    await parser.close()


def pid_of(body: bytes) -> int:
    return os.getpid()


def end(body: bytes) -> None:
    os._exit(1)


def note(body: bytes, path: str, name: str) -> None:
    with open(path, "a") as file:  # noqa: PTH123
        file.write(name)


def work_on(body: bytes) -> None:
    while True:
        time.process_time()


async def test_a_small_body_is_read_here(parser: Parser) -> None:
    assert await parser.parse("key", pid_of, SMALL) == os.getpid()


async def test_a_large_body_is_read_in_a_child_process(parser: Parser) -> None:
    pid = await parser.parse("key", pid_of, LARGE)
    assert pid != os.getpid()
    assert await parser.parse("key", pid_of, LARGE) == pid
    lines = b'{"key":"k","value":{"n":1},"headers":{"h":"x"}}\n' * 5_000
    assert await parser.parse("key", parse_ndjson, lines) == parse_ndjson(lines)


async def test_what_is_wrong_with_a_body_is_told_as_ever(parser: Parser) -> None:
    wrong = b'{"value":1}\n' * 9_000 + b'{"value":'
    with pytest.raises(BadJsonError) as told:
        parse_ndjson(wrong)
    with pytest.raises(BadJsonError) as told_by_child:
        await parser.parse("key", parse_ndjson, wrong)
    assert told_by_child.value.detail == told.value.detail
    assert told_by_child.value.data == told.value.data


async def test_a_child_that_died_is_replaced(parser: Parser) -> None:
    with pytest.raises(OverloadedError) as refused:
        await parser.parse("key", end, LARGE)
    assert refused.value.retryable
    assert refused.value.side_effects == "none"
    assert await parser.parse("key", pid_of, LARGE) != os.getpid()


async def test_a_body_that_takes_too_long_is_refused(
    parser: Parser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await parser.parse("key", pid_of, LARGE)
    monkeypatch.setattr(limits, "PARSE_S_MAX", 0.1)
    with pytest.raises(RequestTooLargeError):
        await parser.parse("key", work_on, LARGE)
    monkeypatch.undo()
    assert await parser.parse("key", pid_of, LARGE) != os.getpid()


async def test_keys_take_turns_however_much_one_of_them_sends(parser: Parser, tmp_path) -> None:
    path = str(tmp_path / "order")
    many = [parser.parse("greedy", note, LARGE, path, "g") for _ in range(6)]
    few = [parser.parse("other", note, LARGE, path, "o") for _ in range(2)]
    await asyncio.gather(*many, *few)
    assert (tmp_path / "order").read_text() == "gogogggg"


async def test_a_body_waits_for_no_larger_one(parser: Parser) -> None:
    larger = b"x" * (limits.PARSED_SOON_BYTES + 1)
    working = asyncio.create_task(parser.parse("greedy", work_on, larger))
    assert await parser.parse("greedy", pid_of, LARGE) != os.getpid()
    assert not working.done()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_one_who_leaves_while_waiting_keeps_nobody_out(parser: Parser) -> None:
    first = asyncio.create_task(parser.parse("key", pid_of, LARGE))
    leaving = asyncio.create_task(parser.parse("key", pid_of, LARGE))
    await asyncio.sleep(0)
    leaving.cancel()
    last = asyncio.create_task(parser.parse("key", pid_of, LARGE))
    assert await first == await last
