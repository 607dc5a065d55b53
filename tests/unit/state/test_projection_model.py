"""Whatever happens in the journal, the tables hold what a plain model of it in memory holds."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.ports import (
    ApiKeyRow,
    AuditQuery,
    AuditRow,
    DocumentRow,
    EntryRef,
    EntryRow,
    GarbageRow,
    LoadedState,
    ObjectRow,
    PagedRow,
    TopicRow,
    UserRow,
    WriterRow,
)
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.contents import Section
from seb_appliance.formats.entry import Entry
from seb_appliance.formats.operations import (
    ApiKeyChanged,
    ApiKeyRevoked,
    ApiKeyRotated,
    DocumentRemoved,
    DocumentSet,
    EpochStarted,
    Event,
    ObjectsCondemned,
    ObjectsRemoved,
    ReplacedRange,
    SegmentsReplaced,
    StoredObject,
    StoredSection,
    TopicChanged,
    TopicCompacted,
    TopicDeleted,
    TopicTrimmed,
    UserRemoved,
    UserSet,
    object_id_of,
)
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.tables import state_digest
from tests.unit.state.group_model import GroupModel
from tests.unit.state.journal import (
    START_US,
    Journal,
    api_key_created,
    api_key_row,
    audit_noted,
    section,
    topic_created,
)

KINDS = ["create", "change", "delete", "key", "change_key", "rotate", "revoke", "note"]
KINDS += [
    "append",
    "append",
    "seal",
    "seal",
    "commit",
    "reset",
    "forget",
    "lease",
    "release",
    "own",
]
KINDS += ["trim", "tidy", "merge", "compact", "condemn", "clean", "user", "drop_user"]
KINDS += ["document", "drop_document"]

PAGE_ENTRIES, PAGE_SECTIONS = 4, 3
AUDIT_KEPT = 3

# Each step is a kind and a number that picks among what is possible then.
steps = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(min_value=0, max_value=10_000),
    ),
    max_size=60,
)


class Model(GroupModel):
    """The state as plain dictionaries, and the journal that leads to it."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.topics: dict[int, TopicRow] = {}
        self.api_keys: dict[str, ApiKeyRow] = {}
        self.group_offsets = {}
        self.group_owners = {}
        self.leases = {}
        self.users: dict[str, UserRow] = {}
        self.documents: dict[tuple[str, str], DocumentRow] = {}
        self.audit: list[AuditRow] = []
        self._noted = 0
        self.tidied_seq = 0
        self.objects: dict[str, ObjectRow] = {}
        self.stored: dict[tuple[int, int], tuple[int, StoredSection]] = {}
        self.garbage: dict[str, int] = {}
        self.run_of: dict[tuple[int, int], int] = {}  # topic id, offset → which run it is in
        self.next_topic_id = 1
        self._next_api_key = 0
        self._next_offset: dict[int, int] = {}
        self._events: list[Event] = [EpochStarted(software="model")]
        self._sections: list[Section] = []

    def step(self, kind: str, number: int) -> None:
        getattr(self, f"_{kind}")(number)

    def seal(self) -> None:
        self._seal(0)

    def loaded(self) -> LoadedState:
        return LoadedState(
            position=self.journal.position,
            next_topic_id=self.next_topic_id,
            topics=[self.topics[topic_id] for topic_id in sorted(self.topics)],
            api_keys=[self.api_keys[api_key_id] for api_key_id in sorted(self.api_keys)],
            users=[self.users[name] for name in sorted(self.users)],
            documents=[self.documents[key] for key in sorted(self.documents)],
            writers=[WriterRow(1, 1, b"W" * 16)] if self.journal.entries else [],
            paged=self._paged()[0],
            entries=[loaded for entry in self._paged()[1] if (loaded := self._living(entry))],
            tidied_seq=self.tidied_seq,
            untidied=[
                (entry.header.seq, entry.header.length, entry.header.created_us)
                for entry in self.journal.entries[self.tidied_seq :]
            ],
            objects=sorted(self.objects.values(), key=lambda row: row.object_id),
            stored=[row for _, row in sorted(self.stored.items())],
            garbage=[GarbageRow(*row) for row in sorted(self.garbage.items())],
            runs=self._runs(),
            group_owners=self.group_owners,
            group_offsets=[row for _, row in sorted(self.group_offsets.items())],
            leases=[row for _, row in sorted(self.leases.items())],
        )

    def _runs(self) -> list[tuple[int, int, int]]:
        runs: dict[int, list[tuple[int, int]]] = {}
        for place, run in self.run_of.items():
            runs.setdefault(run, []).append(place)
        found = [(min(places)[0], min(places)[1], max(places)[1]) for places in runs.values()]
        return sorted(found)

    def newest_actions(self) -> list[AuditRow]:
        return self.audit[::-1]

    def _paged(self) -> tuple[list[PagedRow], list[Entry]]:
        """What is in pages of the index, and the entries that are not."""
        paged: dict[int, PagedRow] = {}
        waiting: list[Entry] = []
        for entry in self.journal.entries:
            waiting.append(entry)
            sections = [section for one in waiting for section in one.contents.sections]
            if len(waiting) < PAGE_ENTRIES and len(sections) < PAGE_SECTIONS:
                continue
            for one in sections:
                so_far = paged.get(one.topic_id, PagedRow(one.topic_id, 0, 0, 0))
                newest_us = max(so_far.newest_us, one.largest_timestamp_us)
                total_bytes = so_far.total_bytes + one.length
                paged[one.topic_id] = PagedRow(
                    one.topic_id, one.last_offset + 1, newest_us, total_bytes
                )
            waiting = []
        return [paged[topic_id] for topic_id in sorted(self.topics) if topic_id in paged], waiting

    def _living(self, entry: Entry) -> EntryRow | None:
        header = entry.header
        sections = [one for one in entry.contents.sections if one.topic_id in self.topics]
        ref = EntryRef(header.seq, header.epoch, header.writer_id)
        if not sections:
            return None
        return EntryRow(ref, header.created_us, header.sections_at, sections)

    def _is_read(self, one: Section | StoredSection) -> bool:
        topic = self.topics.get(one.topic_id)
        return topic is not None and one.last_offset >= topic.log_start_offset

    def _trim(self, number: int) -> None:
        self.seal()
        if topic := self._some_topic(number):
            start = topic.log_start_offset
            start += number % (self._next_offset.get(topic.topic_id, 0) - start + 1)
            self._events.append(TopicTrimmed(topic_id=topic.topic_id, log_start_offset=start))
            self.topics[topic.topic_id] = replace(topic, log_start_offset=start, held_offset=start)
            self._forget_unread()

    def _forget_unread(self) -> None:
        self.stored = {place: row for place, row in self.stored.items() if self._is_read(row[1])}
        for topic_id, _, last in self._runs():
            topic = self.topics.get(topic_id)
            if topic is None or last < topic.log_start_offset:
                self.run_of = {
                    place: run
                    for place, run in self.run_of.items()
                    if place[0] != topic_id or (topic is not None and place[1] > last)
                }

    def _tidy(self, number: int) -> None:
        """Entries up to some seq become objects, whose number is 1 to 3."""
        self.seal()
        until = self.tidied_seq + number % (self.journal.position.seq - self.tidied_seq + 1)
        inputs = [
            one
            for entry in self.journal.entries[self.tidied_seq : until]
            for one in entry.contents.sections
            if self._is_read(one)
        ]
        self.tidied_seq = until
        self._switch(inputs, number % 3 + 1, entries_until=until)

    def _merge(self, number: int) -> None:
        """What is stored of one topic becomes fewer sections in one object."""
        self.seal()
        if topic := self._some_topic(number):
            inputs = [one for (of, _), (_, one) in self.stored.items() if of == topic.topic_id]
            self._switch(inputs, 1, entries_until=0)

    def _switch(
        self, inputs: Sequence[Section | StoredSection], objects: int, entries_until: int
    ) -> None:
        seq = self.journal.position.seq + 1
        made, replaced = [], []
        fresh: dict[int, list[StoredSection]] = {}
        for one in inputs:
            fresh.setdefault(one.topic_id, []).append(_stored(one))
        for topic_id, sections in sorted(fresh.items()):
            sections.sort(key=lambda one: one.base_offset)
            ends = sections[0].base_offset, sections[-1].last_offset
            replaced.append(ReplacedRange(topic_id, *ends))
            fresh[topic_id] = [msgspec.structs.replace(sections[0], last_offset=ends[1])]
            for place in [(topic_id, one.base_offset) for one in sections]:
                self.stored.pop(place, None)
        for i in range(objects):
            of = [one for n, (_, (one,)) in enumerate(sorted(fresh.items())) if n % objects == i]
            key = f"object-{seq}-{i}"
            made.append(StoredObject(key, 99, tuple(of)))
            self.objects[key] = ObjectRow(object_id_of(seq, i), key, 99)
            for one in of:
                self.stored[one.topic_id, one.base_offset] = (object_id_of(seq, i), one)
        self._events.append(
            SegmentsReplaced(
                replaced=tuple(replaced), objects=tuple(made), entries_until=entries_until
            )
        )
        self.seal()

    def _compact(self, number: int) -> None:
        """Some offsets of a topic, or of one that is gone, are a run now."""
        topic = self._some_topic(number)
        if topic is None:
            self._events.append(TopicCompacted(topic_id=9_999, base_offset=0, last_offset=1))
            return
        base = number % 7
        last = base + number % 5
        self._events.append(
            TopicCompacted(topic_id=topic.topic_id, base_offset=base, last_offset=last)
        )
        cut = [place for place in self.run_of if place[0] == topic.topic_id and place[1] > last]
        of = {self.run_of[place] for place in cut}
        for run in of:  # what lies above is a run of its own
            fresh = max(self.run_of.values(), default=0) + 1
            for place in cut:
                if self.run_of[place] == run:
                    self.run_of[place] = fresh
        fresh = max(self.run_of.values(), default=0) + 1
        self.run_of.update({(topic.topic_id, o): fresh for o in range(base, last + 1)})
        self._forget_unread()

    def _condemn(self, number: int) -> None:
        used = {object_id for object_id, _ in self.stored.values()}
        unused = sorted(key for key, row in self.objects.items() if row.object_id not in used)
        keys = (*unused[: number % 4], f"never-in-force-{number}")
        if f"never-in-force-{number}" in self.garbage:
            return
        self._events.append(ObjectsCondemned(keys=keys))
        for key in keys:
            self.objects.pop(key, None)
            self.garbage[key] = self._next_created_us

    def _clean(self, number: int) -> None:
        self.seal()
        keys = tuple(sorted(self.garbage)[: number % 4])
        self._events.append(ObjectsRemoved(keys=keys))
        for key in keys:
            del self.garbage[key]

    def _create(self, number: int) -> None:
        names = {row.name for row in self.topics.values()}
        name = f"name-{number % 5}"
        if name in names:
            return
        created = topic_created(self.next_topic_id + number % 2, name, linger_ms=number)
        self._events.append(created)
        owner = f"owner-{number % 4}"
        if number % 4:  # who does not note it is not known
            self._note(number, actor=owner, action="topic_created", subject=name)
        self.topics[created.topic_id] = TopicRow(
            created.topic_id,
            created.name,
            created.created_us,
            created.settings,
            owner=owner if number % 4 else "",
        )
        self.next_topic_id = created.topic_id + 1

    def _change(self, number: int) -> None:
        if topic := self._some_topic(number):
            settings = TopicSettings(early_flush=bool(number % 2), max_record_bytes=number)
            self._events.append(TopicChanged(topic_id=topic.topic_id, settings=settings))
            self.topics[topic.topic_id] = replace(topic, settings=settings)

    def _delete(self, number: int) -> None:
        if topic := self._some_topic(number):
            self._events.append(TopicDeleted(topic_id=topic.topic_id))
            del self.topics[topic.topic_id]
            self._forget_unread()
            for place in [place for place in self.group_offsets if place[1] == topic.topic_id]:
                del self.group_offsets[place]
            self._forget_owners()

    @property
    def _next_created_us(self) -> int:
        return START_US + self.journal.position.seq + 1

    def _key(self, number: int) -> None:
        created = api_key_created(f"k{self._next_api_key:03}", number if number % 2 else None)
        self._next_api_key += 1
        self._events.append(created)
        self.api_keys[created.api_key_id] = api_key_row(created)

    def _change_key(self, number: int) -> None:
        if row := self._some_key(number):
            after = replace(
                row,
                name=f"name {number}",
                description="changed",
                grants=(Grant(operation="consume", topics=f"t{number}.*", groups="g.**"),),
                expires_us=number if number % 3 else None,
                disabled=bool(number % 2),
                quotas=Quotas(requests_per_second=number + 1),
            )
            changed = {name: getattr(after, name) for name in ApiKeyChanged.__struct_fields__[2:]}
            self._events.append(ApiKeyChanged(api_key_id=row.api_key_id, **changed))
            self.api_keys[row.api_key_id] = after

    def _rotate(self, number: int) -> None:
        if row := self._some_key(number):
            fresh = number.to_bytes(32, "big")
            self._events.append(
                ApiKeyRotated(
                    api_key_id=row.api_key_id,
                    secret_sha256=fresh,
                    rotated_us=number,
                    overlap_until_us=number + 1,
                )
            )
            self.api_keys[row.api_key_id] = replace(
                row,
                secret_sha256=fresh,
                previous_sha256=row.secret_sha256,
                overlap_until_us=number + 1,
            )

    def _user(self, number: int) -> None:
        name, role = f"user-{number % 5}", ("viewer", "admin")[number % 2]
        self._events.append(
            UserSet(name=name, role=role, password_hash=f"$argon2id${number}", set_us=number)
        )
        self.users[name] = UserRow(name, role, f"$argon2id${number}", number)

    def _document(self, number: int) -> None:
        kind, name, text = f"kind-{number % 2}", f"name-{number % 5}", f"[{number}]"
        self._events.append(DocumentSet(kind=kind, name=name, document=text, set_us=number))
        self.documents[kind, name] = DocumentRow(kind, name, text, number)

    def _drop_document(self, number: int) -> None:
        if self.documents:
            kind, name = sorted(self.documents)[number % len(self.documents)]
            self._events.append(DocumentRemoved(kind=kind, name=name))
            del self.documents[kind, name]

    def _drop_user(self, number: int) -> None:
        if self.users:
            name = sorted(self.users)[number % len(self.users)]
            self._events.append(UserRemoved(name=name))
            del self.users[name]

    def _note(self, number: int, **members: str) -> None:
        self._events.append(audit_noted(number, **members))
        fields = msgspec.structs.asdict(self._events[-1])
        del fields["version"]
        self._noted += 1
        self.audit.append(AuditRow(self._noted, **fields))
        if len(self.audit) > AUDIT_KEPT:
            counts = Counter((row.actor, row.action) for row in self.audit)
            most = max(counts.values())
            loser = min(whose for whose, count in counts.items() if count == most)
            of_loser = [r for r in self.audit if most == 1 or (r.actor, r.action) == loser]
            self.audit.remove(of_loser[0])

    def _some_key(self, number: int) -> ApiKeyRow | None:
        if not self.api_keys:
            return None
        return self.api_keys[sorted(self.api_keys)[number % len(self.api_keys)]]

    def _revoke(self, number: int) -> None:
        if self.api_keys:
            api_key_id = sorted(self.api_keys)[number % len(self.api_keys)]
            self._events.append(ApiKeyRevoked(api_key_id=api_key_id, revoked_us=number))
            del self.api_keys[api_key_id]

    def _append(self, number: int) -> None:
        if topic := self._some_topic(number):
            base = self._next_offset.get(topic.topic_id, 0)
            count = 1 + number % 9
            self._next_offset[topic.topic_id] = base + count
            start = 8 * len(self._sections)
            self._sections.append(section(topic.topic_id, base, count=count, start=start))

    def _seal(self, _number: int) -> None:
        if self._events or self._sections:
            self.journal.write(*self._events, sections=self._sections)
            self._events, self._sections = [], []

    def _some_topic(self, number: int) -> TopicRow | None:
        if not self.topics:
            return None
        return self.topics[sorted(self.topics)[number % len(self.topics)]]


def _stored(one: Section | StoredSection) -> StoredSection:
    if isinstance(one, StoredSection):
        return one
    return StoredSection(
        one.topic_id, one.base_offset, one.last_offset, one.record_count, 32, 8, one.crc, 5, 6
    )


async def _check(model: Model, folder: Path, batch: int) -> None:
    """Apply the journal in transactions of `batch` entries, and again all at once from a copy."""
    entries = model.journal.entries
    followed = await StateDatabase.open(folder / "followed")
    for first in range(0, len(entries), batch):
        await followed.apply(entries[first : first + batch])
    assert await followed.load() == model.loaded()
    assert await followed.audit(AuditQuery(limits.AUDIT_KEPT + 1)) == model.newest_actions()
    await followed.save(folder / "copy")
    await followed.close()

    rebuilt = await StateDatabase.open(folder / "rebuilt")
    await rebuilt.apply(entries)
    await rebuilt.close()
    digests = {state_digest(folder / name) for name in ("followed", "copy", "rebuilt")}
    assert len(digests) == 1

    again = await StateDatabase.open(folder / "followed")
    assert (again.set_aside, await again.load()) == ("", model.loaded())
    await again.close()


@settings(max_examples=40, deadline=None)
@given(steps=steps, batch=st.integers(min_value=1, max_value=3))
def test_the_tables_hold_what_a_model_in_memory_holds(
    steps: list[tuple[str, int]], batch: int
) -> None:
    model = Model()
    for kind, number in steps:
        model.step(kind, number)
    model.seal()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "AUDIT_KEPT", AUDIT_KEPT)
        patch.setattr(limits, "INDEX_PAGE_ENTRIES", PAGE_ENTRIES)
        patch.setattr(limits, "INDEX_PAGE_SECTIONS", PAGE_SECTIONS)
        asyncio.run(_check(model, Path(folder), batch))
