"""Debezium Server sends the changes of a database, signed; none is lost over a kill."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.senders.cookbook import look, prepare, wait_for
from tests.senders.databases import debezium, postgresql
from tests.senders.deaths import WITHIN_S
from tests.server.serving import Serving, serving

pytestmark = [pytest.mark.slow, pytest.mark.neighbours]


def changes(seb: Serving) -> list[tuple[str, int]]:
    values = [json.loads(json.loads(line)["value"]) for line in look(seb, "debezium")]
    return [(value["op"], value["after"]["id"]) for value in values]


@pytest.mark.parametrize("failpoint", ["K2:kill:3", "K10:kill:3"])
def test_no_change_of_a_database_is_lost_over_a_kill(tmp_path: Path, failpoint: str) -> None:
    with serving(tmp_path) as seb:
        prepared = prepare(seb, "debezium")
        properties = prepared.file("application.properties", seb, tmp_path)
    with postgresql() as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
        database.execute("INSERT INTO orders SELECT n, 'apple' FROM generate_series(1, 10) n")
        with debezium(database, tmp_path, properties):
            with serving(tmp_path, port=seb.port) as first:
                wait_for(first, "debezium", lambda lines: len(lines) >= 10)
            with serving(tmp_path, port=seb.port, failpoint=failpoint) as dying:
                database.execute(
                    "INSERT INTO orders SELECT n, 'pear' FROM generate_series(11, 30) n"
                )
                assert dying.process.wait(WITHIN_S) == -9
        # It ends when a connection breaks. Who runs it starts it again.
        with (
            serving(tmp_path, port=seb.port) as again,
            debezium(database, tmp_path, properties),
        ):
            wait_for(again, "debezium", lambda lines: any('"key":"30"' in one for one in lines))
            found = Counter(changes(again))
    assert set(found) == {("r", n) for n in range(1, 11)} | {("c", n) for n in range(11, 31)}
    assert all(times == 1 or number in (11, 12, 13) for (_, number), times in found.items())
