"""rsyslog, syslog-ng and logger send to the syslog port with the files of the cookbook."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.senders import shippers
from tests.senders.cookbook import look, prepare, wait_for
from tests.senders.deaths import WITHIN_S
from tests.senders.test_shippers import Shipper
from tests.server.serving import Serving, serving
from tests.support.servers.s3_server import free_port

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]

SHIPPERS: dict[str, Shipper] = {"rsyslog": shippers.rsyslog, "syslog-ng": shippers.syslog_ng}
BYTE_ORDER_MARK = "\ufeff"
BEFORE, AFTER = ([f"{word} {n}" for n in range(200)] for word in ("before", "after"))


def flags(port: int) -> list[str]:
    """What the page starts the appliance with."""
    of_port = ["--syslog-listen", f"127.0.0.1:{port}", "--syslog-topic", "logs.port"]
    return [*of_port, "--syslog-networks", "127.0.0.0/8"]


def texts(seb: Serving) -> list[str]:
    """The messages behind the six fields of the header and the structured data."""
    behind = [line.split(" ", 6)[6] for line in look(seb, "syslog")]
    found = [one.split("] ", 1)[1] if one.startswith("[") else one[2:] for one in behind]
    return [one.lstrip(BYTE_ORDER_MARK + " ") for one in found]


def arrived(seb: Serving, sent: list[str]) -> Counter[str]:
    """How often each was stored, as soon as all are."""
    wait_for(seb, "syslog", lambda _: set(texts(seb)) >= set(sent))
    return Counter(text for text in texts(seb) if text in sent)


def log_until(port: int, is_enough: Callable[[], bool], message: str = "meanwhile") -> None:
    until_s = time.monotonic() + WITHIN_S
    while not is_enough():
        assert time.monotonic() < until_s
        shippers.log(port, [message])
        time.sleep(0.1)


@pytest.mark.parametrize("failpoint", ["K2:kill:2", "K10:kill:2"])
@pytest.mark.parametrize("sender", SHIPPERS)
def test_what_is_logged_before_and_behind_a_kill_arrives_once(
    tmp_path: Path, sender: str, failpoint: str
) -> None:
    syslog_port = free_port()
    with serving(tmp_path, *flags(syslog_port)) as seb:
        prepared = replace(prepare(seb, "syslog"), syslog_port=syslog_port)
        with SHIPPERS[sender](prepared, seb, tmp_path) as port:
            shippers.log(port, BEFORE)
            assert arrived(seb, BEFORE) == Counter(BEFORE)
            seb.process.kill()
            seb.process.wait()
            with serving(
                tmp_path, *flags(syslog_port), port=seb.port, failpoint=failpoint
            ) as dying:
                log_until(port, lambda: dying.process.poll() is not None)
                assert dying.process.wait(WITHIN_S) == -9
            with serving(tmp_path, *flags(syslog_port), port=seb.port) as again:
                log_until(port, lambda: "again" in texts(again), "again")
                shippers.log(port, AFTER)
                assert arrived(again, AFTER) == Counter(AFTER)
                assert arrived(again, BEFORE) == Counter(BEFORE)


def test_what_logger_sends_arrives_with_its_headers(tmp_path: Path) -> None:
    syslog_port = free_port()
    with serving(tmp_path, *flags(syslog_port)) as seb:
        prepared = replace(prepare(seb, "syslog"), syslog_port=syslog_port)
        script = prepared.file("log.sh", seb, tmp_path)
        subprocess.run(["sh", script, "käse from a script"], check=True, timeout=30)
        assert arrived(seb, ["käse from a script"]) == {"käse from a script": 1}
        shown = seb.request("GET", "/v1/topics/logs.port/records")[1]
    assert b'"app_name":"script"' in shown
