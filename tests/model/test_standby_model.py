"""A standby beside an appliance that does random work: caught up, it answers as the writer does."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.groups.consumer_groups import everybody
from seb_appliance.broker.ports import AuditQuery
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import From, NewRecords, ReadRequest
from seb_appliance.errors import StandbyError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.setting_sources import load
from seb_appliance.storage.journal import followed
from seb_appliance.storage.journal.replay import ReplayError
from seb_appliance.storage.stores.counted import CountedStore
from tests.model.test_appliance_model import (
    ADMIN,
    HISTORIES,
    ApplianceMachine,
    PlainPutStore,
    _values,
    names,
)


class StandbyMachine(ApplianceMachine):
    """`standby` reads on after each step; `promote` makes it the writer, and the writer's directory
    the next standby's."""

    other_data = Path(tempfile.gettempdir(), f"seb-standby-{os.getpid()}")

    def __init__(self) -> None:
        self.patch_looks = pytest.MonkeyPatch()
        for name in ("FLOOR_S", "BASES_S"):  # what a clock would bring about
            self.patch_looks.setattr(followed, name, 0.0)
        self.standby_data = self.other_data
        shutil.rmtree(self.standby_data, ignore_errors=True)
        self.standby_data.mkdir()
        self.standby: Appliance | None = None
        self.reopened = 0
        super().__init__()

    def teardown(self) -> None:
        self._close_standby()
        super().teardown()
        shutil.rmtree(self.standby_data)
        self.patch_looks.undo()

    def _close_standby(self) -> None:
        if self.standby is not None:
            self.run(self.standby.close())
            self.standby = None

    def _open_standby(self) -> Appliance:
        flags = {"bucket": "memory:", "data": str(self.standby_data), "linger": "0ms"}

        async def start() -> Appliance | None:
            found = await Appliance.open_standby(
                load(flags=flags, environment={}),
                CountedStore(self.store),
                NO_FAILPOINTS,
                lambda *_: None,
            )
            if found is not None:
                assert found.standby is not None
                found.broker.stand_by(StandbyError("a standby"))
            return found

        self.standby = self.run(start())
        assert self.standby is not None
        return self.standby

    def _caught_up(self) -> Broker:
        standby = self.standby or self._open_standby()
        try:
            self.run(self._read_all(standby))
        except ReplayError:
            self._close_standby()
            self.reopened += 1
            standby = self._open_standby()
            self.run(self._read_all(standby))
        assert standby.journal.position == self.appliance.journal.position
        return standby.broker

    async def _read_all(self, standby: Appliance) -> None:
        assert standby.standby is not None
        while await standby.standby.step():
            pass

    @rule(name=names, snapshots=st.integers(1, 3), steps=st.integers(0, 9))
    def leave_snapshots(self, name: str, snapshots: int, steps: int) -> None:
        """And let the tidier remove entries that the standby has not read."""
        for _ in range(snapshots):
            self._append(name, NewRecords([b"s"]), [b"s"])
            self.run(self.appliance.snapshots.publish_now())
        self.tidy(steps)

    @rule()
    def stop_the_standby(self) -> None:
        self._close_standby()

    @rule(name=names)
    def write_to_the_standby(self, name: str) -> None:
        broker = self._caught_up()
        with pytest.raises(StandbyError):
            self.run(
                broker.appends.append(
                    ADMIN, name, NewRecords([b"x"]), broker.pending.reserve(OPERATOR, 1)
                )
            )
        with pytest.raises(StandbyError):
            self.run(broker.topics.delete(name))
        with pytest.raises(StandbyError):
            self.run(broker.groups.delete("g"))

    @rule()
    def promote(self) -> None:
        self._caught_up()
        self._close_standby()
        self.run(self.appliance.close())  # in a process of its own it would be fenced
        self.data, self.standby_data = self.standby_data, self.data
        self.open()

    @invariant()
    def the_standby_answers_as_the_writer(self) -> None:
        writer, standby = self.broker, self._caught_up()
        for broker in (writer, standby):  # the tidier and the standby's loop do it between steps
            self.run(broker.tidying.measure())
        assert standby.topics.all() == writer.topics.all()
        for topic in writer.topics.all():
            asked = ReadRequest(From(earliest=True))
            ours, theirs = (self.run(b.read(topic.name, asked)) for b in (writer, standby))
            assert _values(theirs) == _values(ours)
            assert theirs.next_offset == ours.next_offset
        assert standby.access.all() == writer.access.all()
        pages = [
            self.run(b.groups.page("", 100, lambda *_: True, everybody)) for b in (writer, standby)
        ]
        committed = [
            [(v.group, [(t.topic, t.committed_offset) for t in v.topics]) for v in views]
            for views, _ in pages
        ]
        assert committed[0] == committed[1]
        audits = [self.run(b.audit(AuditQuery(10_000))) for b in (writer, standby)]
        assert audits[0] == audits[1]


class PlainPutStandbyMachine(StandbyMachine):
    store_class = PlainPutStore


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge a handful of entries, and of objects."""
    monkeypatch.setattr(limits, "ENTRIES_PER_JOB_MIN", 3)
    monkeypatch.setattr(limits, "SMALL_OBJECTS_MAX", 3)
    monkeypatch.setattr(limits, "REPACK_BYTES_MIN", 1)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [StandbyMachine, PlainPutStandbyMachine], ids=["A", "B"])
def test_a_standby_that_caught_up_answers_as_the_writer(machine: type[StandbyMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(2, HISTORIES // 50),
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_standby_that_starts_after_a_merge_counts_merged_bytes_once() -> None:
    machine = StandbyMachine()
    try:
        machine.append_what_shrinks(name="a", size=500, word=b"\x00")
        machine.leave_snapshots(name="b.c", snapshots=3, steps=9)
        machine.append_batch(level=None, name="a", records=[(None, None)])
        machine.stop_the_standby()
        standby = machine._caught_up()

        def sizes() -> list[list[int]]:
            return [[t.bytes for t in b.topics.all()] for b in (machine.broker, standby)]

        assert sizes()[0] != sizes()[1], "rows of merged entries are not in memory yet"
        keeper = machine.standby and machine.standby.standby
        assert keeper is not None

        async def follow() -> None:
            keeper.start()
            async with asyncio.timeout(10):
                while sizes()[0] != sizes()[1]:
                    await asyncio.sleep(0.001)
            await keeper.close()

        machine.run(follow())
    finally:
        machine.teardown()
