"""What lies in the bucket and in the cache, what is tidied, and which requests that took."""

from __future__ import annotations

from typing import Final

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.counters import RequestCount
from seb_appliance.broker.status import Telemetry
from seb_appliance.ui.options import CheckKind, Figure
from seb_appliance.ui.page_context import AnyRequest, Change, Desk
from seb_appliance.ui.units import count, share, size

# How the errors of stores read; others are shown by their names.
_ANSWERS: Final = {"ObjectMissingError": "absent", "ObjectExistsError": "there already"}


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/storage")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request)
        now = desk.options.telemetry()
        status = now.status
        return desk.page(
            visit,
            "storage",
            parts=frozenset({"storage-live", "checks"}),
            requests=_requests(now),
            sections=[
                ("In the bucket", _bucket(now)),
                ("The tidier, since the start", _tidier(now)),
                ("Reads, since the start", _reads(now)),
            ],
            failures=[one for one in (status.snapshots.failure, status.tidier.failure) if one],
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


def _requests(now: Telemetry) -> list[RequestCount]:
    """Ours, and those of the tidier's process, of which only the number is known."""
    others = [
        RequestCount(row.kind, "", row.requests, purpose="tidier") for row in now.tidier_requests
    ]
    return sorted([*now.requests, *others], key=lambda row: (row.purpose, row.kind, row.outcome))


def _bucket(now: Telemetry) -> list[Figure]:
    journal, tidier, snapshots = now.status.journal, now.status.tidier, now.status.snapshots
    bucket, gone = now.status.bucket.description, now.object_bytes - now.living_bytes
    return [
        Figure("Bucket", journal.durability, f"{bucket}, fencing mode {journal.fencing_mode}"),
        Figure("Journal", f"seq {count(journal.seq)}", f"epoch {count(journal.epoch)}"),
        Figure("Tidied", f"seq {count(now.tidied_seq)}", "entries up to it are merged or empty"),
        Figure(
            "Entries to be tidied",
            count(tidier.waiting_entries),
            f"{size(tidier.waiting_bytes)}; small and young ones wait for company",
        ),
        Figure("Segments", count(tidier.objects), f"{size(now.object_bytes)}, packed ones too"),
        Figure("Gone within segments", size(gone), "rewritten when it is more than half of one"),
        Figure("Condemned objects", count(tidier.garbage), "removed after a time of grace"),
        Figure(
            "Newest snapshot",
            "none yet" if snapshots.seq is None else f"seq {count(snapshots.seq)}",
            f"{count(snapshots.entries_since)} entries since; a start replays them",
        ),
    ]


def _tidier(now: Telemetry) -> list[Figure]:
    tidier = now.status.tidier
    return [
        Figure("Now", tidier.doing or "resting", "one thing at a time"),
        Figure("Jobs", count(tidier.jobs), "merges that were put in force"),
        Figure("Read", size(tidier.bytes_read), "from the bucket"),
        Figure("Written", size(tidier.bytes_written), "segments"),
        Figure("Entries removed", count(tidier.entries_removed), "from the journal"),
        Figure("Objects removed", count(tidier.objects_removed), "that were condemned"),
        Figure("Trims by retention", count(tidier.topics_trimmed), "log starts moved"),
    ]


def _reads(now: Telemetry) -> list[Figure]:
    read = now.cache
    cached = read.from_memory + read.from_disk
    reads = cached + read.from_bucket
    used, limit = read.size_bytes, read.limit_bytes
    cache = Figure("Cache", "none", "the bucket is as near as a cache would be")
    if used is not None:
        cache = Figure("Cache", size(used), f"of {size(limit)}, on the local disk")
    return [
        cache,
        Figure("From memory", count(read.from_memory), "sections"),
        Figure("From the cache", count(read.from_disk), "sections"),
        Figure("From the bucket", count(read.from_bucket), "sections"),
        Figure("Hit rate", share(cached / reads if reads else None), "memory and cache"),
        Figure("Damaged", count(read.damaged), "reads whose checksum failed"),
    ]


# The settings in force, and where each came from.


def setting_routes(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/settings")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request)
        return desk.page(visit, "settings", rows=desk.options.settings())

    return [show]
