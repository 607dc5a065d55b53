"""Log shippers and collectors as processes: installed by install.sh, configured by the cookbook."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.senders.cookbook import Prepared
from tests.server.serving import Serving
from tests.support.process import ROOT
from tests.support.servers.s3_server import die_with_parent, free_port

INSTALLED = ROOT / ".state" / "senders"
SYSLOG_NG = INSTALLED / "syslog-ng"
STARTED_S_MAX = 30

# What Debian's own main files do: a source, and the files of a folder.
RSYSLOG_MAIN = """
global(workDirectory="{folder}" processInternalMessages="on")
module(load="imptcp")
input(type="imptcp" address="127.0.0.1" port="{port}")
include(file="{file}")
"""
SYSLOG_NG_MAIN = """
@version: 3.38
options {{ time-reopen(1); keep-hostname(yes); }};
source s_src {{ network(ip("127.0.0.1") port({port}) transport("tcp")); }};
@include "{file}"
"""
COLLECTD_MAIN = """
Hostname "cellar"
BaseDir "{folder}"
PluginDir "/usr/lib/collectd"
TypesDB "/usr/share/collectd/types.db"
LoadPlugin logfile
<Plugin logfile>
  File stdout
</Plugin>
LoadPlugin unixsock
<Plugin unixsock>
  SocketFile "{folder}/socket"
</Plugin>
Include "{file}"
"""
FLUENT_BIT_MAIN = """
[SERVICE]
    Flush          1
    scheduler.base 1
    scheduler.cap  2
[INPUT]
    Name           tcp
    Listen         127.0.0.1
    Port           {port}
    Format         json
@INCLUDE {file}
"""
COLLECTOR_CHANGES = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
extensions: {{file_storage: {{directory: "{folder}/queue"}}}}
service: {{telemetry: {{metrics: {{level: none}}}}}}
"""


def installed(found: bool | str | None, what: str) -> None:
    if not found:
        pytest.skip(f"{what} is not installed (make neighbours installs it)")


@contextmanager
def running(
    folder: Path, command: list[str | Path], is_up: Callable[[], bool], **options: Any
) -> Iterator[Path]:
    """`is_up` is asked until it is so. The file has what the program prints."""
    output = folder / "sender.output"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, preexec_fn=die_with_parent, **options
        )
    try:
        until_s = time.monotonic() + STARTED_S_MAX
        while not is_up():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < until_s, output.read_text()
            time.sleep(0.05)
        yield output
    finally:
        process.terminate()
        try:
            process.wait(STARTED_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listens(port: int) -> Callable[[], bool]:
    def is_up() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return is_up


def _main_file(text: str, folder: Path, port: int, file: Path) -> Path:
    main = folder / "main.conf"
    main.write_text(text.format(folder=folder, port=port, file=file), encoding="utf-8")
    return main


@contextmanager
def rsyslog(prepared: Prepared, seb: Serving, folder: Path) -> Iterator[int]:
    """The port that takes lines of syslog."""
    program = shutil.which("rsyslogd", path="/usr/sbin")
    installed(program and (INSTALLED / "omhttp.so").exists(), "rsyslog with omhttp")
    port = free_port()
    main = _main_file(RSYSLOG_MAIN, folder, port, prepared.file("60-seb.conf", seb, folder))
    # Its colon-separated path of modules keeps the standard folder.
    modules = f"{INSTALLED}:/usr/lib/x86_64-linux-gnu/rsyslog"
    command = [str(program), "-n", "-f", main, "-i", folder / "pid", "-M", modules]
    with running(folder, command, listens(port)):
        yield port


@contextmanager
def syslog_ng(prepared: Prepared, seb: Serving, folder: Path) -> Iterator[int]:
    """The port that takes lines of syslog."""
    program = SYSLOG_NG / "usr/sbin/syslog-ng"
    installed(program.exists(), "syslog-ng")
    port = free_port()
    main = _main_file(SYSLOG_NG_MAIN, folder, port, prepared.file("seb.conf", seb, folder))
    libraries = next((SYSLOG_NG / "usr/lib").glob("*/libsyslog-ng-*.so.0")).parent
    modules = next((SYSLOG_NG / "usr/lib/syslog-ng").glob("*/libhttp.so")).parent
    command = ["env", f"LD_LIBRARY_PATH={libraries}", program, "-F", "-e", "--no-caps"]
    command += ["--module-path", modules, "-f", main, "--persist-file", folder / "persist"]
    command += ["--pidfile", folder / "pid", "--control", folder / "control"]
    with running(folder, command, listens(port)):
        yield port


@contextmanager
def collectd(prepared: Prepared, seb: Serving, folder: Path) -> Iterator[Path]:
    """The socket that takes values by the command PUTVAL."""
    program = shutil.which("collectd", path="/usr/sbin")
    installed(program, "collectd")
    main = _main_file(COLLECTD_MAIN, folder, 0, prepared.file("seb.conf", seb, folder))
    control = folder / "socket"
    command = [str(program), "-f", "-C", main, "-P", folder / "pid"]
    with running(folder, command, control.exists):
        yield control


def log(port: int, messages: Iterable[str]) -> None:
    """Messages as a program of this machine logs them."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for message in messages:
            connection.sendall(f"<13>Nov 23 10:00:00 cellar app[7]: {message}\n".encode())


def logger(port: int, message: str) -> None:
    """As scripts log; Debian's `logger` is on every machine."""
    server = ["--server", "127.0.0.1", "--port", str(port), "--tcp", "--rfc3164"]
    subprocess.run(["logger", *server, "--tag", "script", message], check=True, timeout=30)


def put_values(control: Path, values: Iterable[int]) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(control))
        with connection.makefile("rw") as lines:
            for n, value in enumerate(values):
                lines.write(f"PUTVAL cellar/test/gauge-temperature {1_795_000_000 + n}:{value}\n")
                lines.flush()
                assert lines.readline().startswith("0 ")


@contextmanager
def fluent_bit(prepared: Prepared, seb: Serving, folder: Path) -> Iterator[int]:
    """The port that takes JSON objects over TCP."""
    program = shutil.which("fluent-bit")
    if program is None:
        pytest.skip("Fluent Bit (fluent-bit) is not installed, and no registry has it")
    port = free_port()
    main = _main_file(FLUENT_BIT_MAIN, folder, port, prepared.file("seb.conf", seb, folder))
    with running(folder, [program, "-c", main], listens(port)):
        yield port


def log_json(port: int, messages: Iterable[str]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for message in messages:
            connection.sendall(json.dumps({"log": message}).encode() + b"\n")


@contextmanager
def collector(prepared: Prepared, seb: Serving, folder: Path) -> Iterator[int]:
    """OpenTelemetry's collector: the port that takes OTLP/HTTP. Its queue is in `folder`."""
    program = shutil.which("otelcol")
    if program is None:
        pytest.skip("no OpenTelemetry Collector (otelcol) is installed, and no registry has it")
    port = free_port()
    changes = folder / "changes.yaml"  # merged into the file of the page
    changes.write_text(COLLECTOR_CHANGES.format(port=port, folder=folder), encoding="utf-8")
    command: list[str | Path] = [program, "--config", prepared.file("seb.yaml", seb, folder)]
    with running(folder, [*command, "--config", changes], listens(port)):
        yield port


def log_otlp(port: int, messages: Iterable[str]) -> None:
    """As a program that logs by OTLP, a request each."""
    for message in messages:
        record = {"timeUnixNano": str(time.time_ns()), "body": {"stringValue": message}}
        body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        named = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/logs", json.dumps(body), named)
        assert connection.getresponse().status == 200
        connection.close()
