"""Every key in the bucket, in one place. Keys are relative to the prefix (docs/FORMAT.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from seb_appliance.broker.ports import EntryRef

Mode = Literal["A", "B"]  # A: the store creates only if absent; B: claims are checked

OURS: Final = "_seb/"
BUCKET: Final = "_seb/bucket.json"
JOURNAL: Final = "_seb/journal/"
CLAIMS: Final = "_seb/claims/"
BASES: Final = "_seb/bases/"
SNAPSHOTS: Final = "_seb/snapshots/"
PROBE: Final = "_seb/probe/"

_CLAIM_NAME = re.compile(r"(\d{10})-([0-9a-f]{32})")
_SNAPSHOT_NAME = re.compile(r"(\d{20})-([0-9a-f]{16})\.sqlite\.zst")
_GO_BROKER = re.compile(r"[^/]+/(\d{12}\.record_batch|[^/]*\.offsets)")


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
    """Where entry `seq` lies in mode A."""
    return f"{JOURNAL}{seq:020d}.seb"


def claimed_key(claim: Claim, seq: int) -> str:
    """Where entry `seq` of one writer lies in mode B."""
    return f"{JOURNAL}{claim.name}/{seq:020d}.seb"


def entry_key(mode: Mode, ref: EntryRef) -> str:
    """Where an entry lies."""
    if mode == "A":
        return create_only_key(ref.seq)
    return claimed_key(Claim(ref.epoch, ref.writer_id), ref.seq)


def is_go_broker_key(key: str) -> bool:
    """Whether this is an object as the Go broker keeps them, beside our folder."""
    return _GO_BROKER.fullmatch(key) is not None
