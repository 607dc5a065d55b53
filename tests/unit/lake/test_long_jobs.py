"""No job on one table makes the others wait for long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seb_appliance import limits
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.lake.columns import columns_of
from seb_appliance.lake.table_formats import FORMATS
from tests.unit.lake.samples import batch_of, values
from tests.unit.test_tables import ground


async def test_records_that_compress_well_come_in_several_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TABLE_JOB_INFLATED_BYTES", 2_000)
    async with ground(tmp_path) as here:
        await here.make()
        sent = [f"{number}" * 700 for number in range(9)]
        for value in sent:
            await here.send(value)
        await here.settle()
        for _ in sent:
            await here.settle()
        table = here.seb.appliance.broker.table_commits.find("orders")
        ends = [one.next_offset for one in table.head.snapshots if one.op == "append"]
        assert ends == [3, 6, 9]
        assert await here.rows() == list(enumerate(sent))


def test_files_whose_rows_are_too_large_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = columns_of("", [])
    writer = FORMATS.writer(columns, 0, limits.MIB)
    writer.add(batch_of(values(b"x" * 1_000)), 0, 1)
    body, made = writer.finish()
    assert FORMATS.merged([body, body], columns, [made, made])[1].records == 2
    monkeypatch.setattr(limits, "TABLE_MERGED_INFLATED_BYTES", 1_500)
    with pytest.raises(CorruptObjectError, match="too many bytes"):
        FORMATS.merged([body, body], columns, [made, made])


async def test_files_that_cannot_be_merged_are_tried_once_and_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with ground(tmp_path) as here:
        tables, tried = here.seb.appliance.tables, list[tuple[str, ...]]()
        write = tables.writer.write

        async def refuses_to_merge(job: Any) -> Any:
            if job.merged:
                tried.append(job.merged)
                raise CorruptObjectError("their rows are too many bytes")
            return await write(job)

        monkeypatch.setattr(tables.writer, "write", refuses_to_merge)
        await here.make()
        for number in range(limits.TABLE_MERGED_MIN + 3):
            await here.commit(f"{number}")
            for notes in here.seb.appliance.broker.table_commits._notes.values():
                notes.rests_until_s = 0.0  # as after half a minute
        assert [len(files) for files in tried] == [limits.TABLE_MERGED_MIN]
        assert len(await here.rows()) == limits.TABLE_MERGED_MIN + 3
