"""Debezium Server sends the changes of a database, signed, each once, over a kill, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.senders.cookbook import look, prepare, wait_for
from tests.senders.databases import debezium, postgresql
from tests.senders.deaths import WITHIN_S
from tests.server.serving import Serving, serving

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="


def changes(seb: Serving) -> list[tuple[str, int]]:
    values = [json.loads(json.loads(line)["value"]) for line in look(seb, "debezium")]
    return [(value["op"], value["after"]["id"]) for value in values]


@pytest.mark.parametrize("failpoint", ["K2:kill:3", "K10:kill:3"])
def test_each_change_of_a_database_is_stored_once(tmp_path: Path, failpoint: str) -> None:
    with serving(tmp_path) as seb:
        prepared = prepare(seb, "debezium", secret=SECRET)
        properties = prepared.file("application.properties", seb, tmp_path)
    with postgresql() as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
        database.execute("INSERT INTO orders SELECT n, 'apple' FROM generate_series(1, 10) n")
        with (
            serving(tmp_path, port=seb.port, failpoint=failpoint) as dying,
            debezium(database, tmp_path, properties) as output,
        ):
            assert dying.process.wait(WITHIN_S) == -9, output.read_text()
            database.execute("INSERT INTO orders SELECT n, 'pear' FROM generate_series(11, 30) n")
            with serving(tmp_path, port=seb.port) as again:
                wait_for(again, "debezium", lambda lines: len(lines) >= 30)
                found = changes(again)
    assert [number for _, number in found] == list(range(1, 31))
    assert {op for op, number in found if number > 10} == {"c"}
