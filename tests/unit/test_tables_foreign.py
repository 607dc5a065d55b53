"""Metadata that another program wrote behind the last commit of a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seb_appliance.broker.lake.names import (
    LAST_CHECKPOINT,
    delta_name,
    earlier_metadata,
    metadata_name,
)
from seb_appliance.errors import ObjectMissingError
from tests.unit.test_tables import ground, keys, look_after_an_hour

CHECKPOINT = ".checkpoint.parquet"


async def test_a_repair_leaves_no_later_commit_of_someone_else(tmp_path: Path):
    """Spark by path, and each reader of Delta, follows the newest that it finds."""
    async with ground(tmp_path) as here:
        await here.make(table="iceberg,delta")
        await here.commit("a")
        head = here.seb.appliance.broker.tables.all()[0].head
        next_one, after = head.number + 1, head.number + 2
        theirs = [
            *(metadata_name(number) for number in (next_one, after)),
            *(delta_name(number) for number in (next_one, after)),
            *(delta_name(number, CHECKPOINT) for number in (next_one, after)),
            delta_name(after, ".checkpoint.0000000001.0000000001.parquet"),
            LAST_CHECKPOINT,
        ]
        beside = ("metadata/v9.d/x", delta_name(head.number, CHECKPOINT))
        for name in (*theirs, *beside):
            await here.store.put(head.key_of(name), b"{}")
        await here.commit("b")
        assert (await here.show())["state"] == "foreign"
        assert await here.repair() == 200
        left = {key.removeprefix(head.definition.location) for key in await keys(here)}
        ours = {metadata_name(next_one), delta_name(next_one)}
        assert left & {*theirs, *beside} <= {*ours, *beside}
        assert await here.store.get(head.key_of(metadata_name(next_one))) != b"{}"
        await here.commit("c")
        assert (await here.show())["state"] == "live"
        assert [value for _, value in await here.rows()] == ["a", "b", "c"]


async def test_a_repair_prints_anew_what_is_gone_of_earlier_commits(tmp_path: Path):
    """VACUUM of Delta removes all metadata of Iceberg: no manifest named the files any more."""
    async with ground(tmp_path) as here:
        await here.make(table="iceberg,delta")
        for value in "abc":
            await here.commit(value)
        for key in await keys(here):
            if "/metadata/" in key:
                await here.store.delete(key)
        await here.commit("d")
        with pytest.raises(ObjectMissingError):
            await here.rows()
        assert await here.repair() == 200
        await here.settle()
        assert [value for _, value in await here.rows()] == ["a", "b", "c", "d"]
        head = here.seb.appliance.broker.tables.all()[0].head
        needed = {name for name, _ in earlier_metadata(head)}
        assert not [name for name in needed if name.startswith("metadata/")]
        number = head.number
        assert await here.repair() == 200
        await here.settle()
        assert here.seb.appliance.broker.tables.all()[0].head.number == number


async def test_a_repair_prints_anew_what_has_another_length_than_earlier_commits_gave_it(
    tmp_path: Path,
):
    async with ground(tmp_path) as here:
        await here.make(table="iceberg")
        for value in "abc":
            await here.commit(value)
        head = here.seb.appliance.broker.tables.all()[0].head
        cut = head.key_of(next(name for name, length in earlier_metadata(head) if length))
        await here.store.put(cut, (await here.store.get(cut))[:-1])
        assert await here.repair() == 200
        await here.settle()
        assert [value for _, value in await here.rows()] == ["a", "b", "c"]
        head = here.seb.appliance.broker.tables.all()[0].head
        assert cut not in {head.key_of(name) for name, _ in earlier_metadata(head)}


@pytest.mark.parametrize("name_of", [metadata_name, delta_name])
async def test_the_hourly_look_finds_a_commit_of_someone_else_to_an_idle_topic(
    tmp_path: Path, name_of: Callable[[int], str]
):
    async with ground(tmp_path) as here:
        await here.make(table="iceberg,delta")
        await here.commit("a")
        head = here.seb.appliance.broker.tables.all()[0].head
        theirs = head.key_of(name_of(head.number + 1))
        await here.store.put(theirs, b"{}")
        await look_after_an_hour(here)
        found = await here.show()
        assert (found["state"], found["foreign"]) == ("foreign", theirs)
        assert await here.repair() == 200
        assert theirs not in await keys(here)
        await look_after_an_hour(here)
        assert (await here.show())["state"] == "live"
