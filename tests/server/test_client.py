"""The Python client against a real process: its documentation runs, a kill -9 loses nothing."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seb_appliance.client import Admin, Consumer, Producer
from tests.server.serving import ENVIRONMENT, Serving, free_port, serving

DOCUMENT = (Path(__file__).parents[2] / "docs" / "CLIENT.md").read_text(encoding="utf-8")
RECORDS = 60_000

pytestmark = pytest.mark.slow


def url(running: Serving) -> str:
    return f"http://127.0.0.1:{running.port}"


def key(running: Serving) -> str:
    return (running.data / "admin.key").read_text().strip()


def values(running: Serving, topic: str) -> list[str]:
    with Consumer(url(running), key(running), topic, follow=False) as consumer:
        return [record.text() for record in consumer]


def test_the_examples_of_the_documentation_run(tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    with serving(tmp_path) as running:
        script = "\n".join(examples).replace("seb-data/local", str(running.data))
        script = script.replace("51313", str(running.port))
        told = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0] == "stored at offset 1001"
    assert lines[1].startswith("orders.eu 0 2")
    assert lines[4] == "1002 records of orders.eu up to 1002"
    assert "bills up to 1002 and a summary at 0" in lines
    assert "12 [b'apple']" in lines
    assert lines[-3:] == ["stored at offset 0", "21.5", "topic_not_found 404 False none"]


def test_a_kill_in_the_middle_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed once while much is on its way, and once when the bucket has a window and nobody was
    told."""
    port = free_port()
    with serving(tmp_path, port=port) as running:
        producer = Producer(url(running), key(running), batch_bytes=20_000)
        for i in range(RECORDS // 3):
            producer.send("t", str(i))
        running.process.kill()
        running.process.wait()
    with serving(tmp_path, port=port, failpoint="K10:kill:3") as running:
        for i in range(RECORDS // 3, 2 * RECORDS // 3):
            producer.send("t", str(i))
        running.process.wait(30)
    with serving(tmp_path, port=port) as running:
        with producer:
            for i in range(2 * RECORDS // 3, RECORDS):
                last = producer.send("t", str(i))
        assert values(running, "t") == [str(i) for i in range(RECORDS)]
        assert last.result() == RECORDS - 1


def work(where: str, token: str) -> None:
    """From `in` to `out` and `seen`, a transaction for each batch."""
    with Consumer(where, token, "in", group="g", follow=False, max_bytes=1) as consumer:
        for batch in consumer.batches():
            with consumer.transaction() as transaction:
                for record in batch:
                    transaction.send("out", record.value)
                    transaction.send("seen", {"offset": record.offset})


def test_a_step_whose_answer_died_with_the_appliance_is_done_once(tmp_path: Path) -> None:
    """Killed when the bucket has a step and nobody was told; and again in another one."""
    port = free_port()
    with serving(tmp_path, port=port) as running:
        where, token = url(running), key(running)
        with Producer(where, token) as producer:
            for i in range(40):
                producer.send("in", str(i))
                producer.flush()
    with ThreadPoolExecutor(1) as threads:
        for kill in ("K10:kill:3", "K10:kill:7", ""):
            with serving(tmp_path, port=port, failpoint=kill) as running:
                if kill == "K10:kill:3":
                    working = threads.submit(work, where, token)
                if kill:
                    running.process.wait(60)
                else:
                    working.result(60)
                    assert values(running, "out") == [str(i) for i in range(40)]
                    seen = [json.loads(text)["offset"] for text in values(running, "seen")]
                    assert seen == list(range(40))


INTERRUPTED = """
import sys, time
from seb_appliance.client import Producer
with Producer(sys.argv[1], sys.argv[2], linger_ms=60_000) as producer:
    for i in range(100):
        producer.send("t", str(i))
    print("sent", flush=True)
    time.sleep(60)
"""


def test_ctrl_c_sends_what_is_in_the_buffer(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        command = [sys.executable, "-c", INTERRUPTED, url(running), key(running)]
        with subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == b"sent\n"
            program.send_signal(signal.SIGINT)
            _, told = program.communicate(timeout=30)
        assert told.splitlines()[-1] == b"KeyboardInterrupt"
        assert values(running, "t") == [str(i) for i in range(100)]


def test_a_consumer_outlives_a_kill_and_an_admin_waits_for_the_start(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, port=port) as running:
        where, token = url(running), key(running)
        with Producer(where, token) as producer:
            producer.send("t", "one")
        consumer = Consumer(where, token, "t", group="g", commit="after_batch")
        records = iter(consumer)
        assert next(records).text() == "one"
        running.process.kill()
        running.process.wait()
    with serving(tmp_path, port=port), consumer, Admin(where, token) as admin:
        with Producer(where, token) as producer:
            producer.send("t", "two")
        assert next(records).text() == "two"
        assert admin.group("g")["topics"][0]["committed_offset"] == 1
