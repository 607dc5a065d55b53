"""The operations in a journal entry; contents.py orders them.

Entries carry results, never conditions: replay applies each operation and decides nothing. Every
struct refuses unknown fields and versions, so that an older release stops instead of misreading an
event. Sections are msgpack arrays (there are many), events are maps.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.durable_streams import StreamState
from seb_appliance.formats.lake.tables import (
    PRINTER,
    Column,
    ManifestName,
    TableFile,
    TableFormat,
    TableOp,
    TableRange,
)
from seb_appliance.formats.numbers import FarTime, Whole
from seb_appliance.formats.queues.queues import (
    Delay,
    FailedDelivery,
    OffsetRange,
    QueueSettings,
    QueueStart,
)
from seb_appliance.formats.topic_settings import TopicSettings


class _Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Event(_Operation, frozen=True, kw_only=True):
    version: Literal[1] = 1


class Append(_Operation, frozen=True, kw_only=True, tag="append"):
    """The records of `sections[section]` are appended to their topic."""

    section: Whole


class EpochStarted(_Event, frozen=True, kw_only=True, tag="epoch_started"):
    """The first entry of a writer (fencing mode A). `software`: version that wrote it."""

    software: str = ""


class TopicCreated(_Event, frozen=True, kw_only=True, tag="topic_created"):
    topic_id: Whole
    name: str
    created_us: Whole
    settings: TopicSettings


class TopicForked(_Event, frozen=True, kw_only=True, tag="topic_forked"):
    """A new topic shares the records of `parent_id` from `log_start_offset` up to `fork_offset`,
    where its own begin. Shared records stay unchanged until it is deleted or trimmed, whatever
    happens to its parent."""

    topic_id: Whole
    name: str
    created_us: Whole
    settings: TopicSettings
    parent_id: Whole
    fork_offset: Whole
    log_start_offset: Whole


class TopicChanged(_Event, frozen=True, kw_only=True, tag="topic_changed"):
    """`settings` are all settings after the change."""

    topic_id: Whole
    settings: TopicSettings


class TopicDeleted(_Event, frozen=True, kw_only=True, tag="topic_deleted"):
    """The topic cannot be read or written any more. While it has forks, its name stays taken and
    shared records stay; it is removed with the last fork."""

    topic_id: Whole


class StreamSet(_Event, frozen=True, kw_only=True, tag="stream_set"):
    """The topic is one of the Durable Streams protocol, in this state from here on."""

    topic_id: Whole
    stream: StreamState


class TopicTrimmed(_Event, frozen=True, kw_only=True, tag="topic_trimmed"):
    """Records below `log_start_offset` cannot be read any more; sections that lie wholly below it
    are no longer in force."""

    topic_id: Whole
    log_start_offset: Whole


class StoredSection(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False
):
    """Batches of one topic in a segment or packed object, back to back. `at` counts from the
    object's beginning; offsets are inclusive, and the section answers for all of them, though some
    may have no record; `created_us` is the newest of its batches."""

    topic_id: Whole
    base_offset: Whole
    last_offset: Whole
    record_count: Whole
    at: Whole
    length: Whole
    crc: Whole
    created_us: Whole
    largest_timestamp_us: Whole


class StoredObject(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A segment or packed object: its key, its bytes, and its sections."""

    key: str
    length: Whole
    sections: tuple[StoredSection, ...]


class ReplacedRange(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False
):
    """Offsets of one topic, inclusive: sections within them are no longer in force."""

    topic_id: Whole
    base_offset: Whole
    last_offset: Whole


class SegmentsReplaced(_Event, frozen=True, kw_only=True, tag="segments_replaced"):
    """The sections of `objects` are in force instead of those that lie in `replaced`.

    The inputs are named exactly: the entries above the last `entries_until` of an operation before
    up to this one (0: none) and the objects in `inputs`. Object number i has the id
    seq * 1024 + i. A replica ignores sections of deleted topics and below a topic's log start.
    """

    replaced: tuple[ReplacedRange, ...]
    objects: tuple[StoredObject, ...]
    inputs: tuple[str, ...] = ()
    entries_until: Whole = 0


class ObjectsAdopted(_Event, frozen=True, kw_only=True, tag="objects_adopted"):
    """The sections of `objects`, in the order in which they stand here, continue the logs of their
    topics: each begins where its topic's log ends. No entry before holds records of these topics.

    An object is a segment, a packed object, or a file of the Go broker (`<topic>/…record_batch`),
    which is one section from its first byte to its last. Object number i has the id
    seq * 1024 + i: an entry holds one such operation, or one that replaces segments.
    """

    objects: tuple[StoredObject, ...]


class TopicCompacted(_Event, frozen=True, kw_only=True, tag="topic_compacted"):
    """The sections of the topic from base to last offset are one run of a compaction: no record key
    is in them twice. It replaces runs within this range and cuts those that reach into it, and
    follows the operation that puts these sections in force."""

    topic_id: Whole
    base_offset: Whole
    last_offset: Whole


class ObjectsCondemned(_Event, frozen=True, kw_only=True, tag="objects_condemned"):
    """These objects outside the journal hold nothing in force and are never referred to again;
    they may be deleted when the grace time since this entry's `created` is over."""

    keys: tuple[str, ...]


class ObjectsRemoved(_Event, frozen=True, kw_only=True, tag="objects_removed"):
    """Condemned objects that were deleted."""

    keys: tuple[str, ...]


class ApiKeyCreated(_Event, frozen=True, kw_only=True, tag="api_key_created"):
    """`secret_sha256`: 32 bytes; the secret itself is stored nowhere."""

    api_key_id: str
    name: str
    secret_sha256: bytes
    grants: tuple[Grant, ...]
    created_us: Whole
    expires_us: FarTime | None
    description: str = ""
    disabled: bool = False
    quotas: Quotas = Quotas()


class ApiKeyChanged(_Event, frozen=True, kw_only=True, tag="api_key_changed"):
    """All that can be changed of an API key, as it is after the change."""

    api_key_id: str
    name: str
    description: str
    grants: tuple[Grant, ...]
    expires_us: FarTime | None
    disabled: bool
    quotas: Quotas


class ApiKeyRotated(_Event, frozen=True, kw_only=True, tag="api_key_rotated"):
    """The API key has a new secret. The previous one works until `overlap_until_us`, older ones do
    not."""

    api_key_id: str
    secret_sha256: bytes
    rotated_us: Whole
    overlap_until_us: Whole


class ApiKeyRevoked(_Event, frozen=True, kw_only=True, tag="api_key_revoked"):
    api_key_id: str
    revoked_us: Whole


Role = Literal["viewer", "admin"]


class UserSet(_Event, frozen=True, kw_only=True, tag="user_set"):
    """A user of the admin page, made or changed: all of it, as it is after. `password_hash` is an
    argon2id text with its salt and costs; the password itself is stored nowhere."""

    name: str
    role: Role
    password_hash: str
    set_us: Whole


class UserRemoved(_Event, frozen=True, kw_only=True, tag="user_removed"):
    name: str


class DocumentSet(_Event, frozen=True, kw_only=True, tag="document_set"):
    """The configuration of something that a protocol keeps, made or replaced. `document` is JSON
    that only the protocol reads; secrets in it are encrypted."""

    kind: str
    name: str
    document: str
    set_us: Whole


class DocumentRemoved(_Event, frozen=True, kw_only=True, tag="document_removed"):
    kind: str
    name: str


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The next offset that a group will read of a topic, and a note of the committer's."""

    topic_id: Whole
    offset: Whole
    metadata: str = ""


class OffsetsCommitted(_Event, frozen=True, kw_only=True, tag="offsets_committed"):
    """These offsets replace the group's own for the same topics; its others stay."""

    group: str
    offsets: tuple[CommittedOffset, ...]


class GroupReset(_Event, frozen=True, kw_only=True, tag="group_reset"):
    """As `OffsetsCommitted`, by an operator: offsets may have gone back."""

    group: str
    offsets: tuple[CommittedOffset, ...]


class GroupDeleted(_Event, frozen=True, kw_only=True, tag="group_deleted"):
    """The group's offsets and its lease are gone."""

    group: str


class LeaseTaken(_Event, frozen=True, kw_only=True, tag="lease_taken"):
    """`holder` alone may commit for the group while the lease lives. Its generation is the seq of
    the entry that holds this event."""

    group: str
    holder: str
    ttl_ms: Whole


class LeaseReleased(_Event, frozen=True, kw_only=True, tag="lease_released"):
    group: str


class TableSet(_Event, frozen=True, kw_only=True, tag="table_set"):
    """A lake table was made or changed: all that can be set, as it is after.

    `table_id`: 16 hex digits. `location`: what its keys begin with, ending with a slash. `address`:
    the absolute URI of the store in which that lies, without a slash at the end. `columns`: all of
    the current schema. `paused`: by an operator. `printer`: the release of the text of its metadata
    (formats/lake/tables.py), so that a later release prints the same bytes again. `owner`: who made
    its topic, if that is known and no admin; an earlier release does not know this member.
    """

    table_id: str
    topic_id: Whole
    name: str
    location: str
    address: str
    formats: tuple[TableFormat, ...]
    columns: tuple[Column, ...]
    paused: bool = False
    printer: Whole = PRINTER
    owner: str | msgspec.UnsetType = msgspec.UNSET


class TableCommitted(_Event, frozen=True, kw_only=True, tag="table_committed"):
    """Commit `number` of a lake table: these files are in it from here on, and those of these names
    are not.

    `rewritten`: older manifests whose files are listed by the new ones; `manifest_bytes`: the
    lengths of the new manifests. `oldest`: the oldest snapshot that is kept.
    """

    table_id: str
    number: Whole
    op: TableOp
    ranges: tuple[TableRange, ...] = ()
    added: tuple[TableFile, ...] = ()
    removed: tuple[str, ...] = ()
    rewritten: tuple[ManifestName, ...] = ()
    manifest_bytes: tuple[Whole, ...] = ()
    oldest: Whole = 0


class TableDropped(_Event, frozen=True, kw_only=True, tag="table_dropped"):
    """The lake table is gone; its objects are no longer in use."""

    table_id: str


class QueueSet(_Event, frozen=True, kw_only=True, tag="queue_set"):
    """A work queue was made or changed: all that can be set, as it is after. `owner`: who made it,
    by the name in the audit.

    `starts`: topics that it begins to read behind their first record. `left`: topics that it does
    not read any more; what it did there is forgotten.
    """

    queue: str
    settings: QueueSettings
    owner: str = ""
    starts: tuple[QueueStart, ...] = ()
    left: tuple[Whole, ...] = ()


class QueueProgressed(_Event, frozen=True, kw_only=True, tag="queue_progressed"):
    """What became of records of one topic since the queue's last such event: `acked`; `rejected`,
    which went to the dead letters or were dropped; `lost`, which the topic did not have any more;
    and `failed`, which will be handed out again.

    The lists grow until the window of the event is sealed. The last failure of a record counts, and
    none of one that is settled.
    """

    queue: str
    topic_id: Whole
    acked: list[OffsetRange] = []
    rejected: list[OffsetRange] = []
    lost: list[OffsetRange] = []
    failed: list[FailedDelivery] = []

    def outcomes(self) -> tuple[tuple[list[OffsetRange], str], ...]:
        """What settles records, and the name of the number that counts it."""
        return (self.acked, "acked"), (self.rejected, "rejected"), (self.lost, "lost")


class QueueDeleted(_Event, frozen=True, kw_only=True, tag="queue_deleted"):
    queue: str


class RecordsDelayed(_Event, frozen=True, kw_only=True, tag="records_delayed"):
    """Queues hand these records out when they are due. They are in a section of this entry; the
    ranges are in the order of offsets."""

    topic_id: Whole
    delays: tuple[Delay, ...]


class DelaysPassed(_Event, frozen=True, kw_only=True, tag="delays_passed"):
    """The delays of the topic that were due until `until_us` are forgotten, those that were due
    first before others, at most DELAYS_FORGOTTEN_AT_ONCE ranges."""

    topic_id: Whole
    until_us: Whole


class AuditNoted(_Event, frozen=True, kw_only=True, tag="audit_noted"):
    """Who did what, in the same entry as the events of an operator's action.

    `actor` is the id of an API key, `user:NAME` for a user of the admin page, "" for the appliance.
    `before` and `after` are small JSON texts. It also sets the owner of a topic or group that the
    action creates (shares.py).
    """

    at_us: Whole
    actor: str
    address: str
    action: str
    subject_kind: str
    subject: str
    before: str | None
    after: str | None
    user_agent: str = ""


Event = (
    EpochStarted
    | TopicCreated
    | TopicForked
    | TopicChanged
    | TopicDeleted
    | StreamSet
    | TopicTrimmed
    | SegmentsReplaced
    | ObjectsAdopted
    | TopicCompacted
    | ObjectsCondemned
    | ObjectsRemoved
    | ApiKeyCreated
    | ApiKeyChanged
    | ApiKeyRotated
    | ApiKeyRevoked
    | UserSet
    | UserRemoved
    | DocumentSet
    | DocumentRemoved
    | OffsetsCommitted
    | GroupReset
    | GroupDeleted
    | LeaseTaken
    | LeaseReleased
    | TableSet
    | TableCommitted
    | TableDropped
    | QueueSet
    | QueueProgressed
    | QueueDeleted
    | RecordsDelayed
    | DelaysPassed
    | AuditNoted
)
Operation = Append | Event
QueueEvent = QueueSet | QueueProgressed | QueueDeleted
DelayEvent = RecordsDelayed | DelaysPassed
TableEvent = TableSet | TableCommitted | TableDropped
GroupEvent = OffsetsCommitted | GroupReset | GroupDeleted | LeaseTaken | LeaseReleased
TopicEvent = TopicCreated | TopicForked | TopicChanged | TopicDeleted | TopicTrimmed | StreamSet


OBJECTS_PER_SWITCH_MAX: Final = 1024
DELAYS_FORGOTTEN_AT_ONCE: Final = 20_000  # a reader must do exactly the same


def object_id_of(seq: int, number: int) -> int:
    """The id of object `number` of the switch in entry `seq`: never given twice."""
    assert number < OBJECTS_PER_SWITCH_MAX, number
    return seq * OBJECTS_PER_SWITCH_MAX + number
