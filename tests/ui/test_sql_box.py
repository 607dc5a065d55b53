"""The box for SQL on the page of a table."""

from __future__ import annotations

from pathlib import Path

from tests.support.sql_tables import ground
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
