"""Tables of a whole appliance, with files that need no pyarrow (support/plain_tables.py)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from seb_appliance import limits
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.lake.names import HINT, metadata_name
from seb_appliance.clock import SystemClock
from seb_appliance.errors import ObjectExistsError, OutcomeUnknownError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.ops.jobs.lake.work import TableWork
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.objects.rewriting import ObjectRewriter
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import ObjectStore, list_all
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.plain_tables import PLAIN, rows_of

TOPIC = "/v1/topics/orders"
ADMIN = Actor("user:admin", "192.0.2.9")


class Ground:
    """An appliance whose tables are written step by step."""

    def __init__(self, seb: RunningAppliance, store: ObjectStore) -> None:
        self.seb = seb
        self.store = store
        appliance = seb.appliance
        retrying = RetryingStore(appliance.store, SystemClock(), random.random, give_up_after_s=0.1)
        mode = appliance.journal.mode
        appliance.tidier._rewriter = ObjectRewriter(retrying, mode, appliance.settings.data)
        appliance.tables.writer = TableWork(retrying, mode, PLAIN, NO_FAILPOINTS)

    async def make(self, **settings: Any) -> None:
        answer = await self.seb.client.put(TOPIC, json={"table": "iceberg", **settings})
        assert answer.status_code == 201, answer.text

    async def send(self, *values: str) -> None:
        records = [{"value": value, "key": value[:1]} for value in values]
        answer = await self.seb.client.post(f"{TOPIC}/records", json={"records": records})
        assert answer.status_code == 201, answer.text

    async def settle(self) -> None:
        """Do what is due now, and let what waits for time be due."""
        table = self.seb.appliance.broker.tables.all()
        commits = self.seb.appliance.broker.table_commits
        for one in table:
            commits.lags.wait_from(one, float("-inf"))
        while await self.seb.appliance.tables.step():
            pass

    async def commit(self, *values: str) -> None:
        await self.send(*values)
        await self.settle()

    async def repair(self) -> int:
        """The status of the answer."""
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(self.seb.client.post("/v1/tables/orders/repair"))
            while not asked.done():
                await asyncio.sleep(0)
                await self.seb.appliance.tables.step()
        return asked.result().status_code

    async def show(self, name: str = "orders") -> dict[str, Any]:
        answer = await self.seb.client.get(f"/v1/tables/{name}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def rows(self, name: str = "orders") -> list[tuple[int, str]]:
        table = self.seb.appliance.broker.table_commits.find(name)
        rows, _ = await rows_of(self.store.get, table.head.definition.location)
        return [(offset, (value or b"").decode()) for offset, value in rows]


@contextlib.asynccontextmanager
async def ground(
    folder: Path, store: MemoryStore | None = None, bucket: str = "bucket"
) -> AsyncIterator[Ground]:
    store = store or MemoryStore(0)
    bucket = f"file:{folder.parent / bucket}"
    flags = {"bucket": bucket, "tidier": "off", "garbage_grace": "0ms", "take_over": True}
    async with running_appliance(folder / "data", store=store, **flags) as seb:
        yield Ground(seb, store)


async def test_a_table_has_each_record_once(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a", "b")
        await here.commit("c")
        assert await here.rows() == [(0, "a"), (1, "b"), (2, "c")]
        found = await here.show()
        assert (found["state"], found["rows"], found["next_offset"]) == ("live", 3, 3)
        assert found["lag_records"] == 0


async def test_a_table_of_an_older_topic_begins_at_its_log_start(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make(table="none")
        await here.commit("a", "b", "c")
        await here.seb.client.post(f"{TOPIC}/trim", json={"before": 1})
        await here.seb.client.patch(TOPIC, json={"table": "iceberg"})
        await here.settle()
        assert await here.rows() == [(1, "b"), (2, "c")]


async def test_a_budget_that_stretches_windows_makes_commits_rarer_too(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        broker = here.seb.appliance.broker
        lags, next_job = broker.table_commits.lags, here.seb.appliance.tables.next_commits.next_job
        assert lags.wanted_s(broker.topics.all()[0].settings) == 300
        broker.linger.default_ms *= 3
        assert lags.wanted_s(broker.topics.all()[0].settings) == 900
        await here.send("b")
        assert await next_job(lambda _: False, print) is None
        lags.wait_from(broker.tables.all()[0], monotonic() - 600)
        assert await next_job(lambda _: False, print) is None
        broker.linger.default_ms *= 1_000
        assert lags.wanted_s(broker.topics.all()[0].settings) == 3_600
        await here.seb.client.patch(TOPIC, json={"table_lag_ms": 60_000})
        assert lags.wanted_s(broker.topics.all()[0].settings) == 60
        assert await next_job(lambda _: False, print) is not None


async def test_an_idle_table_makes_no_requests(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        before = here.seb.appliance.store.counts.requests()
        await here.settle()
        assert here.seb.appliance.store.counts.requests() == before


async def test_a_commit_takes_five_puts_beside_the_journal(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        names = set(await keys(here))
        await here.commit("b")
        assert len(set(await keys(here)) - names) == 4  # and the hint, which was there


async def keys(here: Ground) -> list[str]:
    return [info.key for info in await list_all(here.store, "tables/")]


async def test_small_files_are_merged(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        for i in range(limits.TABLE_MERGED_MIN):
            await here.commit(str(i))
        found = await here.show()
        assert (found["files"], found["rows"]) == (1, limits.TABLE_MERGED_MIN)
        assert [value for _, value in await here.rows()] == [
            str(i) for i in range(limits.TABLE_MERGED_MIN)
        ]


async def test_the_bucket_alone_brings_a_table_back(tmp_path: Path):
    store = MemoryStore(0)
    async with ground(tmp_path / "first", store) as here:
        await here.make()
        await here.commit("a")
        await here.commit("b")
        before = await here.show()
    key = (tmp_path / "first" / "data" / "admin.key").read_text()
    (tmp_path / "second" / "data").mkdir(parents=True)
    (tmp_path / "second" / "data" / "admin.key").write_text(key)
    async with ground(tmp_path / "second", store) as here:
        await here.settle()
        after = await here.show()
        assert after == before | {"lag_s": after["lag_s"]}
        await here.commit("c")
        assert await here.rows() == [(0, "a"), (1, "b"), (2, "c")]


async def test_metadata_that_was_not_printed_before_the_end_is_printed_by_the_next_start(
    tmp_path: Path,
):
    store = MemoryStore(0)
    async with ground(tmp_path, store) as here:
        await here.make()
        await here.commit("a")
        location = here.seb.appliance.broker.tables.all()[0].head.definition.location
        await here.send("b")
        hint = await store.get(location + HINT)
        await here.settle()
    await store.put(location + HINT, hint)  # as if the process had ended before
    async with ground(tmp_path, store) as here:
        await here.settle()
        assert await here.rows() == [(0, "a"), (1, "b")]


async def test_a_table_is_not_changed_again_before_its_last_metadata_is_stored(tmp_path: Path):
    """Only the metadata of the last event can be printed."""
    async with ground(tmp_path) as here:
        commits = here.seb.appliance.broker.table_commits
        await here.make()
        assert await commits.set_next()
        await here.seb.client.patch(TOPIC, json={"table_columns": "id:string"})
        assert not await commits.set_next()
        while not commits._is_published(commits.find("orders").head):
            assert await here.seb.appliance.tables.step()
        assert await commits.set_next()


async def test_metadata_of_someone_else_stops_the_table_until_it_is_repaired(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        head = here.seb.appliance.broker.tables.all()[0].head
        theirs = head.key_of(metadata_name(head.number + 1))
        await here.store.put(theirs, b"{}")
        await here.commit("b")
        found = await here.show()
        assert (found["state"], found["foreign"]) == ("foreign", theirs)
        await here.commit("c")
        assert (await here.show())["lag_records"] == 1
        assert await here.repair() == 200
        await here.settle()
        assert (await here.show())["state"] == "live"
        assert [value for _, value in await here.rows()] == ["a", "b", "c"]


async def test_a_store_that_says_once_that_metadata_exists_costs_a_table_no_time(tmp_path: Path):
    store = LyingStore()
    async with ground(tmp_path, store) as here:
        await here.make()
        store.lies = 2
        await here.commit("a")
        assert store.lies == 0
        assert await here.rows() == [(0, "a")]
        assert (await here.show())["failure"] == ""


class LyingStore(MemoryStore):
    """Says of the next `lies` objects of tables that they exist, and does not have them."""

    lies = 0

    def __init__(self) -> None:
        super().__init__(0)

    async def create(self, key: str, body: bytes) -> None:
        if self.lies and key.startswith("tables/"):
            self.lies -= 1
            raise ObjectExistsError("412", key=key)
        await super().create(key, body)


async def test_metadata_of_a_later_commit_is_no_stray_that_a_repair_would_lose(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make(table="iceberg,delta")
        await here.commit("a")
        head = here.seb.appliance.broker.tables.all()[0].head
        theirs = head.key_of(metadata_name(head.number + 1))
        await here.store.put(theirs, b"{}")
        await here.store.put(head.key_of("metadata/mine.json"), b"{}")
        here.seb.appliance.broker.table_commits.has_strays = True
        await here.settle()
        await here.commit("b")
        await here.repair()
        await here.settle()
        while await here.seb.appliance.tidier.step():
            pass
        assert head.key_of("metadata/mine.json") not in await keys(here)
        assert await here.rows() == [(0, "a"), (1, "b")]


async def test_retention_does_not_wait_for_a_paused_table_for_ever(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make(table_hold_ms=60_000)
        await here.commit("a")
        await here.seb.client.post("/v1/tables/orders/pause")
        await here.send("b")
        while await here.seb.appliance.tables.step():
            pass
        broker = here.seb.appliance.broker
        topic = broker._catalog.find("orders")
        commits = broker.table_commits
        assert commits.hold(topic) == 1
        table = commits.find("orders")
        commits.lags.wait_from(table, commits.lags.since_s(table.head.table_id) - 61)
        assert commits.hold(topic) is None


async def repair_without_a_keeper(commits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("seb_appliance.broker.lake.commits._REPAIRED_WITHIN_S", 0.0)
        with pytest.raises(OutcomeUnknownError, match="ask again"):
            await commits.repair("orders", ADMIN)


async def test_a_repair_that_is_not_done_is_not_told_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nothing but this process knows of it: a kill before the printing would forget it."""
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        await repair_without_a_keeper(here.seb.appliance.broker.table_commits, monkeypatch)
        assert await here.repair() == 200


@pytest.mark.parametrize("name", [HINT, "metadata/snap-{}.avro", "metadata/v{}.metadata.json"])
async def test_the_hourly_look_prints_again_what_is_gone(tmp_path: Path, name: str):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        head = here.seb.appliance.broker.tables.all()[0].head
        key = head.key_of(name.format(head.number))
        body = await here.store.get(key)
        await here.store.delete(key)
        await look_after_an_hour(here)
        assert await here.store.get(key) == body


async def test_the_hourly_look_finds_metadata_that_someone_replaced(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        head = here.seb.appliance.broker.tables.all()[0].head
        await here.store.put(head.key_of(metadata_name(head.number)), b"{}")
        before = here.seb.appliance.store.counts.requests()
        await look_after_an_hour(here)
        assert (await here.show())["state"] == "foreign"
        assert here.seb.appliance.store.counts.requests() - before < 12


async def look_after_an_hour(here: Ground) -> None:
    table_id = here.seb.appliance.broker.tables.all()[0].head.table_id
    here.seb.appliance.broker.table_commits.notes(table_id).looked_s = float("-inf")
    await here.settle()


async def test_a_repair_that_is_asked_for_during_a_printing_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        commits = here.seb.appliance.broker.table_commits
        head = commits.find("orders").head
        job = commits.print_job(commits.find("orders"))
        await repair_without_a_keeper(commits, monkeypatch)
        commits.printed(job, head.key_of(metadata_name(head.number)))
        assert (await here.show())["state"] == "live"
        assert commits.next_print(lambda _: False).repair


async def test_a_paused_table_waits(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        assert (await here.seb.client.post("/v1/tables/orders/pause")).json()["state"] == "paused"
        await here.commit("b")
        assert len(await here.rows()) == 1
        await here.seb.client.post("/v1/tables/orders/resume")
        await here.settle()
        assert len(await here.rows()) == 2


async def test_a_dropped_table_leaves_no_object(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        refused = await here.seb.client.delete("/v1/tables/orders")
        assert refused.status_code == 400
        await here.seb.client.patch(TOPIC, json={"table": "none"})
        assert (await here.show())["state"] == "off"
        assert (await here.seb.client.delete("/v1/tables/orders")).status_code == 204
        assert (await here.seb.client.get("/v1/tables/orders")).status_code == 404
        await here.settle()
        while await here.seb.appliance.tidier.step():
            pass
        assert await keys(here) == []


async def test_a_topic_made_anew_has_a_new_table(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a")
        first = await here.show()
        await here.seb.client.delete(TOPIC)
        assert (await here.show(first["table_id"]))["state"] == "detached"
        await here.make()
        await here.commit("z")
        assert await here.rows() == [(0, "z")]
        assert await here.rows(first["table_id"]) == [(0, "a")]


async def test_a_fork_has_a_table_of_its_own_with_the_shared_past(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make()
        await here.commit("a", "b", "c")
        body = {"fork_of": {"topic": "orders", "offset": 2}}
        made = await here.seb.client.put("/v1/topics/branch", json=body)
        assert made.status_code == 201
        await here.seb.client.post("/v1/topics/branch/records", content=b"d")
        await here.settle()
        assert await here.rows("branch") == [(0, "a"), (1, "b"), (2, "d")]
        assert len(await here.rows()) == 3


async def test_a_store_that_refuses_tables_lets_topics_go_on(tmp_path: Path):
    store = RefusingStore()
    async with ground(tmp_path, store) as here:
        await here.make()
        await here.commit("a")
        store.refuses = True
        await here.commit("b")
        found = await here.show()
        assert found["failure"]
        assert found["lag_records"] == 1
        store.refuses = False
        here.seb.appliance.broker.table_commits.notes(found["table_id"]).rests_until_s = 0.0
        await here.settle()
        assert len(await here.rows()) == 2


class RefusingStore(MemoryStore):
    """Refuses objects of tables while `refuses`."""

    refuses = False

    def __init__(self) -> None:
        super().__init__(0)

    async def put(self, key: str, body: bytes) -> None:
        if self.refuses and key.startswith("tables/"):
            raise OSError("no space left")
        await super().put(key, body)


async def test_a_compacted_topic_loses_its_rows_in_the_table_too(tmp_path: Path):
    async with ground(tmp_path) as here:
        await here.make(cleanup="compact", min_compaction_lag_ms=0, tombstone_retention_ms=0)
        await here.commit("a1", "b1", "a2")
        appliance = here.seb.appliance
        for _ in range(limits.ENTRIES_PER_JOB_MIN):
            await here.send("c")
        await here.settle()
        assert len(await here.rows()) == 3 + limits.ENTRIES_PER_JOB_MIN
        tidy(appliance)
        while not appliance.tidier.counters.compactions:
            assert await appliance.tidier.step()
        await here.settle()
        assert [value for _, value in await here.rows()] == ["b1", "a2", "c"]


def tidy(appliance: Any) -> None:
    """Everything is old enough to be merged, at once."""
    tidying = appliance.broker.tidying
    settings = type(tidying.settings)(trigger_bytes=1, after_ms=0, young_ms=0, grace_ms=0)
    tidying.settings = settings


@pytest.mark.parametrize("name", ["nothing", "0011223344556677"])
async def test_an_unknown_table_is_not_found(tmp_path: Path, name: str):
    async with ground(tmp_path) as here:
        assert (await here.seb.client.get(f"/v1/tables/{name}")).status_code == 404


async def test_a_bucket_with_a_new_address_is_printed_anew(tmp_path: Path):
    store = MemoryStore(0)
    async with ground(tmp_path / "here", store) as here:
        await here.make()
        await here.commit("a")
        await here.commit("b")
    async with ground(tmp_path / "here", store, bucket="moved") as here:
        await here.settle()
        assert "/moved/" in (await here.show())["metadata"]
        head = here.seb.appliance.broker.tables.all()[0].head
        assert head.iceberg_from < head.newest.number
        assert await here.rows() == [(0, "a"), (1, "b")]
