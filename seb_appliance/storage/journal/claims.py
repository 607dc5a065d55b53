"""Fencing mode B: plain PUT, GET and LIST, for stores that cannot create only if absent.

A writer stores its claim, checks that it is the highest, replays, stores its base, and checks
again. After each PUT it checks for higher claims before the entry is applied, served or
acknowledged. Every key has one writer and one content. A machine that is set back together with its
memory would break that, so a writer looks at its key before a PUT when that may have happened.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from seb_appliance import __version__
from seb_appliance.clock import Clock
from seb_appliance.errors import FencedStartError, ObjectMissingError, StoreUnusableError
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.entry import EncodedEntry, Position
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import BaseChain, encode_base, list_claims, make_base
from seb_appliance.storage.journal.journal import StoredJournal, is_ours
from seb_appliance.storage.journal.replay import ReplayError
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.layout import Claim

# If LIST may lag, a start that found another writer's claim waits so long before it replays.
UNKNOWN_LIST_WAIT_S: Final = 60.0
# A higher claim without a base for so long is an aborted start. It must exceed the wait for LIST,
# or nobody could take over from a running appliance.
ABANDONED_S: Final = UNKNOWN_LIST_WAIT_S + 30.0
_LOOK_AGAIN_S: Final = 3.0
# No connection survives that a machine is set back, so the next PUT fails. After a pause that a
# store may have ended the connection in (5 s are the least that is usual), it would not.
LOOK_AFTER_S: Final = 4.0


class Contested(Exception):  # noqa: N818 - an answer, not a failure
    """A higher claim was seen. `by`: the highest."""

    def __init__(self, by: Claim) -> None:
        super().__init__(by.name)
        self.by = by


class Claimant:
    """The steps with claims and bases that a start and a running writer share."""

    def __init__(self, store: RetryingStore, clock: Clock, failpoints: Failpoints) -> None:
        self._store = store
        self._clock = clock
        self._failpoints = failpoints

    async def claims(self) -> list[Claim]:
        """All claims, lowest first."""
        return await list_claims(self._store, layout.CLAIMS)

    async def claim_above(self, claims: list[Claim], writer_id: bytes) -> Claim:
        """Steps 1 to 3: PUT a claim above `claims`, then see that it is shown and the highest.
        Raises Contested."""
        mine = Claim(claims[-1].n + 1 if claims else 1, writer_id)
        if layout.parse_claim(layout.claim_key(mine)) is None:  # nobody starts so often
            raise StoreUnusableError(
                f"{layout.claim_key(claims[-1])} is no appliance's claim, and none can be above "
                "it: remove it"
            )
        body = msgspec.json.encode(
            {"n": mine.n, "writer": writer_id.hex(), "software": __version__}
        )
        await self._store.put(layout.claim_key(mine), body)
        self._failpoints.reach("K19")
        shown = await self.claims()
        if shown and shown[-1] > mine:
            raise Contested(shown[-1])
        if mine not in shown:
            raise StoreUnusableError(
                f"the store's LIST does not show {layout.claim_key(mine)}, which was just stored: "
                "two appliances could not see each other here, so this store cannot be used"
            )
        return mine

    async def put_base(
        self, mine: Claim, previous: Claim | None, cut: Position, bucket_id: bytes
    ) -> None:
        """Steps 6 and 7: PUT the base, then LIST claims: none above mine → in force. Raises
        Contested."""
        body = encode_base(make_base(mine, previous, cut, bucket_id))
        await self._store.put(layout.base_key(mine), body)
        self._failpoints.reach("K19")
        await self.require_highest(mine)

    async def require_highest(self, mine: Claim) -> None:
        """LIST claims after mine, one key. Raises Contested if there is one."""
        above = await self._store.list_after(layout.CLAIMS, layout.claim_key(mine), 1)
        if above:
            raise Contested(layout.parse_claim(above[0].key) or mine)

    async def is_abandoned(self, by: Claim) -> bool:
        """Whether no writer at or above `by` stores a base within ABANDONED_S: an aborted start,
        which would otherwise stop both writers."""
        until_s = self._clock.monotonic_s() + ABANDONED_S
        while True:
            bases = await list_claims(self._store, layout.BASES)
            if bases and bases[-1] >= by:
                return False
            if self._clock.monotonic_s() >= until_s:
                return True
            await self._clock.sleep(_LOOK_AGAIN_S)


class ClaimedJournal(StoredJournal):
    # The entry may be part of the new writer's log, which chose its base on its own.
    _fenced_side_effects = "unknown"
    encodes_ahead = False  # an append may begin a new epoch

    def __init__(
        self,
        store: RetryingStore,
        failpoints: Failpoints,
        random_bytes: Callable[[int], bytes],
        clock: Clock,
        *,
        bucket_id: bytes,
        claim: Claim,
        position: Position,
    ) -> None:
        super().__init__(
            store,
            failpoints,
            random_bytes,
            mode="B",
            bucket_id=bucket_id,
            writer_id=claim.writer_id,
            epoch=claim.n,
            position=position,
        )
        self._claim = claim
        self._claimant = Claimant(store, clock, failpoints)
        self._clock = clock
        self._put_s = clock.monotonic_s()  # when a PUT was answered last
        self._in_doubt = False  # an attempt was not answered

    async def _store(self, encoded: EncodedEntry) -> None:
        key = layout.claimed_key(self._claim, encoded.entry.header.seq)
        await self._object_store.ask(partial(self._put_once, key, encoded))
        self._failpoints.reach("K7")
        try:
            await self._claimant.require_highest(self._claim)
        except Contested as contest:
            await self._claim_anew(contest.by, encoded.entry.header.position)

    async def _put_once(self, key: str, encoded: EncodedEntry) -> None:
        """One attempt. Raises FencedError if this process wrote another entry there before the
        machine was set back, and perhaps acknowledged it: a PUT would replace it."""
        store = self._object_store.raw
        if self._in_doubt or self._clock.monotonic_s() - self._put_s > LOOK_AFTER_S:
            with suppress(ObjectMissingError):
                if not await is_ours(store, key, encoded):
                    raise self._fence(
                        f"{key} holds another entry of this appliance: its machine was set back "
                        "with its memory, or copied"
                    )
        self._in_doubt = True
        await store.put(key, encoded.body)
        self._in_doubt = False
        self._put_s = self._clock.monotonic_s()

    async def confirm_in_force(self) -> None:
        """LIST claims after mine."""
        self._refuse_if_fenced()
        claim = self._claim
        try:
            await self._claimant.require_highest(claim)
        except Contested as contest:
            # An append in progress may be claiming again: then that append decides.
            if not self._appending:
                raise self._fence(_fenced_by(contest.by)) from contest

    async def _claim_anew(self, by: Claim, stored: Position) -> None:
        """If the higher claim is an aborted start, claim again once and continue; else fenced.

        `stored`, our entry that is being checked, ends our own chain: while the highest base is
        ours, no other writer was in force, and the entry is confirmed with the new base.
        """
        if not await self._claimant.is_abandoned(by):
            raise self._fence(_fenced_by(by))
        try:
            claims = await self._claimant.claims()
            claim = await self._claimant.claim_above(claims, self.writer_id)
            chain = BaseChain(self._object_store, self.bucket_id)
            await chain.look()
            if chain.top != self._claim:
                raise self._fence(_fenced_by(chain.top or by))
            await self._claimant.put_base(claim, self._claim, stored, self.bucket_id)
        except (Contested, ReplayError, StoreUnusableError) as error:
            raise self._fence(_fenced_by(by)) from error
        self._claim = claim
        self.epoch = claim.n


def _fenced_by(claim: Claim) -> str:
    return f"another appliance has claimed this bucket (epoch {claim.n}, writer {claim.name[11:]})"


def fenced_start(by: Claim) -> FencedStartError:
    """The error of a start that found the higher claim `by`."""
    return FencedStartError(_fenced_by(by) + " while this one started. It was not started.")
