"""The command socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat

import pytest

from seb_appliance.api.server.control import bind_control, serve_control
from seb_appliance.errors import ConfigurationError, OverloadedError


async def exchange(path, line: bytes) -> dict:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(line)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.count(b"\n") == 1
    return json.loads(answer)


async def greet(_arguments):
    return {"greeting": "hello"}


async def refuse(_arguments):
    raise OverloadedError("Too much.")


async def break_down(_arguments):
    raise RuntimeError("a bug")


HANDLERS = {"greet": greet, "refuse": refuse, "break-down": break_down}


@pytest.fixture
async def path(tmp_path):
    path = tmp_path / "control.sock"
    server = await serve_control(bind_control(path), HANDLERS)
    yield path
    server.close()


async def test_a_command_gets_its_answer(path):
    assert await exchange(path, b'{"command":"greet"}\n') == {"ok": True, "greeting": "hello"}


async def test_only_the_owner_may_open_it(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_refusal_is_a_problem(path):
    answer = await exchange(path, b'{"command":"refuse"}\n')
    assert (answer["error"]["code"], answer["error"]["detail"]) == ("overloaded", "Too much.")


async def test_a_bug_is_told_and_logged(path, caplog):
    answer = await exchange(path, b'{"command":"break-down"}\n')
    assert (answer["error"]["code"], answer["error"]["status"]) == ("internal", 500)
    assert "a bug" in answer["error"]["detail"]
    assert caplog.records


@pytest.mark.parametrize(
    "line",
    [b"\n", b"{}\n", b"[]\n", b'{"command":7}\n', b'{"command":"x","more":1}\n', b"\xff\n",
     b'{"command":"\xff"}\n', b"[" * 10_000 + b"\n"],
)  # fmt: skip
async def test_other_lines_are_bad_requests(path, line):
    assert (await exchange(path, line))["error"]["code"] == "bad_request"


async def test_an_unknown_command_is_told_the_known_ones(path):
    answer = await exchange(path, b'{"command":"dance"}\n')
    assert "break-down, greet, refuse" in answer["error"]["detail"]


async def test_a_line_that_is_too_long_is_hung_up_on(path):
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"x" * 1_000_000)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert await exchange(path, b'{"command":"greet"}\n')


async def test_a_socket_that_was_left_behind_is_replaced(path):
    server = await serve_control(bind_control(path), {"greet": greet})
    assert (await exchange(path, b'{"command":"greet"}\n'))["ok"]
    server.close()


async def test_a_file_that_is_no_socket_stays(tmp_path):
    path = tmp_path / "control.sock"
    path.write_text("precious")
    with pytest.raises(ConfigurationError):
        bind_control(path)
    assert path.read_text() == "precious"


async def test_a_path_too_long_for_a_socket_says_so(tmp_path):
    with pytest.raises(ConfigurationError, match="shorter path"):
        bind_control(tmp_path / ("x" * 120))
