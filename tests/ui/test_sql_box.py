"""The box for SQL on the page of a table."""

from __future__ import annotations

import asyncio
from pathlib import Path

from seb_appliance import limits
from tests.support.sql_tables import EndlessSql, ground
from tests.ui.pages import add_user, visitor

PAGE = "/ui/tables/Orders.eu"


async def test_a_viewer_reads_a_table_with_sql_and_saves_rows_as_csv(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.send({"customer": "<b>x</b>"})
        await add_user(here.seb, "otto", "viewer")
        otto = visitor(here.seb)
        async with otto.client:
            await otto.log_in("otto")
            assert 'SELECT * FROM "orders_eu"' in (await otto.get(PAGE)).text.replace("&#34;", '"')
            statement = 'SELECT customer, total FROM orders_eu ORDER BY "offset" DESC LIMIT 2'
            page = await otto.post(f"{PAGE}/sql", sql=statement)
            assert page.status_code == 200
            assert "&lt;b&gt;x&lt;/b&gt;" in page.text
            assert "<b>x</b>" not in page.text
            assert "up to offset 21" in page.text
            file = await otto.post(f"{PAGE}/sql", sql=statement, **{"as": "csv"})
            assert file.text == "customer,total\r\n<b>x</b>,\r\nc1,9.5\r\n"
            assert file.headers["content-disposition"] == 'attachment; filename="Orders.eu.csv"'


async def test_a_page_shows_some_cells_of_a_large_answer_and_the_file_has_all(tmp_path: Path):
    async with ground(tmp_path) as here:
        await add_user(here.seb, "otto", "viewer")
        otto = visitor(here.seb)
        async with otto.client:
            await otto.log_in("otto")
            columns = ", ".join(["7"] * 50)
            statement = f"SELECT {columns} FROM range(150)"
            page = await otto.post(f"{PAGE}/sql", sql=statement)
            assert page.text.count('<td class="number">7</td>') == limits.SQL_CELLS_SHOWN_MAX
            assert "100 rows in" in page.text
            assert "; there are more" in page.text
            file = await otto.post(f"{PAGE}/sql", sql=statement, **{"as": "csv"})
            assert file.text.count("7") - file.text.splitlines()[0].count("7") == 150 * 50
            wide = "SELECT " + ", ".join(["7"] * (limits.SQL_CELLS_SHOWN_MAX + 1))
            page = await otto.post(f"{PAGE}/sql", sql=wide)
            assert page.text.count('<td class="number">7</td>') == limits.SQL_CELLS_SHOWN_MAX
            assert "1 row in" in page.text
            assert "; there are more" in page.text


async def test_a_statement_that_cannot_be_run_is_shown_again_with_the_reason(tmp_path: Path):
    async with ground(tmp_path) as here:
        await add_user(here.seb, "otto", "viewer")
        otto = visitor(here.seb)
        async with otto.client:
            await otto.log_in("otto")
            page = await otto.post(f"{PAGE}/sql", sql="SELEC 1 <i>")
            assert page.status_code == 422
            assert "syntax error at or near" in page.text
            assert "SELEC 1 &lt;i&gt;</textarea>" in page.text
            assert (await otto.post("/ui/tables/absent/sql", sql="SELECT 1")).status_code == 404


async def test_a_statement_whose_browser_has_left_is_ended(tmp_path: Path):
    """Else the next one of all users would wait for it, up to 10 s."""
    async with ground(tmp_path) as here:
        endless = EndlessSql()
        await add_user(here.seb, "otto", "viewer")
        otto = visitor(here.seb)
        async with otto.client:
            await otto.log_in("otto")
            here.seb.appliance.broker.sql.runner = endless
            asking = asyncio.create_task(otto.post(f"{PAGE}/sql", sql="SELECT 1"))
            await endless.began.wait()
            asking.cancel()
            async with asyncio.timeout(5):
                await endless.ended.wait()
            assert here.seb.appliance.broker.sql.outcomes["timeout"] == 0
