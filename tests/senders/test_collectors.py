"""Collectors that no registry has as a program: tested where one is installed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.senders import shippers
from tests.senders.cookbook import prepare, wait_for
from tests.senders.deaths import WITHIN_S
from tests.senders.test_shippers import Shipper
from tests.server.serving import Serving, serving

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]


def text_of_otlp(line: str) -> str:
    logged = json.loads(line)["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    return str(logged["body"]["stringValue"])


def text_of_fluent_bit(line: str) -> str:
    return str(json.loads(line)["log"])


@dataclass(frozen=True)
class Collector:
    """`log`: give messages to its port. `text`: the message of a record."""

    run: Shipper
    log: Callable[[int, Iterable[str]], None]
    text: Callable[[str], str]


COLLECTORS = {
    "fluent-bit": Collector(shippers.fluent_bit, shippers.log_json, text_of_fluent_bit),
    "otel-collector": Collector(shippers.collector, shippers.log_otlp, text_of_otlp),
}
BEFORE, KILLING, MEANWHILE = ([f"{word} {n} käse" for n in range(30)] for word in "abc")


def arrived(seb: Serving, sender: str, sent: list[str]) -> Counter[str]:
    """How often each was stored, as soon as all are."""
    text = COLLECTORS[sender].text
    lines = wait_for(seb, sender, lambda lines: {text(one) for one in lines} >= set(sent))
    return Counter(text(line) for line in lines)


@pytest.mark.parametrize("failpoint", ["K2:kill:1", "K10:kill:1"])
@pytest.mark.parametrize("sender", COLLECTORS)
def test_a_collector_loses_nothing_over_a_kill(tmp_path: Path, sender: str, failpoint: str) -> None:
    collector = COLLECTORS[sender]
    with serving(tmp_path) as seb:
        prepared = prepare(seb, sender)
    with collector.run(prepared, seb, tmp_path) as port:
        with serving(tmp_path, port=seb.port) as first:
            collector.log(port, BEFORE)
            assert arrived(first, sender, BEFORE) == Counter(BEFORE)
        with serving(tmp_path, port=seb.port, failpoint=failpoint) as dying:
            collector.log(port, KILLING)
            assert dying.process.wait(WITHIN_S) == -9
            collector.log(port, MEANWHILE)
        with serving(tmp_path, port=seb.port) as again:
            found = arrived(again, sender, BEFORE + KILLING + MEANWHILE)
    doubled = {text for text, times in found.items() if times > 1}
    assert doubled <= (set(KILLING) if failpoint.startswith("K10") else set())


def test_the_collector_of_opentelemetry_keeps_its_queue_when_it_is_started_again(
    tmp_path: Path,
) -> None:
    collector = COLLECTORS["otel-collector"]
    with serving(tmp_path) as seb:
        prepared = prepare(seb, "otel-collector")
    with collector.run(prepared, seb, tmp_path) as port:
        collector.log(port, BEFORE)
    with serving(tmp_path, port=seb.port) as again, collector.run(prepared, again, tmp_path):
        assert arrived(again, "otel-collector", BEFORE) == Counter(BEFORE)
