"""The interfaces that the broker needs from other rooms; `storage/` and `state/` implement them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from seb_appliance import limits
from seb_appliance.broker.append.retry_results import Producer, RememberedRequest
from seb_appliance.broker.lake.table import LakeTable
from seb_appliance.broker.queues.progress import Queue
from seb_appliance.broker.topics.topic import IndexRows
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.contents import Section
from seb_appliance.formats.durable_streams import StreamState
from seb_appliance.formats.entry import EncodedEntry, Encoder, Entry, Position
from seb_appliance.formats.operations import Role, StoredSection
from seb_appliance.formats.topic_settings import TopicSettings


@dataclass(frozen=True, slots=True)
class EntryRef:
    """Names one journal entry; storage turns it into a key (in mode B the writer is part of it)."""

    seq: int
    epoch: int
    writer_id: bytes

    @property
    def text(self) -> str:
        """As clients keep it. In no other history has an entry the same one: after a restore as of
        an earlier time, another writer writes the entries that follow."""
        return f"{self.seq}-{self.writer_id.hex()}"


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Names one segment or packed object by its key. `seq` is its id below zero: no entry has it,
    so that caches tell both kinds apart by one number."""

    object_id: int
    key: str

    @property
    def seq(self) -> int:
        return -self.object_id

    def is_segment_of(self, topic_id: int, end: int = limits.OFFSET_MAX + 1) -> bool:
        """Whether nothing but records of this topic, below the offset `end`, is in it: the key says
        so (docs/FORMAT.md)."""
        _, found, name = self.key.rpartition(f"/segments/{topic_id}/")
        return bool(found) and (end > limits.OFFSET_MAX or int(name.split("-")[1]) < end)


@dataclass(frozen=True, slots=True)
class SectionRef:
    """Where one section lies. `at`: first byte in the object, from the object's beginning."""

    entry: EntryRef | ObjectRef
    topic_id: int
    base_offset: int
    last_offset: int
    at: int
    length: int
    crc: int


# --- the journal ---


FAILING_FOR_S: Final = 5.0  # shorter failures were retried with success and need no attention


@dataclass(slots=True)
class StoreHealth:
    """What the bucket answered lately. Times from the monotonic clock, in seconds."""

    last_success_s: float = 0.0
    failing_since_s: float | None = None
    failure: str = ""  # in words, for the operator; "" while all is well
    denied: bool = False  # an operator is needed (credentials, bucket)


class Journal(Protocol):
    """The one ordered log, with this process in force as its writer."""

    @property
    def bucket_id(self) -> bytes: ...

    @property
    def writer_id(self) -> bytes: ...

    @property
    def epoch(self) -> int: ...

    @property
    def position(self) -> Position:
        """The last entry that is stored (and, in mode B, checked)."""

    @property
    def mode(self) -> str:
        """Fencing mode, "A" or "B"."""

    @property
    def durability(self) -> str:
        """`s3`, `disk` or `memory`."""

    @property
    def health(self) -> StoreHealth: ...

    @property
    def encodes_ahead(self) -> bool:
        """Whether an entry may be encoded while the one before it is appended."""

    def encoder(self, created_us: int) -> Encoder:
        """Makes the entry after the last one that was encoded, which must be appended first.
        `created` never decreases from one entry to the next."""

    async def append(self, encoded: EncodedEntry) -> None:
        """Store the next entry; returns once it may be applied and acknowledged.

        Retries the same bytes until the answer is definite, however long that takes; `health` says
        what is wrong meanwhile. One call at a time. Raises FencedError (then for ever).
        """

    async def confirm_in_force(self) -> None:
        """Ask the bucket whether a newer writer exists. Raises FencedError or StoreError."""


# --- records in the bucket ---


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment that is made elsewhere, before it is stored: what its key says, its `length` in
    bytes, and the MD5 of all of them (16 bytes). `name`: 8 random bytes, never used before."""

    topic_id: int
    base_offset: int
    last_offset: int
    epoch: int
    name: bytes
    length: int
    md5: bytes


@dataclass(frozen=True, slots=True)
class SignedUpload:
    """A PUT that anyone may make for a while: to `url`, with these headers, of the very bytes that
    it was signed for. The object then lies at `key`."""

    key: str
    url: str
    headers: dict[str, str]


class SectionSource(Protocol):
    """Verified bytes of sections, from memory, the cache on disk or the bucket."""

    def keep(self, entry: EncodedEntry) -> None:
        """An entry of ours was stored: its sections are at hand now."""

    def cached(self, ref: SectionRef) -> bytes | None:
        """The section's bytes if they are in memory and their CRC agrees; else None. No I/O."""

    async def read(self, ref: SectionRef) -> bytes:
        """The section's bytes; its CRC was checked. Raises CorruptObjectError, StoreError."""

    async def signed_urls(self, objects: Sequence[ObjectRef], valid_s: int) -> list[str] | None:
        """URLs by which anyone may read these objects for `valid_s` seconds; None where the bucket
        has no URLs. Raises StoreError."""

    async def signed_upload(self, segment: NewSegment, valid_s: int) -> SignedUpload | None:
        """By which anyone may store these very bytes for `valid_s` seconds; None where the bucket
        has no URLs. Raises StoreError."""


# --- local state ---


@dataclass(frozen=True, slots=True)
class TopicRow:
    """`parent_id` None: no fork. `deleted`: only its forks read its rows. Those that lie wholly
    below `held_offset` are no longer in force (broker/topics/topic.py)."""

    topic_id: int
    name: str
    created_us: int
    settings: TopicSettings
    log_start_offset: int = 0
    parent_id: int | None = None
    fork_offset: int = 0
    deleted: bool = False
    held_offset: int = 0
    owner: str = ""  # who made it, by the name in the audit; "": not known


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """A segment or packed object that is not condemned."""

    object_id: int
    key: str
    length: int


@dataclass(frozen=True, slots=True)
class GarbageRow:
    """An object that was condemned at `since_us`."""

    key: str
    since_us: int


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    """An API key that is not revoked. `previous_sha256`: the secret before the newest one, which
    works until `overlap_until_us`; None when there was none."""

    api_key_id: str
    name: str
    secret_sha256: bytes
    grants: tuple[Grant, ...]
    created_us: int
    expires_us: int | None
    description: str
    disabled: bool
    quotas: Quotas
    previous_sha256: bytes | None = None
    overlap_until_us: int | None = None


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user of the admin page, since `set_us` with this password and role."""

    name: str
    role: Role
    password_hash: str
    set_us: int


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """What a protocol keeps under a name, since `set_us`; see DocumentSet."""

    kind: str
    name: str
    document: str
    set_us: int


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One action. `number` counts them from 1 on, without gaps; the rest is as in AuditNoted."""

    number: int
    at_us: int
    actor: str
    address: str
    action: str
    subject_kind: str
    subject: str
    before: str | None
    after: str | None
    user_agent: str = ""


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """The `most` newest actions with a number below `before`, by this actor, on this subject, of
    this name, at `from_us` or later and before `until_us` (None: any)."""

    most: int
    before: int | None = None
    actor: str | None = None
    subject: str | None = None
    action: str | None = None
    from_us: int | None = None
    until_us: int | None = None


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A journal entry with records of topics that are there; only their sections. `sections_at`:
    position in the object of the first section."""

    ref: EntryRef
    created_us: int
    sections_at: int
    sections: list[Section]


@dataclass(frozen=True, slots=True)
class WriterRow:
    """Who wrote the entries from `first_seq` on, up to the next writer's first."""

    first_seq: int
    epoch: int
    writer_id: bytes


@dataclass(frozen=True, slots=True)
class PagedRow:
    """What the pages of a topic's index add up to: the offset after them, the largest timestamp in
    them, and the bytes of their sections."""

    topic_id: int
    end_offset: int
    newest_us: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class GroupOffsetRow:
    group: str
    topic_id: int
    offset: int
    metadata: str
    committed_us: int


@dataclass(frozen=True, slots=True)
class LeaseRow:
    group: str
    generation: int
    holder: str
    ttl_ms: int


class DelayRange(NamedTuple):
    """Records from `first` up to `end` (exclusive) that are due at `due_us`; ordered by that."""

    due_us: int
    first: int
    end: int


class DelayedTopic(NamedTuple):
    """`records` of the topic are delayed or were so lately; the first of them is `first`."""

    topic_id: int
    records: int
    first: int


# Where a topic has its records: topic ids (its own is the last one) and exclusive ends of offsets.
Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LoadedState:
    """Everything the broker keeps in memory, as of `position`; `entries` are those whose sections
    are in no page yet, oldest first, `untidied` those above `tidied_seq`; `stored` are sections by
    topic and offset, with the id of the object that holds them. `next_topic_id` has never been
    given out."""

    position: Position
    next_topic_id: int = 1
    topics: list[TopicRow] = field(default_factory=list)  # by id: a fork comes after its parent
    # Topics that are Durable Streams, by id.
    streams: list[tuple[int, StreamState]] = field(default_factory=list)
    api_keys: list[ApiKeyRow] = field(default_factory=list)
    users: list[UserRow] = field(default_factory=list)  # by name
    documents: list[DocumentRow] = field(default_factory=list)  # by kind and name
    lake_tables: list[LakeTable] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    delays: list[DelayedTopic] = field(default_factory=list)
    writers: list[WriterRow] = field(default_factory=list)  # oldest first
    paged: list[PagedRow] = field(default_factory=list)
    entries: list[EntryRow] = field(default_factory=list)
    tidied_seq: int = 0
    untidied: list[tuple[int, int, int]] = field(default_factory=list)  # seq, length, created_us
    objects: list[ObjectRow] = field(default_factory=list)
    stored: list[tuple[int, StoredSection]] = field(default_factory=list)
    garbage: list[GarbageRow] = field(default_factory=list)
    # Compacted runs: topic id, base, last, journal entry; in order.
    runs: list[tuple[int, int, int, int]] = field(default_factory=list)
    group_owners: dict[str, str] = field(default_factory=dict)  # who made which group, if known
    group_offsets: list[GroupOffsetRow] = field(default_factory=list)
    leases: list[LeaseRow] = field(default_factory=list)
    requests: list[RememberedRequest] = field(default_factory=list)  # oldest first
    requests_place: int = 0  # of the newest request ever
    producers: list[Producer] = field(default_factory=list)  # longest idle first


class State(Protocol):
    """The SQLite view of the journal. It follows the acknowledgement and is never on its path."""

    async def load(self) -> LoadedState: ...

    def follow(self, entry: Entry) -> None:
        """Take an applied entry; it is projected soon, in order, several in one transaction."""

    @property
    def lag_entries(self) -> int:
        """Entries taken and not yet committed."""

    @property
    def is_far_behind(self) -> bool:
        """So many of them that nothing more may be taken."""

    @property
    def pause_s(self) -> float:
        """For how long the writer lets others go on before its next entry; 0 unless SQLite is well
        behind. Entries are fewer and larger then, so that it catches up before anything has to be
        refused."""

    @property
    def paged_seq(self) -> int:
        """The last entry whose sections are committed in pages of the index."""

    @property
    def failure(self) -> str:
        """Why SQLite cannot apply entries; "" if it can."""

    async def index_page(self, topic_id: int, offset: int) -> IndexRows | None:
        """The page that answers for `offset`; None if there is none. Raises CorruptObjectError,
        ConfigurationError."""

    async def index_page_at(self, topic_id: int, timestamp_us: int) -> IndexRows | None:
        """The first page with a record of that timestamp or later; raises as `index_page`."""

    async def drain(self) -> None:
        """Wait until nothing is behind, or `failure` is set."""

    async def delays_by_time(
        self, spans: Sequence[Span], after: tuple[int, int], most: int
    ) -> list[DelayRange]:
        """The first delays, in all entries taken so far, whose time and first offset are behind
        `after`. Raises OverloadedError while SQLite does not follow."""

    async def delays_by_offset(
        self, spans: Sequence[Span], offset: int, most: int
    ) -> list[DelayRange]:
        """The first ones that reach beyond `offset`, by offset. Raises as `delays_by_time`."""

    async def delayed_topics(self) -> list[DelayedTopic]:
        """Those with delays; raises as `delays_by_time`."""

    async def audit(self, query: AuditQuery) -> list[AuditRow]:
        """Actions in all entries taken so far, newest first. Raises OverloadedError while SQLite
        does not follow."""

    async def audited(self) -> list[tuple[str, str]]:
        """Each actor with each of its actions, as far as `audit` has them. Raises as `audit`."""


class Replica(Protocol):
    """Local state while a start brings it up to the end of the journal (storage/ drives it)."""

    async def position(self) -> Position:
        """ORIGIN when there is none."""

    async def bucket_id(self) -> bytes | None:
        """The bucket of the entries applied so far; None when there is none."""

    async def clear(self) -> None:
        """Move what is there aside and begin empty, at ORIGIN."""

    async def restore(self, snapshot: Path) -> Position:
        """Replace the state by this SQLite file. Raises CorruptObjectError if it fails a check."""

    async def apply(self, entries: Sequence[Entry]) -> None:
        """Project entries that follow the position, in order, in one transaction."""

    async def save(self, target: Path) -> Position:
        """Write a consistent copy of the committed state to `target`; the position it is as of."""
