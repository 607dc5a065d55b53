"""How long a lost machine takes to be back, from the bucket alone, and how large an idle one is:

    python -m benchmarks.recovery [FOLDER]

Makes a bucket with a million records in 1,000 topics, 10,000 groups and 1,000 API keys, and
rebuilds the state as `seb restore --verify` does: from the first journal entry on, and from a
snapshot. Then it starts an appliance on it, and tells its memory.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from seb_appliance import setting_sources
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.ops.host import restoring
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.settings import Settings
from seb_appliance.storage import layout
from tests.support.process import Bucket, SebProcess

RECORDS, TOPICS, GROUPS, API_KEYS = 1_000_000, 1_000, 10_000, 1_000
RECORDS_EACH = 100  # of one append; 100 appends share a window
ADMIN = ApiKeyView("bench", "bench", (Grant(operation="admin"),), 0)


def settings_of(folder: Path) -> Settings:
    flags = {"bucket": f"file:{folder / 'bucket'}", "data": str(folder / "data"), "tidier": "off"}
    return setting_sources.load(flags=flags, environment={})


async def fill(folder: Path) -> None:
    """Ends without a snapshot; those that were made meanwhile are removed."""
    chosen = settings_of(folder)
    chosen.data.mkdir(parents=True)
    store = make_store(chosen, NO_FAILPOINTS)
    appliance = await Appliance.open(chosen, store, NO_FAILPOINTS, lambda *_: None)
    await appliance.start()
    broker = appliance.broker

    async def append(number: int) -> None:
        records = NewRecords([b"a record of some eighty bytes " * 3] * RECORDS_EACH)
        await broker.appends.append(
            ADMIN, f"topic-{number % TOPICS}", records, broker.pending.reserve(OPERATOR, 1)
        )

    async def commit(number: int) -> None:
        offsets = {f"topic-{number % TOPICS}": number % RECORDS_EACH}
        await broker.groups.commit(
            Commit(f"group-{number}", offsets), broker.pending.reserve(OPERATOR, 1)
        )

    async def key(number: int) -> None:
        grants = (Grant(operation="consume", topics=f"topic-{number}"),)
        await broker.access.create(f"key-{number}", grants)

    for work, count in ((append, RECORDS // RECORDS_EACH), (commit, GROUPS), (key, API_KEYS)):
        for begin in range(0, count, 100):
            await asyncio.gather(*(work(number) for number in range(begin, begin + 100)))
    await appliance.close()
    for snapshot in (folder / "bucket" / layout.SNAPSHOTS).glob("*"):
        snapshot.unlink()


async def rebuild(folder: Path, how: str) -> None:
    restored = await restoring.verify(settings_of(folder), lambda *_: None)
    state, rebuilt = restored.state, restored.rebuilt
    groups = len({row.group for row in state.group_offsets})
    print(
        f"{how}: {rebuilt.seconds:.1f} s for {rebuilt.entries_replayed:,} entries after "
        f"{rebuilt.began_from}; {len(state.topics):,} topics, {groups:,} groups, "
        f"{len(state.api_keys):,} API keys",
        flush=True,
    )


async def run_idle(folder: Path, *, leave_snapshot: bool) -> None:
    flags = ["--take-over", "--no-tidier"]
    seb = SebProcess(Bucket.directory(folder / "bucket"), folder / "new", flags)
    try:
        seconds = await seb.ready(120)
        print(f"a start: ready after {seconds:.1f} s, idle with {seb.rss_bytes() / 1e6:.0f} MB")
        if leave_snapshot:
            seb.process.terminate()
            await seb.ended()
    finally:
        seb.kill()


async def main(folder: Path) -> None:
    await fill(folder)
    await rebuild(folder, "from the first entry")
    await run_idle(folder, leave_snapshot=True)
    await rebuild(folder, "from a snapshot")
    await run_idle(folder, leave_snapshot=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else scratch)))
