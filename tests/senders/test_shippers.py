"""rsyslog, syslog-ng and collectd send with the files of the cookbook, over kills, too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from tests.senders import shippers
from tests.senders.cookbook import Prepared, look, prepare, wait_for
from tests.senders.deaths import WITHIN_S
from tests.server.serving import Serving, serving

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]

Shipper = Callable[[Prepared, Serving, Path], AbstractContextManager[int]]
SHIPPERS: dict[str, tuple[Shipper, str]] = {  # and the member of the message
    "rsyslog": (shippers.rsyslog, "message"),
    "rsyslog-kafkarest": (shippers.rsyslog, "message"),
    "syslog-ng": (shippers.syslog_ng, "MESSAGE"),
}
TEXT = 'one "quoted" \\ word and käse'


def messages(seb: Serving, sender: str) -> list[str]:
    """What was logged, as it arrived."""
    lines = [json.loads(line) for line in look(seb, sender)]
    return [str(line[SHIPPERS[sender][1]]).strip() for line in lines]


@pytest.mark.parametrize("sender", SHIPPERS)
def test_what_is_logged_arrives_as_it_was(tmp_path: Path, sender: str) -> None:
    sent = [TEXT, *(f"n {number}" for number in range(1_000))]
    with serving(tmp_path) as seb, SHIPPERS[sender][0](prepare(seb, sender), seb, tmp_path) as port:
        shippers.log(port, sent)
        shippers.logger(port, "from logger")
        wait_for(seb, sender, lambda lines: len(lines) > len(sent))
        found = messages(seb, sender)
        answer = seb.request("GET", f"/v1/topics/logs.{sender}/records")[1]
    assert Counter(found) == Counter([*sent, "from logger"])
    records = [one for one in json.loads(answer)["records"] if "quoted" in one["value"]]
    given = ("cellar", "11-23T10:00:00") if sender != "rsyslog-kafkarest" else (None, None)
    assert [(one["key"], one["timestamp"][5:19] if one["key"] else None) for one in records] == [
        given
    ]


@pytest.mark.parametrize("failpoint", ["K2:kill:1", "K10:kill:1"])
@pytest.mark.parametrize("sender", SHIPPERS)
def test_nothing_that_is_logged_is_lost_over_a_kill(
    tmp_path: Path, sender: str, failpoint: str
) -> None:
    before, killing, meanwhile = ([f"{word} {n}" for n in range(100)] for word in "abc")
    with serving(tmp_path) as seb:
        prepared = prepare(seb, sender)
    with SHIPPERS[sender][0](prepared, seb, tmp_path) as port:
        with serving(tmp_path, port=seb.port) as first:
            shippers.log(port, before)
            wait_for(first, sender, lambda lines: all_in(before, lines))
        with serving(tmp_path, port=seb.port, failpoint=failpoint) as dying:
            shippers.log(port, killing)
            assert dying.process.wait(WITHIN_S) == -9
            shippers.log(port, meanwhile)
        with serving(tmp_path, port=seb.port) as again:
            sent = [*before, *killing, *meanwhile]
            wait_for(again, sender, lambda lines: all_in(sent, lines))
            found = Counter(message for message in messages(again, sender) if message in sent)
    assert set(found) == set(sent)
    repeated = {message for message, times in found.items() if times > 1}
    assert not repeated & set(before)
    if sender == "syslog-ng":  # only what has lost its answer; rsyslog repeats in two ways
        assert repeated <= (set(killing) if failpoint.startswith("K10") else set())


@pytest.mark.parametrize("sender", SHIPPERS)
def test_what_is_answered_with_503_is_sent_again(tmp_path: Path, sender: str) -> None:
    sent = [f"n {number}" for number in range(50)]
    with serving(tmp_path) as seb:
        prepared = prepare(seb, sender)
    with SHIPPERS[sender][0](prepared, seb, tmp_path) as port:
        with refusing(seb.port, 503) as refused:
            shippers.log(port, sent)
            for _ in range(5):  # as often as it takes to give up
                refused.get(timeout=WITHIN_S)
        with serving(tmp_path, port=seb.port) as again:
            wait_for(again, sender, lambda lines: all_in(sent, lines))


def test_rsyslog_drops_what_is_answered_with_429(tmp_path: Path) -> None:
    with serving(tmp_path) as seb:
        prepared = prepare(seb, "rsyslog")
    with shippers.rsyslog(prepared, seb, tmp_path) as port:
        with refusing(seb.port, 429) as refused:
            shippers.log(port, ["dropped"])
            refused.get(timeout=WITHIN_S)
        with serving(tmp_path, port=seb.port) as again:
            shippers.log(port, ["later"])
            wait_for(again, "rsyslog", lambda lines: all_in(["later"], lines))
            # And no message of its own about that: it would be the next one to be refused.
            assert set(messages(again, "rsyslog")) == {"later"}


@contextmanager
def refusing(port: int, status: int) -> Iterator[Queue[str]]:
    """A server that is ready and refuses each request; the queue gets their paths."""
    refused: Queue[str] = Queue()

    class Refusing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(200)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(status)
            refused.put(self.path)

        def answer(self, code: int) -> None:
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")  # and do not keep it when the server ends
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Refusing)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield refused
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def all_in(sent: list[str], lines: list[str]) -> bool:
    text = "\n".join(lines)
    return all(f'{message}"' in text for message in sent)


def collected(seb: Serving) -> list[int]:
    return [json.loads(line)["values"][0] for line in look(seb, "collectd")]


def test_collectd_sends_each_value_list_once(tmp_path: Path) -> None:
    with serving(tmp_path) as seb:
        prepared = prepare(seb, "collectd")
        with shippers.collectd(prepared, seb, tmp_path) as control:
            shippers.put_values(control, range(500))
            wait_for(seb, "collectd", lambda lines: len(lines) >= 400)
        found = collected(seb)  # and what collectd still had when it was stopped
        answer = seb.request("GET", "/v1/topics/metrics.collectd/records")[1]
    assert len(found) == len(set(found)) > 400
    assert set(found) <= set(range(500))
    first = json.loads(answer)["records"][0]
    assert (first["key"], first["timestamp"][:4]) == ("cellar", "2026")


def test_collectd_loses_what_is_not_answered(tmp_path: Path) -> None:
    with serving(tmp_path) as seb:
        prepared = prepare(seb, "collectd")
    with shippers.collectd(prepared, seb, tmp_path) as control:
        shippers.put_values(control, range(1_000))  # several buffers, and no appliance
        with serving(tmp_path, port=seb.port) as again:
            shippers.put_values(control, range(1_000, 1_500))
            wait_for(again, "collectd", bool)
            found = collected(again)
    assert len(found) == len(set(found))
    assert 0 not in found
