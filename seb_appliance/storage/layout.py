"""Every key in the bucket, in one place. Keys are relative to the prefix (docs/FORMAT.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from seb_appliance.broker.ports import EntryRef, ObjectRef

Mode = Literal["A", "B"]  # A: the store creates only if absent; B: claims are checked

OURS: Final = "_seb/"
BUCKET: Final = "_seb/bucket.json"
JOURNAL: Final = "_seb/journal/"
CLAIMS: Final = "_seb/claims/"
BASES: Final = "_seb/bases/"
SNAPSHOTS: Final = "_seb/snapshots/"
SEGMENTS: Final = "_seb/segments/"
PACKED: Final = "_seb/packed/"
COPY: Final = "_seb/copy.json"  # while a copy into this bucket is under way
PROBE: Final = "_seb/probe/"

TABLES: Final = "tables/"  # outside of our own prefix: others may read it

_TABLE_KEY = re.compile(r"tables/[0-9a-f]{8}-[a-z0-9-]+/.+")
_CLAIM_NAME = re.compile(r"([0-9]{10})-([0-9a-f]{32})")
_ENTRY_KEY = re.compile(r"_seb/journal/(?:([0-9]{10})-([0-9a-f]{32})/)?([0-9]{20})\.seb")
_SEQ_MAX: Final = (1 << 63) - 1  # in SQLite; 20 digits may say more
_NUMBER = r"(0|[1-9][0-9]{0,18})"  # a number has one spelling, and so has a key
_SEGMENT_KEY = re.compile(
    rf"_seb/(?:segments/{_NUMBER}|packed)/([0-9]{{20}})-([0-9]{{20}})-{_NUMBER}-[0-9a-f]{{16}}\.seb"
)
_SNAPSHOT_NAME = re.compile(r"([0-9]{20})-([0-9a-f]{16})\.sqlite\.zst")
_GO_BATCH = re.compile(r"([^/]+)/([0-9]{12})\.record_batch")
_GO_BROKER = re.compile(r"[^/]+/([0-9]{12}\.record_batch|[^/]*\.offsets)")


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A writer of fencing mode B. Claims are ordered by (n, writer id), as their keys are."""

    n: int
    writer_id: bytes

    @property
    def name(self) -> str:
        return f"{self.n:010d}-{self.writer_id.hex()}"


@dataclass(frozen=True, slots=True, order=True)
class SnapshotName:
    """A snapshot of the state as of entry `seq`. `digest`: first 16 hex digits of the object's
    SHA-256."""

    seq: int
    digest: str

    @property
    def key(self) -> str:
        return f"{SNAPSHOTS}{self.seq:020d}-{self.digest}.sqlite.zst"


def claim_key(claim: Claim) -> str:
    return CLAIMS + claim.name


def base_key(claim: Claim) -> str:
    return BASES + claim.name


def parse_claim(key: str) -> Claim | None:
    """The claim that a key under `claims/` or `bases/` names; None if it is not one of ours."""
    match = _CLAIM_NAME.fullmatch(key.rpartition("/")[2])
    return Claim(int(match[1]), bytes.fromhex(match[2])) if match else None


def parse_snapshot(key: str) -> SnapshotName | None:
    """The snapshot that a key under `snapshots/` names; None if it is not one of ours."""
    match = _SNAPSHOT_NAME.fullmatch(key.removeprefix(SNAPSHOTS))
    return SnapshotName(int(match[1]), match[2]) if match else None


def create_only_key(seq: int) -> str:
    """The key of entry `seq` in mode A."""
    return f"{JOURNAL}{seq:020d}.seb"


def claimed_key(claim: Claim, seq: int) -> str:
    """The key of a writer's entry `seq` in mode B."""
    return f"{JOURNAL}{claim.name}/{seq:020d}.seb"


def object_key(mode: Mode, ref: EntryRef | ObjectRef) -> str:
    """The key of an entry, a segment or a packed object."""
    if isinstance(ref, ObjectRef):
        return ref.key
    if mode == "A":
        return create_only_key(ref.seq)
    return claimed_key(Claim(ref.epoch, ref.writer_id), ref.seq)


def segment_key(topic_id: int, base: int, last: int, epoch: int, name: bytes) -> str:
    """The key of a segment with records `base` to `last`, made by the writer of `epoch`. `name`: 8
    random bytes, so that no key ever has two contents."""
    return f"{SEGMENTS}{topic_id}/{base:020d}-{last:020d}-{epoch}-{name.hex()}.seb"


def numbered(name: bytes, number: int) -> bytes:
    """The 8-byte name of object `number` of a job; `name`: the job's random name."""
    return ((int.from_bytes(name, "big") + number) % (1 << 64)).to_bytes(8, "big")


def packed_key(first_seq: int, last_seq: int, epoch: int, name: bytes) -> str:
    """The key of a packed object made of these entries (of objects: both are 0)."""
    return f"{PACKED}{first_seq:020d}-{last_seq:020d}-{epoch}-{name.hex()}.seb"


def epoch_of(key: str) -> int | None:
    """The epoch in the key of a segment or packed object; None if it is not one of ours."""
    match = _SEGMENT_KEY.fullmatch(key)
    return int(match[4]) if match else None


def is_of_table(key: str) -> bool:
    """Whether it is a key below the location of a lake table, of whatever name. A part `..` or `.`
    would lead a directory, or a client that follows it, to another key."""
    return _TABLE_KEY.fullmatch(key) is not None and not {"..", "."} & set(key.split("/"))


def may_be_deleted(key: str) -> bool:
    """Whether objects of such a key may be garbage: nothing else of ours is ever deleted by key."""
    return epoch_of(key) is not None or parse_go_batch(key) is not None or is_of_table(key)


def is_key_of(key: str, topic_id: int, base: int, last: int) -> bool:
    """Whether the key of a segment (or, for topic 0, of a packed object) names this range."""
    match = _SEGMENT_KEY.fullmatch(key)
    return match is not None and (
        int(match[1] or 0) == topic_id and (int(match[2]), int(match[3])) == (base, last)
    )


def parse_entry(key: str) -> tuple[Claim | None, int] | None:
    """The writer (in mode B) and seq of the entry at a key; None if it is not the key of an
    entry."""
    match = _ENTRY_KEY.fullmatch(key)
    if match is None or int(match[3]) > _SEQ_MAX:
        return None
    claim = Claim(int(match[1]), bytes.fromhex(match[2])) if match[1] else None
    return claim, int(match[3])


def is_ours(key: str) -> bool:
    """Whether it is the key of an entry, a snapshot, a claim or a base."""
    if key.startswith(JOURNAL):
        return parse_entry(key) is not None
    if key.startswith(SNAPSHOTS):
        return parse_snapshot(key) is not None
    return key.startswith((CLAIMS, BASES)) and parse_claim(key) is not None


def is_go_broker_key(key: str) -> bool:
    """Whether this is an object of the Go broker, outside our folder."""
    return _GO_BROKER.fullmatch(key) is not None


def go_batch_key(topic: str, base_offset: int) -> str:
    """The key of a batch of the Go broker."""
    return f"{topic}/{base_offset:012d}.record_batch"


def parse_go_batch(key: str) -> tuple[str, int] | None:
    """Topic and first offset of a batch of the Go broker; None if the key names none."""
    match = _GO_BATCH.fullmatch(key)
    return (match[1], int(match[2])) if match else None
