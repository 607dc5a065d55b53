"""The storage page (bucket, cache, tidier, requests, checks), and the settings page."""

from __future__ import annotations

from typing import Final

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.counters import RequestCount
from seb_appliance.broker.status import Telemetry
from seb_appliance.quantities import counted
from seb_appliance.ui import charts
from seb_appliance.ui.options import CheckKind, Figure
from seb_appliance.ui.page_context import Routes, Visit
from seb_appliance.ui.units import count, share, size

routes = Routes()
# Store errors in words; others are shown by name.
_ANSWERS: Final = {"ObjectMissingError": "absent", "ObjectExistsError": "exists"}


@routes.get("/storage", {"span"})
async def show(visit: Visit) -> ASGIApp:
    now = await visit.options.telemetry()
    status = now.status
    live = ("storage-live", "checks")
    drawn = {} if visit.part in live else await charts.shown(visit, "storage")
    return visit.page(
        "storage",
        parts=[*live, "charts"],
        requests=_requests(now),
        sections=[
            ("In the bucket", _bucket(now)),
            ("The tidier, since the start", _tidier(now)),
            ("Reads, since the start", _reads(now)),
        ],
        failures=[one for one in (status.snapshots.failure, status.tidier.failure) if one],
        answers=_ANSWERS,
        bill=visit.options.bill(),
        cost=visit.options.cost(),
        checks=visit.options.checks(),
        every_s=limits.SAMPLE_EVERY_S,
        **drawn,
    )


@routes.get("/settings")
async def settings(visit: Visit) -> ASGIApp:
    return visit.page("settings", rows=visit.options.settings())


@routes.post("/storage/snapshot")
async def take_snapshot(visit: Visit) -> ASGIApp:
    seq = await visit.options.snapshot()
    words = f"The newest snapshot reaches up to entry {count(seq)}."
    return visit.see_other("/ui/storage", words)


@routes.post("/storage/doctor")
async def doctor(visit: Visit) -> ASGIApp:
    return _begin(visit, "doctor")


@routes.post("/storage/fsck")
async def fsck(visit: Visit) -> ASGIApp:
    return _begin(visit, "fsck")


def _begin(visit: Visit, kind: CheckKind) -> ASGIApp:
    """Checks make many requests to the bucket: an admin starts them, one at a time."""
    words = "The check has started. Its findings are shown below."
    if not visit.options.begin_check(kind):
        words = "No check was started: another one is running."
    return visit.see_other("/ui/storage#checks", words)


def _requests(now: Telemetry) -> list[RequestCount]:
    """Requests of this process and of the tidier's process; for the latter only their number is
    known."""
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
            f"{counted(snapshots.entries_since, 'entry')} since; a start replays them",
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
        Figure("Damaged", count(read.damaged), "reads: no object, or a wrong checksum"),
    ]
