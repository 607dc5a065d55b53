"""Bases of fencing mode B: where each writer's entries begin.

A base names the writer before its own and the last entry of that writer which counts (the cut). The
chain from the highest base down to the first is the whole log. The bases also record the bucket id.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import msgspec
from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.errors import ObjectMissingError, StoreUnusableError
from seb_appliance.formats.entry import EntryHeader, Position
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bucket_info import FORMAT_VERSIONS, require_known_formats
from seb_appliance.storage.journal.replay import (
    READS_OF_A_BAD_ENTRY,
    Replay,
    ReplayError,
    Span,
    chain_refusal,
)
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Claim
from seb_appliance.storage.stores.object_store import list_all

_ID_BYTES: Final = 16


class Base(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`cut`: the last entry before this writer's own; `previous`: the writer whose chain holds
    `cut`, None for the first base. Ids are hexadecimal."""

    version: Literal[1] = 1
    n: int
    writer: str
    previous_n: int | None
    previous_writer: str | None
    cut: Position
    bucket_id: str
    format_versions: dict[str, int] = msgspec.field(default_factory=lambda: dict(FORMAT_VERSIONS))

    @property
    def previous(self) -> Claim | None:
        if self.previous_n is None or self.previous_writer is None:
            return None
        return Claim(self.previous_n, bytes.fromhex(self.previous_writer))


class _Sealed(msgspec.Struct, frozen=True):
    base: msgspec.Raw
    crc32c: int


def make_base(claim: Claim, previous: Claim | None, cut: Position, bucket_id: bytes) -> Base:
    return Base(
        n=claim.n,
        writer=claim.writer_id.hex(),
        previous_n=previous.n if previous else None,
        previous_writer=previous.writer_id.hex() if previous else None,
        cut=cut,
        bucket_id=bucket_id.hex(),
    )


def encode_base(base: Base) -> bytes:
    """JSON: the base, and the CRC-32C of its bytes."""
    inner = msgspec.json.encode(base)
    return msgspec.json.encode(_Sealed(msgspec.Raw(inner), crc32c(inner)))


def decode_base(body: bytes, claim: Claim) -> Base:
    """The base of `claim`. Raises ValueError for other bytes, ConfigurationError for a newer
    release's."""
    try:
        sealed = msgspec.json.decode(body, type=_Sealed)
        if crc32c(bytes(sealed.base)) != sealed.crc32c:
            raise ValueError("its CRC does not agree")
        base = msgspec.json.decode(sealed.base, type=Base)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    require_known_formats(base.format_versions, layout.base_key(claim))
    ids = (base.bucket_id, base.writer, base.previous_writer)
    if any(one is not None and len(bytes.fromhex(one)) != _ID_BYTES for one in ids):
        raise ValueError("an id has the wrong length")
    if (base.n, base.writer) != (claim.n, claim.writer_id.hex()):
        raise ValueError("it is the base of another writer")
    if base.previous is not None and base.previous >= claim:
        raise ValueError("it names a later writer as the one before")  # a chain without end
    return base


async def list_claims(store: RetryingStore, folder: str) -> list[Claim]:
    """The claims or bases in `folder`, lowest first."""
    found = await list_all(store, folder, most=limits.SMALL_FOLDER_OBJECTS_MAX)
    claims = []
    for info in found:
        claim = layout.parse_claim(info.key)
        if claim is None:
            raise StoreUnusableError(f"{info.key} is not an object of ours: remove it")
        claims.append(claim)
    return claims


class BaseChain:
    """The bases in the bucket, from the highest down. `bucket_id`: of the highest base; while there
    is none, the one given."""

    def __init__(self, store: RetryingStore, bucket_id: bytes) -> None:
        self.bucket_id = bucket_id
        self.top: Claim | None = None
        self._store = store
        self._read: dict[Claim, Base] = {}

    async def look(self) -> None:
        """LIST the bases again. Raises ReplayError if the highest cannot be read."""
        listed = await list_claims(self._store, layout.BASES)
        self.top = listed[-1] if listed else None
        if self.top is not None:
            self.bucket_id = bytes.fromhex((await self._base(self.top)).bucket_id)

    async def from_position(self, position: Position) -> list[Base]:
        """The bases that lead from the writer of `position` to the highest, oldest first; from the
        first of all for ORIGIN. Empty: `position` is not on this chain (or there are no bases)."""
        bases: list[Base] = []
        wanted = Claim(position.epoch, position.writer_id) if position.seq else None
        claim = self.top
        while claim is not None:
            bases.insert(0, await self._base(claim))
            if claim == wanted:
                break
            claim = bases[0].previous
        if claim != wanted:
            return []
        if len(bases) < 2 or position.seq == 0:
            return bases
        # An entry of the first base's writer must not lie above where the next base cuts it.
        cut = bases[1].cut
        is_below = position == cut if position.seq == cut.seq else position.seq < cut.seq
        return bases if is_below else []

    async def _base(self, claim: Claim) -> Base:
        if claim in self._read:
            return self._read[claim]
        key = layout.base_key(claim)
        why = ""
        for _ in range(READS_OF_A_BAD_ENTRY):
            try:
                body = await self._store.get(key)
                base = self._read[claim] = decode_base(body, claim)
            except ObjectMissingError as error:
                raise ReplayError(key, "is missing: a base that leads nowhere") from error
            except ValueError as error:
                why = str(error)
            else:
                return base
        raise ReplayError(key, f"is damaged: {why}")


class ClaimedLog:
    """`recovery.Log` of mode B: the highest base, its cut, and its writer's own entries."""

    def __init__(self, replay: Replay, chain: BaseChain) -> None:
        self._replay = replay
        self.chain = chain

    @property
    def bucket_id(self) -> bytes:
        return self.chain.bucket_id

    async def look(self) -> None:
        await self.chain.look()

    async def holds(self, position: Position) -> bool:
        return position.seq == 0 or bool(await self.chain.from_position(position))

    async def entry_at(self, position: Position) -> EntryHeader | None:
        claim = Claim(position.epoch, position.writer_id)
        return await self._replay.reader.read_header(layout.claimed_key(claim, position.seq))

    async def replay(self, position: Position) -> Position:
        bases = await self.chain.from_position(position)
        if (top := self.chain.top) is not None:  # for the progress, by the highest writer's listing
            after = layout.claimed_key(top, position.seq)
            await self._replay.expect(f"{layout.JOURNAL}{top.name}/", after)
        for i, base in enumerate(bases):
            cut = bases[i + 1].cut if i + 1 < len(bases) else None
            if cut is not None and cut.seq <= position.seq:
                continue
            span = claimed_span(base, cut)
            position = await self._replay.run(position, span, self.bucket_id)
            if cut is not None and position != cut:
                raise ReplayError(span.key(cut.seq), "is not the entry that the next base names")
        return position


def claimed_span(base: Base, cut: Position | None) -> Span:
    """The entries of one writer, up to where the next base cuts them."""
    claim = Claim(base.n, bytes.fromhex(base.writer))
    return Span(
        partial(layout.claimed_key, claim), cut.seq if cut else None, partial(_refusal, claim)
    )


def _refusal(claim: Claim, header: EntryHeader, position: Position) -> str:
    if why := chain_refusal(header, position):
        return why
    if (header.epoch, header.writer_id) != (claim.n, claim.writer_id) or header.is_epoch:
        return f"is not an entry of the writer whose key it lies at ({claim.name})"
    return ""
