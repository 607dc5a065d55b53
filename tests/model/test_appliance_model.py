"""The appliance without HTTP against a plain dictionary: random work, restarts, lost disks."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from seb_appliance import limits
from seb_appliance.broker.ports import AuditQuery
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView, From, NewBatches, NewRecords, ReadRequest
from seb_appliance.errors import StoreUnsupportedError, TopicNotFoundError
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats import batch
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.serve import assembly
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.setting_sources import load
from seb_appliance.settings import Settings
from seb_appliance.storage.recovery.opening import StartOptions
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.memory import MemoryStore
from tests.model.group_rules import GroupRules, ModelGroup

ADMIN = ApiKeyView("model", "model", (Grant(operation="admin"),), 0)
HISTORIES = int(os.environ.get("TEST_HISTORIES", "120"))  # of each model, over both modes

names = st.sampled_from(["a", "b.c", "b.d"])
values = st.one_of(st.none(), st.binary(max_size=20))
record_lists = st.lists(
    st.tuples(values, st.none() | st.binary(max_size=5)), min_size=1, max_size=8
)


def start_options(settings: Settings) -> StartOptions:
    """As the appliance's own, but quick: that LIST shows what was PUT is no question here."""
    return StartOptions(take_over=settings.take_over, list_rounds=1)


class PlainPutStore(MemoryStore):
    """A store that cannot create only if absent, as Swift: fencing mode B."""

    async def create(self, key: str, body: bytes) -> None:
        raise StoreUnsupportedError("501", key=key)


class LogMachine(RuleBasedStateMachine):
    """`model`: topic name → values in offset order; only what was acknowledged is in it."""

    store_class: type[MemoryStore] = MemoryStore
    data = Path(tempfile.gettempdir(), f"seb-model-{os.getpid()}")  # the same for all histories
    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(limits, "INDEX_PAGE_ENTRIES", 4)  # reads go to pages, too
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir()
        self.store = self.store_class()
        self.model: dict[str, list[bytes | None]] = {}
        self.keys: set[str] = set()
        self.topic_ids: set[int] = set()
        self.starts: dict[str, int] = {}  # log start offsets
        # By API key id: what was changed last, and the secrets that work when it is enabled.
        self.changed: dict[str, tuple[bool, tuple[Grant, ...]]] = {}
        self.actions = 0  # in the audit, which never shrinks
        self.secrets: dict[str, list[str]] = {}
        self.open()

    def run(self, coroutine):
        return self.runner.run(coroutine)

    def open(self) -> None:
        # The sanitised environment of a test may hold SEB_ variables of its own.
        flags = {"bucket": "memory:", "data": str(self.data), "linger": "0ms", "take_over": True}
        # The tidier's steps are rules of this machine; everything is due at once.
        flags |= {"tidier": "off", "tidy_bytes": "1KiB", "tidy_after": "0ms", "tidy_young": "0ms"}
        flags |= {"garbage_grace": "0ms", "segment_bytes": "1MiB"}
        chosen = load(flags=flags, environment={})

        async def start() -> Appliance:
            appliance = await Appliance.open(
                chosen, CountedStore(self.store), NO_FAILPOINTS, lambda *_: None
            )
            await appliance.start()
            return appliance

        with mock.patch.object(assembly, "_start_options", start_options):
            self.appliance = self.run(start())
        self.broker = self.appliance.broker
        self.check_audit()

    def teardown(self) -> None:
        self.run(self.appliance.close())
        self.runner.close()
        self.patch.undo()
        shutil.rmtree(self.data)

    # --- rules ---

    @initialize()
    def note_admin_key(self) -> None:
        self.keys = {key.api_key_id for key in self.broker.access.all()}

    @rule(name=names, records=record_lists)
    def append(self, name: str, records: list[tuple[bytes | None, bytes | None]]) -> None:
        new = NewRecords([v for v, _ in records], keys=[k for _, k in records])
        self._append(name, new, new.values)

    @rule(name=names, records=record_lists, level=st.sampled_from([None, 1]))
    def append_batch(self, name: str, records: list, level: int | None) -> None:
        items = [v for v, _ in records]
        columns = Columns(int64s([1] * len(items)), BinaryColumn.of(items))
        made = batch.encode(columns, base_offset=0, created_us=0, zstd_level=level)
        stored = memoryview(made)[batch.HEADER_BYTES :]
        self._append(name, NewBatches([(batch.read_header(made), stored)], 20), items)

    @rule(name=names, word=st.binary(min_size=1, max_size=9), size=st.integers(500, 5_000))
    def append_what_shrinks(self, name: str, word: bytes, size: int) -> None:
        self._append(name, NewRecords([word * size, word]), [word * size, word])

    @rule(name=names, compression=st.sampled_from([None, "none", "zstd"]))
    def change_compression(self, name: str, compression: str | None) -> None:
        if name in self.model:
            changes = {"compression": compression}
            view = self.run(self.broker.topics.change(name, changes))
            assert view.settings.compression == compression

    @rule(name=names, bodies=st.lists(st.binary(max_size=9), min_size=2, max_size=9))
    def append_many_at_once(self, name: str, bodies: list[bytes]) -> None:
        async def all_of_them() -> list[int]:
            answers = await asyncio.gather(
                *(
                    self.broker.appends.append(
                        ADMIN, name, NewRecords([body]), self.broker.pending.reserve(OPERATOR, 9)
                    )
                    for body in bodies
                )
            )
            return [answer.offset for answer in answers]

        begin = len(self.model.get(name, []))
        assert self.run(all_of_them()) == list(range(begin, begin + len(bodies)))
        self.model.setdefault(name, []).extend(bodies)

    def _append(self, name: str, records, items: list[bytes | None]) -> None:
        answer = self.run(
            self.broker.appends.append(
                ADMIN, name, records, self.broker.pending.reserve(OPERATOR, 1)
            )
        )
        known = self.model.setdefault(name, [])
        assert (answer.offset, answer.count) == (len(known), len(items))
        known.extend(items)

    @rule(name=names)
    def create(self, name: str) -> None:
        if name in self.model:
            return
        view, made = self.run(self.broker.topics.create(name, TopicSettings()))
        assert made
        assert view.topic_id not in self.topic_ids
        self.topic_ids.add(view.topic_id)
        self.model[name] = []

    @rule(steps=st.integers(1, 9))
    def tidy(self, steps: int) -> None:
        for _ in range(steps):
            self.run(self.appliance.tidier.step())

    @rule(name=names, before=st.integers(0, 40))
    def trim(self, name: str, before: int) -> None:
        items = self.model.get(name)
        if items is not None and before <= len(items):
            view = self.run(self.broker.topics.trim(name, before))
            self.starts[name] = max(before, self.starts.get(name, 0))
            assert view.log_start_offset == self.starts[name]

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name not in self.model:
            with pytest.raises(TopicNotFoundError):
                self.run(self.broker.topics.delete(name))
            return
        self.topic_ids.add(self.broker.topics.get(name).topic_id)
        self.run(self.broker.topics.delete(name))
        del self.model[name]
        self.starts.pop(name, None)
        self.forget_topic(name)

    def forget_topic(self, name: str) -> None:
        """What a machine models beside the log and takes along with a deleted topic."""

    @rule(target=tokens)
    def create_key(self) -> str:
        view, token = self.run(
            self.broker.access.create("k", (Grant(operation="produce", topics="b.*"),), None)
        )
        self.keys.add(view.api_key_id)
        return token

    @rule(token=tokens)
    def revoke_key(self, token: str) -> None:
        api_key_id = token.split("_")[1]
        if api_key_id in self.keys:
            self.run(self.broker.access.revoke(api_key_id))
            self.keys.remove(api_key_id)

    @rule(token=tokens, disabled=st.booleans(), topics=st.sampled_from(["b.*", "**"]))
    def change_key(self, token: str, disabled: bool, topics: str) -> None:
        api_key_id = token.split("_")[1]
        if api_key_id in self.keys:
            grants = (Grant(operation="produce", topics=topics),)
            changes = {"disabled": disabled, "grants": grants}
            view = self.run(self.broker.access.change(api_key_id, changes))
            assert (view.disabled, view.grants) == (disabled, grants)
            self.changed[api_key_id] = (disabled, grants)

    @rule(token=tokens, overlap_ms=st.sampled_from([0, 86_400_000]))
    def rotate_key(self, token: str, overlap_ms: int) -> None:
        """The rotated token takes the place of the one before in `secrets`."""
        api_key_id = token.split("_")[1]
        if api_key_id in self.keys:
            before = self.secrets.get(api_key_id, [token])[-1]
            _, new = self.run(self.broker.access.rotate(api_key_id, overlap_ms))
            self.secrets[api_key_id] = [before, new] if overlap_ms else [new]

    @rule(how=st.sampled_from(["stopped", "crashed", "crashed and lost the disk"]))
    def start_again(self, how: str) -> None:
        self.run(self._stop() if how == "stopped" else self.appliance.close())
        if how == "crashed and lost the disk":
            shutil.rmtree(self.data)
            self.data.mkdir()
        self.open()

    async def _stop(self) -> None:
        """With a snapshot, which a crash does not leave."""
        assert await self.appliance.drain()
        await self.appliance.close()

    @rule(name=names, start=st.integers(0, 30), count=st.integers(1, 9), size=st.integers(1, 60))
    def read_a_part(self, name: str, start: int, count: int, size: int) -> None:
        items = self.model.get(name)
        if items is None or not self.starts.get(name, 0) <= start <= len(items):
            return
        request = ReadRequest(From(offset=start), max_records=count, max_bytes=size)
        result = self.run(self.broker.read(name, request))
        got = _values(result)
        assert got == items[start : result.next_offset]
        assert len(got) <= count
        assert got or start == len(items)

    # --- what must hold after every step ---

    @invariant()
    def the_log_is_the_model(self) -> None:
        assert {topic.name for topic in self.broker.topics.all()} == set(self.model)
        for name, items in self.model.items():
            result = self.run(self.broker.read(name, ReadRequest(From(earliest=True))))
            assert _values(result) == items[self.starts.get(name, 0) :]
            assert result.log_start_offset == self.starts.get(name, 0)
            assert result.log_end_offset == len(items)

    @invariant()
    def the_keys_are_the_model(self) -> None:
        if self.keys:
            assert {key.api_key_id for key in self.broker.access.all()} == self.keys
        for api_key_id in self.keys & self.changed.keys():
            view = self.broker.access.get(api_key_id)
            assert (view.disabled, view.grants) == self.changed[api_key_id]
        for api_key_id in self.keys & self.secrets.keys():
            for token in self.secrets[api_key_id]:
                if not self.broker.access.get(api_key_id).disabled:
                    self.run(self._authenticated(token))

    async def _authenticated(self, token: str) -> ApiKeyView:
        return self.broker.access.authenticate(token)

    def check_audit(self) -> None:
        """After each start, and not after each step: it is read from SQLite."""
        rows = self.run(self.broker.audit(AuditQuery(10_000)))
        assert [row.number for row in rows] == list(range(len(rows), 0, -1))
        assert len(rows) >= self.actions
        self.actions = len(rows)


class ApplianceMachine(GroupRules, LogMachine):
    """With consumer groups, too."""

    def __init__(self) -> None:
        self.groups: dict[str, ModelGroup] = {}
        super().__init__()


class PlainPutMachine(ApplianceMachine):
    store_class = PlainPutStore


def _values(result) -> list[bytes | None]:
    return [
        value
        for piece in result.slices
        for value in piece.batch.columns.values.slice(piece.begin, piece.end)
    ]


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge a handful of entries, and of objects."""
    monkeypatch.setattr(limits, "ENTRIES_PER_JOB_MIN", 3)
    monkeypatch.setattr(limits, "SMALL_OBJECTS_MAX", 3)
    monkeypatch.setattr(limits, "REPACK_BYTES_MIN", 1)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [ApplianceMachine, PlainPutMachine], ids=["A", "B"])
def test_the_appliance_behaves_like_a_dictionary(machine: type[ApplianceMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=HISTORIES // 2,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
