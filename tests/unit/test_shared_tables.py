"""How many lake tables one API key may have beside those of others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seb_appliance import limits
from seb_appliance.api.routes.manage import tables
from seb_appliance.broker.access.audit import THE_APPLIANCE, Actor
from seb_appliance.broker.lake.next_commits import NextCommits
from seb_appliance.broker.lake.turns import Turns
from seb_appliance.errors import BadRequestError, CorruptObjectError
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.tasks import SLICE_S
from tests.unit.test_slices import work_for
from tests.unit.test_tables import Ground, ground


async def test_topics_of_one_api_key_leave_room_for_tables_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TABLES_MAX", 4)
    async with ground(tmp_path) as here:
        broker = here.seb.appliance.broker
        grants = (Grant(operation="manage"),)
        greedy, other = [(await broker.access.create(name, grants))[0] for name in ("g", "o")]
        for name, key in (("g1", greedy), ("g2", greedy), ("g3", greedy), ("o", other)):
            await broker.topics.create(name, TopicSettings(table="iceberg"), Actor.of_key(key))
            while await broker.table_commits.set_next():
                pass
        await here.make()
        while await broker.table_commits.set_next():
            pass
        made = [one.head.definition.name for one in broker.tables.all()]
        assert sorted(made) == ["g1", "g2", "o", "orders"]


async def test_tables_of_topics_that_an_api_key_has_deleted_are_in_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TABLES_MAX", 4)
    async with ground(tmp_path) as here:
        broker = here.seb.appliance.broker
        grants = (Grant(operation="manage"),)
        greedy, other = [(await broker.access.create(name, grants))[0] for name in ("g", "o")]
        for number in range(4):
            name = f"g{number}"
            await broker.topics.create(name, TopicSettings(table="iceberg"), Actor.of_key(greedy))
            await here.settle()
            await broker.topics.delete(name)
        await broker.topics.create("o", TopicSettings(table="iceberg"), Actor.of_key(other))
        await here.settle()
        made = [one.head.definition.name for one in broker.tables.all()]
        assert made == ["g0", "g1", "o"]


async def test_the_columns_of_a_table_can_be_changed_so_often_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each schema is kept, and is in each metadata file from then on."""
    monkeypatch.setattr(limits, "TABLE_SCHEMAS_MAX", 3)
    async with ground(tmp_path) as here:
        topics = here.seb.appliance.broker.topics
        await here.make()
        while await here.seb.appliance.tables.step():
            pass
        for number in range(2):
            await topics.change("orders", {"table_columns": f"c{number}:long"})
            while await here.seb.appliance.tables.step():
                pass
        with pytest.raises(BadRequestError, match="had 3 schemas"):
            await topics.change("orders", {"table_columns": "c0:long"})
        await topics.change("orders", {"table_columns": "c1:long", "table_lag_ms": 2_000})
        await topics.change("orders", {"table": "none"})
        await here.seb.appliance.broker.table_commits.drop("orders", THE_APPLIANCE)
        await topics.change("orders", {"table_columns": "c0:long", "table": "iceberg"})
        while await here.seb.appliance.tables.step():
            pass
        assert len(here.seb.appliance.broker.table_commits.find("orders").head.schemas) == 1


async def test_a_topic_whose_columns_all_take_the_whole_value_is_refused(tmp_path: Path):
    """Each of them would have a copy of a record of 16 MiB."""
    async with ground(tmp_path) as here:
        columns = ", ".join(f"c{number}:json=$" for number in range(9))
        settings = TopicSettings(table="iceberg", table_columns=columns)
        with pytest.raises(BadRequestError) as refused:
            await here.seb.appliance.broker.topics.create("t", settings)
        assert "9 columns take this member" in str(refused.value.data)


async def test_a_list_of_many_tables_leaves_turns_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with ground(tmp_path) as here:
        await here.make()
        await here.settle()
        known, members = here.seb.appliance.broker.tables, tables._members
        turns, seen = 0, set[int]()

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def slowly(*of: Any) -> Any:
            seen.add(turns)
            work_for(SLICE_S)
            return members(*of)

        monkeypatch.setattr(known, "all", lambda of=known.all: of() * 20)
        monkeypatch.setattr(tables, "_members", slowly)
        beside = asyncio.create_task(other())
        listed = await here.seb.client.get("/v1/tables")
        beside.cancel()
        assert len(listed.json()["tables"]) == 20
        assert len(seen) > 10


async def busy_tables(here: Ground) -> NextCommits:
    """Of the API key g with three topics, and o with one. Each table has as many files as are
    merged at once, and a record that waits: those of g for longer."""
    broker = here.seb.appliance.broker
    grants = (Grant(operation="manage"),)
    greedy, other = [(await broker.access.create(name, grants))[0] for name in ("g", "o")]
    for name, key in (("g1", greedy), ("g2", greedy), ("g3", greedy), ("o1", other)):
        await broker.topics.create(name, TopicSettings(table="iceberg"), Actor.of_key(key))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "TABLE_MERGED_MIN", 1_000)
        for _ in range(8):
            await send_to_each(here)
            await here.settle()
    await send_to_each(here)
    for age_s, table in enumerate(reversed(broker.tables.all())):
        broker.table_commits.lags.wait_from(table, -float(age_s))
        broker.table_commits.notes(table.head.table_id).kept_up = ()
    return NextCommits(broker.tables, broker.table_commits)


async def turns(
    commits: NextCommits, count: int, took_s: dict[str, float]
) -> list[tuple[str, str]]:
    """Whose tables got the next commits, by the first letter of their names, and of which kind."""
    seen: list[tuple[str, str]] = []
    for _ in range(count):
        job = await commits.next_job(lambda _: False, print)
        assert job is not None
        seen.append((job.head.definition.name[0], job.op))
        commits.had_turn(job, took_s[seen[-1][0]])
    return seen


async def send_to_each(here: Ground) -> None:
    for name in ("g1", "g2", "g3", "o1"):
        sent = await here.seb.client.post(f"/v1/topics/{name}/records", content=b"x")
        assert sent.status_code == 201, sent.text


async def test_an_api_key_whose_commits_take_long_delays_others_by_one_of_these(tmp_path: Path):
    async with ground(tmp_path) as here:
        seen = await turns(await busy_tables(here), 6, {"g": 20.0, "o": 0.1})
        assert seen[:3] == [("g", "append"), ("o", "append"), ("g", "replace")]
        assert seen[3:] == [("o", "replace"), ("o", "append"), ("o", "replace")]


async def test_new_records_that_always_wait_do_not_keep_files_from_being_merged(tmp_path: Path):
    """Nor old ones from being removed."""
    async with ground(tmp_path) as here:
        seen = await turns(await busy_tables(here), 4, {"g": 1.0, "o": 1.0})
        assert sorted(seen) == [(who, op) for who in "go" for op in ("append", "replace")]


def test_who_needed_no_turn_for_long_has_no_more_than_others_afterwards() -> None:
    turns = Turns()
    for _ in range(1_000):
        turns.had(("busy", True), 1.0)
    turns.had(("late", True), 1.0)
    assert turns.place_s(("late", True)) == turns.place_s(("busy", True)) == 1_000.0


async def test_a_table_whose_index_has_a_hole_does_not_stop_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with ground(tmp_path) as here:
        await busy_tables(here)
        index = here.seb.appliance.broker.table_commits._index
        rows_of = index.rows_of

        async def with_a_hole(topic: Any, offset: int) -> Any:
            if topic.name == "g1":
                raise CorruptObjectError("the local index of topic 'g1' has a hole")
            return await rows_of(topic, offset)

        monkeypatch.setattr(index, "rows_of", with_a_hole)
        await here.settle()
        shown = {name: await here.show(name) for name in ("g1", "g2", "o1")}
        assert [one["lag_records"] for one in shown.values()] == [1, 0, 0]
        assert shown["g1"]["failure"].endswith("has a hole")


async def test_an_api_key_that_always_changes_settings_keeps_no_table_waiting(tmp_path: Path):
    """Nor those that are to be made: new settings of older topics came before all else."""
    async with ground(tmp_path) as here:
        await busy_tables(here)
        broker, step = here.seb.appliance.broker, here.seb.appliance.tables.step
        other = next(one for one in broker.access.all() if one.name == "o")
        await broker.topics.create("o2", TopicSettings(table="iceberg"), Actor.of_key(other))
        formats = ["iceberg,delta", "iceberg"]
        for number in range(24):
            for name in ("g1", "g2", "g3"):
                if broker.table_commits.find(name).head.definition.formats[1:]:
                    await broker.topics.change(name, {"table": formats[1]})
                else:
                    await broker.topics.change(name, {"table": formats[0]})
            assert await step(), number
        assert (await here.show("o1"))["lag_records"] == 0
        assert (await here.show("o2"))["state"] == "backfill"


async def test_strays_are_removed_also_while_commits_are_always_due(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        appliance, head = here.seb.appliance, here.seb.appliance.broker.tables.all()[0].head
        await here.store.put(head.key_of("data/mine.parquet"), b"")
        appliance.broker.table_commits.has_strays = True
        keeper = appliance.tables
        keeper._cleaned_s -= 61.0
        await here.send("b")
        appliance.broker.table_commits.lags.wait_from(appliance.broker.tables.all()[0], 0.0)
        assert await keeper.step()
        assert head.key_of("data/mine.parquet") in keeper._tidying.stored.garbage
        assert (await here.show())["lag_records"] == 1
        assert await keeper.step()
        assert (await here.show())["lag_records"] == 0
