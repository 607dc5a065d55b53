"""What lies in the bucket and in the cache, what is tidied, and which requests that took."""

from __future__ import annotations

from typing import Final

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.ui.facts import CheckKind, Figure, StorageFacts
from seb_appliance.ui.page_context import AnyRequest, Change, Desk
from seb_appliance.ui.units import count, share, size

# How the errors of stores read; others are shown by their names.
_ANSWERS: Final = {"ObjectMissingError": "absent", "ObjectExistsError": "there already"}


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/storage")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request)
        facts = desk.options.storage()
        return desk.page(
            visit,
            "storage",
            parts=frozenset({"storage-live", "checks"}),
            facts=facts,
            sections=[
                ("In the bucket", _bucket(facts)),
                ("The tidier, since the start", _tidier(facts)),
                ("Reads, since the start", _reads(facts)),
            ],
            failures=[one for one in (facts.snapshot_failure, facts.tidier_failure) if one],
            answers=_ANSWERS,
            bill=desk.options.bill(),
            checks=desk.options.checks(),
            every_s=limits.SAMPLE_EVERY_S,
        )

    @post("/storage/snapshot")
    @desk.changes()
    async def take_snapshot(_request: AnyRequest, change: Change) -> ASGIApp:
        seq = await desk.options.snapshot()
        words = f"The newest snapshot reaches up to entry {count(seq)}."
        return desk.see_other(change.visit, "/ui/storage", words)

    return [show, take_snapshot, *_checking(desk)]


def _checking(desk: Desk) -> list[HTTPRouteHandler]:
    """They ask the bucket for much: an admin begins them, one at a time."""

    @post("/storage/doctor")
    @desk.changes()
    async def doctor(_request: AnyRequest, change: Change) -> ASGIApp:
        return _begin(desk, change, "doctor")

    @post("/storage/fsck")
    @desk.changes()
    async def fsck(_request: AnyRequest, change: Change) -> ASGIApp:
        return _begin(desk, change, "fsck")

    return [doctor, fsck]


def _begin(desk: Desk, change: Change, kind: CheckKind) -> ASGIApp:
    words = "It has begun; what it finds comes below."
    if not desk.options.begin_check(kind):
        words = "Nothing was begun: one check is on its way, and there is one at a time."
    return desk.see_other(change.visit, "/ui/storage#checks", words)


def _bucket(facts: StorageFacts) -> list[Figure]:
    gone = facts.object_bytes - facts.living_bytes
    return [
        Figure("Bucket", facts.durability, f"{facts.bucket}, fencing mode {facts.fencing_mode}"),
        Figure("Journal", f"seq {count(facts.journal_seq)}", f"epoch {count(facts.epoch)}"),
        Figure("Tidied", f"seq {count(facts.tidied_seq)}", "entries up to it are merged or empty"),
        Figure(
            "Entries to be tidied",
            count(facts.waiting_entries),
            f"{size(facts.waiting_bytes)}; small and young ones wait for company",
        ),
        Figure("Segments", count(facts.objects), f"{size(facts.object_bytes)}, packed ones too"),
        Figure("Gone within segments", size(gone), "rewritten when it is more than half of one"),
        Figure("Condemned objects", count(facts.garbage), "removed after a time of grace"),
        Figure(
            "Newest snapshot",
            "none yet" if facts.snapshot_seq is None else f"seq {count(facts.snapshot_seq)}",
            f"{count(facts.snapshot_entries_since)} entries since; a start replays them",
        ),
    ]


def _tidier(facts: StorageFacts) -> list[Figure]:
    return [
        Figure("Now", facts.doing or "resting", "one thing at a time"),
        Figure("Jobs", count(facts.jobs), "merges that were put in force"),
        Figure("Read", size(facts.tidier_read_bytes), "from the bucket"),
        Figure("Written", size(facts.tidier_written_bytes), "segments"),
        Figure("Entries removed", count(facts.entries_removed), "from the journal"),
        Figure("Objects removed", count(facts.objects_removed), "that were condemned"),
        Figure("Trims by retention", count(facts.topics_trimmed), "log starts moved"),
    ]


def _reads(facts: StorageFacts) -> list[Figure]:
    at_hand = facts.sections_from_memory + facts.sections_from_disk
    reads = at_hand + facts.sections_from_bucket
    used, limit = facts.cache_bytes, facts.cache_limit_bytes
    cache = Figure("Cache", "none", "the bucket is as near as a cache would be")
    if used is not None:
        cache = Figure("Cache", size(used), f"of {size(limit)}, on the local disk")
    return [
        cache,
        Figure("From memory", count(facts.sections_from_memory), "sections"),
        Figure("From the cache", count(facts.sections_from_disk), "sections"),
        Figure("From the bucket", count(facts.sections_from_bucket), "sections"),
        Figure("Hit rate", share(at_hand / reads if reads else None), "memory and cache"),
        Figure("Damaged", count(facts.damaged_reads), "reads whose checksum failed"),
    ]


# The settings in force, and where each came from.


def setting_routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/settings")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request)
        return desk.page(visit, "settings", rows=desk.options.settings())

    return [show]
