"""Which tables a statement of SQL is given."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from seb_appliance import limits
from seb_appliance.broker.lake.queries import TableQueries
from tests.support.lake import SET, Story, data_file


def queries_of(topics: Iterable[str]) -> Any:
    stories = [
        Story(replace(SET, name=name, table_id=f"{number:016x}"))
        for number, name in enumerate(topics)
    ]
    for story in stories:
        story.commit(data_file(0, 0))
    tables = SimpleNamespace(all=lambda: [story.table for story in stories])
    commits = SimpleNamespace(state=lambda _: "live")
    shares = SimpleNamespace(declare=lambda *_: None)
    return TableQueries(tables, commits, shares, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statement", "topics"),
    [
        ("SELECT * FROM orders_eu", ["Orders.eu"]),
        ('SELECT * FROM "Orders.eu"--all', ["Orders.eu"]),
        ("SELECT ORDERS_EU.key FROM/**/orders_eu;", ["Orders.eu"]),
        ('FROM "my-topic" JOIN e USING(key)', ["my-topic", "e"]),
        ('SELECT \'e\'||x."offset" FROM "a-b.c" x', ["e", "a-b.c"]),
        ("SELECT tree, my, topic FROM orders", []),
    ],
)
def test_a_statement_is_given_the_tables_that_it_names(statement: str, topics: list[str]) -> None:
    queries = queries_of(["Orders.eu", "my-topic", "e", "a-b.c"])
    found = [table.head.definition.name for _, table in queries._of(statement, lambda _: True)]
    assert found == topics


def test_a_statement_with_hundreds_of_names_holds_the_event_loop_for_a_moment() -> None:
    names = [f"t{number}-{'x' * 100}" for number in range(500)]
    queries = queries_of(names)
    statement = " ".join(f'"{name}"' for name in names)
    assert len(statement) < limits.SQL_STATEMENT_BYTES_MAX
    began_s = time.process_time()
    assert len(list(queries._of(statement, lambda _: True))) == len(names)
    assert time.process_time() - began_s < 0.1
