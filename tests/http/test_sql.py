"""SQL on tables: what a statement may read, and what it may not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seb_appliance import limits
from seb_appliance.broker.lake.queries import SqlRows
from tests.support.appliance import running_appliance
from tests.support.raw_http import RawConnection
from tests.support.sql_tables import TOPIC, EndlessSql, Sql, ground


async def test_a_table_is_read_by_its_name_in_the_catalog_and_by_its_topics(tmp_path: Path):
    async with ground(tmp_path) as sql:
        summed = "SELECT customer, sum(total) FROM {} GROUP BY 1 ORDER BY 1; -- thus"
        expected = [["c0", 31.5], ["c1", 35.0], ["c2", 28.5]]
        assert await sql.rows(summed.format("orders_eu")) == expected
        assert await sql.rows(summed.format('"Orders.eu"')) == expected
        found = (await sql.ask('SELECT "offset" FROM orders_eu', max_rows=3)).json()
        assert found["columns"] == [{"name": "offset", "type": "BIGINT"}]
        assert (len(found["rows"]), found["truncated"]) == (3, True)
        assert found["next_offsets"] == {"orders_eu": 20}
        assert await sql.rows("SELECT sum(9007199254740993::BIGINT)") == [[9007199254740993]]
        most = "sum(9223372036854775807::BIGINT)"
        assert await sql.rows(f"SELECT {most} FROM range(3)") == [["27670116110564327421"]]
        assert (await sql.rows("DESCRIBE orders_eu"))[0][:2] == ["offset", "BIGINT"]
        assert await sql.rows("EXPLAIN SELECT 1")


async def test_rows_of_older_columns_are_read_with_those_of_now(tmp_path: Path):
    async with ground(tmp_path) as sql:
        await sql.change(table_columns="total:string, paid:boolean")
        await sql.send({"total": "much", "paid": True}, headers={"a": "b"})
        shown = "SELECT total, paid, headers FROM orders_eu"
        assert await sql.rows(f'{shown} WHERE "offset" = 20') == [["much", True, {"a": "b"}]]
        # The first `total` was another column, of another type.
        assert await sql.rows(f'{shown} WHERE "offset" = 0') == [[None, None, {}]]
        assert await sql.rows("SELECT count(*) FROM orders_eu WHERE timestamp > '2020-01-01'") == [
            [21]
        ]


HOSTILE = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/proc/self/environ')",
    "SELECT * FROM read_parquet('seb://_seb/journal/00000000000000000002.entry')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_parquet('https://127.0.0.1:1/x.parquet')",
    "COPY orders_eu TO 'stolen.csv'",
    "ATTACH 'other.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "RESET memory_limit",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CREATE TABLE t AS SELECT 1",
    "DELETE FROM orders_eu",
    "EXPORT DATABASE 'all'",
    "SELECT 1; SELECT 2",
    "EXPLAIN ANALYZE COPY orders_eu TO 'stolen.csv'",
    "/* SELECT */ DROP VIEW orders_eu",
    "SELECT repeat('x', 1000000000)",
    "SELECT * FROM nothing",
    "selekt",
    "",
    "\0",
]


@pytest.mark.slow
async def test_hostile_statements_are_refused_and_the_next_one_works(tmp_path: Path):
    async with ground(tmp_path) as sql:
        for statement in HOSTILE:
            code, detail = await sql.refused(statement)
            assert code == ("sql_statement" if statement else "bad_request"), (statement, detail)
            assert "root:" not in detail
        assert await sql.rows("SELECT count(*) FROM orders_eu") == [[20]]


async def test_a_statement_that_takes_too_long_is_ended(tmp_path: Path):
    async with ground(tmp_path) as sql:
        endless = "SELECT count(*) FROM range(1000000000000) WHERE range % 7 = hash(range) % 7"
        assert (await sql.refused(endless, timeout_ms=500))[0] == "sql_timeout"
        assert await sql.rows("SELECT 1") == [[1]]
        outcomes = sql.seb.appliance.broker.sql.outcomes
        assert (outcomes["ok"], outcomes["timeout"]) == (1, 1)


async def test_a_table_whose_topic_must_not_be_read_does_not_exist(tmp_path: Path):
    async with ground(tmp_path) as sql:
        made = await sql.seb.client.post(
            "/v1/api-keys",
            json={"name": "k", "grants": [{"operation": "consume", "topics": "other"}]},
        )
        assert made.status_code == 201, made.text
        key = made.json()["secret"]
        for name in ("orders_eu", "orders_us"):
            code, detail = await sql.refused(f"SELECT * FROM {name}", key=key)
            absent = f"Catalog Error: Table with name {name} does not exist!"
            assert (code, detail.splitlines()[0]) == ("sql_statement", absent)
        assert await sql.rows("SELECT 1", key=key) == [[1]]


async def test_topics_that_somebody_named_like_a_table_change_no_statement(tmp_path: Path):
    async with ground(tmp_path) as sql:
        for topic in ("orders_eu", "ORDERS.EU", "e"):
            made = await sql.seb.client.put(f"/v1/topics/{topic}", json={"table": "iceberg"})
            assert made.status_code == 201, made.text
            await sql.seb.client.post(f"/v1/topics/{topic}/records", content=b"x")
        await sql.settle()
        for name in ("orders_eu", '"Orders.eu"'):
            found = (await sql.ask(f"SELECT count(*) FROM {name}")).json()
            assert found["rows"] == [[20]]
            assert "e" not in found["next_offsets"]
        assert await sql.rows("SELECT count(*) FROM e") == [[1]]


async def test_topics_that_somebody_named_like_a_table_of_a_deleted_topic_change_no_statement(
    tmp_path: Path,
):
    async with ground(tmp_path) as sql:
        (table,) = sql.seb.appliance.broker.tables.all()
        assert (await sql.seb.client.delete(TOPIC)).status_code == 204
        for topic in ("Orders.eu", *(f"Orders.eu_{table.head.table_id[:n]}" for n in (8, None))):
            made = await sql.seb.client.put(f"/v1/topics/{topic}", json={"table": "iceberg"})
            assert made.status_code == 201, made.text
        await sql.settle()
        assert await sql.rows(f"SELECT count(*) FROM orders_eu_{table.head.table_id}_2") == [[20]]
        listed = await sql.seb.client.get("/iceberg/v1/namespaces/topics/tables")
        assert len(listed.json()["identifiers"]) == 4


async def test_one_key_leaves_room_for_others(tmp_path: Path):
    async with ground(tmp_path) as sql:
        queries = sql.seb.appliance.broker.sql
        held, running = asyncio.Event(), list[str]()

        class Slow:
            async def run(self, job: Any) -> Any:
                running.append(job.statement)
                await held.wait()

        runner, queries.runner = queries.runner, Slow()
        waiting = [
            asyncio.ensure_future(queries.query("greedy", "SELECT 1", lambda _: True))
            for _ in range(limits.SQL_QUERIES_MAX)
        ]
        done, pending = await asyncio.wait(waiting, timeout=0.05)
        assert len(done) == limits.SQL_QUERIES_MAX // 2
        assert {type(one.exception()).__name__ for one in done} == {"ShareExceededError"}
        other = asyncio.ensure_future(queries.query("other", "SELECT 2", lambda _: True))
        await asyncio.sleep(0)
        assert running == ["SELECT 1", "SELECT 2"]
        for one in (*pending, other):
            one.cancel()
        await asyncio.gather(*pending, other, return_exceptions=True)
        queries.runner = runner
        assert await sql.rows("SELECT 1") == [[1]]


async def test_an_api_key_that_was_disabled_meanwhile_gets_no_rows(tmp_path: Path):
    async with running_appliance(tmp_path / "data") as seb:
        grants = [{"operation": "consume", "topics": "**"}]
        made = await seb.client.post("/v1/api-keys", json={"name": "k", "grants": grants})
        key = made.json()
        began, held = asyncio.Event(), asyncio.Event()

        class Slow:
            async def run(self, _: Any) -> SqlRows:
                began.set()
                await held.wait()
                return SqlRows([("x", "INTEGER")], b"[[1]]")

        seb.appliance.broker.sql.runner = Slow()
        asking = asyncio.ensure_future(Sql(seb).ask("SELECT 1", key=key["secret"]))
        await began.wait()
        url = f"/v1/api-keys/{key['api_key_id']}"
        assert (await seb.client.patch(url, json={"disabled": True})).status_code == 200
        held.set()
        answer = await asking
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_a_statement_whose_client_has_left_is_ended(tmp_path: Path):
    """Else the next one of this API key would wait for it, up to a minute."""
    async with running_appliance(tmp_path / "data") as seb:
        endless = EndlessSql()
        seb.appliance.broker.sql.runner = endless
        body = b'{"sql":"SELECT 1","timeout_ms":60000}'
        head = b"POST /v1/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n"
        connection = await RawConnection.open(seb.port)
        await connection.send(
            head % seb.admin_key.encode()
            + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        await endless.began.wait()
        await connection.close()
        async with asyncio.timeout(10):
            await endless.ended.wait()
        assert seb.appliance.broker.sql.outcomes["timeout"] == 0


@pytest.mark.parametrize("wrong", [{"max_rows": 0}, {"max_rows": 10_001}, {"timeout_ms": 60_001}])
async def test_limits_out_of_range_are_refused(tmp_path: Path, wrong: dict[str, int]):
    async with running_appliance(tmp_path / "data") as seb:
        assert (await Sql(seb).refused("SELECT 1", **wrong))[0] == "bad_request"
