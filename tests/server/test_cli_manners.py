"""`seb …` as a process where things are not as usual: a full disk, a locale without UTF-8, no
terminal, somebody else at the other end; and a shell that completes its commands."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from socket import create_server
from threading import Thread

import pytest

from tests.server.serving import ENVIRONMENT, Serving, serving
from tests.support.yardstick import at_this_speed

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-m", "seb_appliance"]
NO_UTF8 = {
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONIOENCODING": "ascii:strict",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("seb"), "--linger", "1ms") as running:
        yield running


def environment(running: Serving, **more: str) -> dict[str, str]:
    where = {"SEB_URL": f"http://127.0.0.1:{running.port}", "SEB_DATA": str(running.data)}
    return {**ENVIRONMENT, **where, **more}


def seb(
    running: Serving, *arguments: str | bytes, stdin: bytes = b"", **more: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
        env=environment(running, **more),
    )


def test_a_full_disk_is_told_with_what_was_written_and_committed(running: Serving) -> None:
    assert seb(running, "produce", "full", stdin=b"0\n1\n2\n").returncode == 0
    asked = [*PROGRAM, "consume", "full", "--group", "full", "--commit"]
    for command, told in (
        (asked, "; what comes before offset 0 is written, nothing new is committed."),
        ([*PROGRAM, "topics"], ""),
        ([*PROGRAM, "topics", "--help"], ""),
    ):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                command,
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
                timeout=60,
                env=environment(running),
            )
        assert done.returncode == 74
        assert done.stderr.decode() == (
            f"seb: cannot write to stdout (No space left on device){told}\n"
        )
    assert running.request("GET", "/v1/groups/full")[0] == 404


def test_bytes_and_words_go_through_a_locale_without_utf8(running: Serving) -> None:
    lines = b"gr\xc3\xbc\xc3\x9fe\n\xff\xfe\n"
    done = seb(running, "produce", "bytes", "--key", b"k\xc3\xa4se", stdin=lines, **NO_UTF8)
    assert (done.returncode, done.stdout) == (0, b"")
    done = seb(running, "produce", "bytes", "--key", b"\xff\x00"[:1], stdin=b"3\n", **NO_UTF8)
    assert done.returncode == 0
    done = seb(running, "consume", "bytes", **NO_UTF8)
    assert (done.returncode, done.stdout) == (0, lines + b"3\n")
    done = seb(running, "consume", "bytes", "--json", **NO_UTF8)
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert (first["key"], first["value"]) == ("käse", "grüße")
    assert (second["value"], second["value_base64"]) == (None, "//4=")
    assert (third["key"], third["key_base64"]) == (None, "/w==")
    for argument, code in ((b"--help", 0), ("grüße".encode(), 1), (b"\xff", 78)):
        done = seb(running, "consume", argument, **NO_UTF8)
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done.stderr


def test_a_terminal_sees_progress_and_escapes_and_others_see_neither(running: Serving) -> None:
    seb(running, "produce", "screen", stdin=b"\x1b[2Jbye\n" * 3)
    file = running.data.parent / "lines"
    file.write_bytes(b"a line\n" * 100_000)
    master, slave = pty.openpty()
    done = subprocess.run(
        [*PROGRAM, "produce", "long", "--file", str(file)],
        stderr=slave,
        check=False,
        timeout=60,
        env=environment(running),
    )
    assert done.returncode == 0
    shown = os.read(master, 100_000).decode()
    assert "100,000 records acknowledged" in shown.rpartition("\r\033[K")[2]
    assert "█" in shown
    with (running.data.parent / "out").open("wb") as out:
        subprocess.run(
            [*PROGRAM, "consume", "long"],
            stdout=out,
            stderr=slave,
            check=True,
            timeout=60,
            env=environment(running),
        )
    assert "long: " in os.read(master, 100_000).decode()
    done = subprocess.run(
        [*PROGRAM, "consume", "screen"], stdout=slave, check=False, env=environment(running)
    )
    assert os.read(master, 100_000) == b"\\x1b[2Jbye\r\n" * 3
    os.close(master)
    os.close(slave)
    assert seb(running, "consume", "screen").stdout == b"\x1b[2Jbye\n" * 3
    assert b"\r" not in seb(running, "produce", "long", "--file", str(file)).stderr


def test_a_page_of_a_proxy_is_told_in_one_line(running: Serving) -> None:
    page = b"<html>Bad gateway</html>"
    answer = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page)

    def serve() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(answer)
            connection.close()

    with create_server(("127.0.0.1", 0)) as listener:
        proxy = Thread(target=serve)
        proxy.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for command in (["consume", "t"], ["topics", "create", "t"]):
            key = str(running.data / "admin.key")
            done = seb(running, *command, "--url", url, "--key-file", key)
            assert done.returncode == (69 if "consume" in command else 71)
            sentence = f"seb: {url} answered 502, but is not an appliance. Is the url right?"
            assert done.stderr.decode().startswith(sentence)
            assert done.stderr.count(b"\n") == 1
        proxy.join()


COMPLETING = """
PATH={folder}:$PATH
eval "$(seb completion bash)"
complete_line() {{
    COMP_WORDS=($1 "$2"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
    _seb_completion seb
    echo "${{COMPREPLY[*]}}"
}}
complete_line "seb" "consu"
complete_line "seb topics" "cha"
complete_line "seb consume" "comp"
complete_line "seb consume comp.a --group" "comp"
complete_line "seb completion" "z"
complete_line "seb consume --url http://127.0.0.1:9" "comp"
"""


def test_bash_completes_commands_topics_and_groups(running: Serving, tmp_path: Path) -> None:
    seb(running, "topics", "create", "comp.a")
    seb(running, "topics", "create", "comp.b")
    seb(running, "groups", "commit", "comp-group", "comp.a=0")
    script = tmp_path / "seb"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m seb_appliance "$@"\n')
    script.chmod(0o755)
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETING.format(folder=tmp_path)],
        capture_output=True,
        check=False,
        timeout=60,
        env=environment(running),
    )
    assert done.stdout.decode().splitlines() == [
        "consume", "change", "comp.a comp.b", "comp-group", "zsh", "",
    ]  # fmt: skip
    assert done.stderr == b""


@pytest.mark.measured
def test_a_completion_does_not_wait_for_a_silent_appliance(running: Serving) -> None:
    with create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asked = {"_SEB_COMPLETE": "bash_complete", "COMP_CWORD": "2", "SEB_URL": url}
        begun_s = time.perf_counter()
        told = seb(running, COMP_WORDS="seb consume ", **asked)
        took_s = time.perf_counter() - begun_s
        begun_s = time.perf_counter()
        seb(running, COMP_WORDS="seb profiles use ", **{**asked, "COMP_CWORD": "3"})
        least_s = time.perf_counter() - begun_s
    assert (told.stdout.strip(), told.stderr) == (b"", b"")
    assert took_s - least_s < at_this_speed(2), "0.25 s, on a machine that is not overloaded"


DOCUMENT = (Path(__file__).parents[2] / "docs" / "CLI.md").read_text(encoding="utf-8")
EXAMPLES = """
set -e
seb() {{ {python} -m seb_appliance "$@"; }}
{lines}
"""


def test_the_examples_of_the_documentation_run(running: Serving, tmp_path: Path) -> None:
    """But those of `seb bench` and `seb apply`, which have tests of their own, and of what never
    ends."""
    lines = re.findall(r"^    ((?:seb|printf|eval) .*)", DOCUMENT, re.MULTILINE)
    lines = [line for line in lines if not line.startswith(("seb bench", "seb tail", "seb apply"))]
    assert len(lines) == 15
    script = EXAMPLES.format(python=sys.executable, lines="\n".join(lines))
    script = script.replace("seb-data/local", str(running.data)).replace("~", str(tmp_path))
    script = script.replace("51313", str(running.port))
    (tmp_path / ".config" / "fish" / "completions").mkdir(parents=True)
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env=environment(running, XDG_CONFIG_HOME=str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    assert b"first\nsecond\n" * 2 in done.stdout
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_is_written_for_a_shell_is_read_by_it(running: Serving, shell: str) -> None:
    done = seb(running, "completion", shell)
    assert done.returncode == 0
    assert b"_SEB_COMPLETE" in done.stdout
    path = shutil.which(shell)
    if path is not None:
        read = subprocess.run(
            [path, "-n"], input=done.stdout, capture_output=True, check=False, timeout=60
        )
        assert (read.returncode, read.stderr) == (0, b"")
