"""The process that writes lake tables for its parent, with a low priority.

Only it imports pyarrow. It reads and PUTs; only the parent appends. It ends with its pipe.
"""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from pathlib import Path
from typing import Final

from seb_appliance.broker.lake.jobs import WriteJob
from seb_appliance.clock import SystemClock
from seb_appliance.errors import CorruptObjectError, SebError
from seb_appliance.failpoints import Failpoints
from seb_appliance.lake.table_formats import FORMATS
from seb_appliance.ops.host.runtime import keep_freed_memory
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.jobs.job_process import Hello, first_frame, requests_of, serve
from seb_appliance.ops.jobs.lake.process import FilesAhead, GatheredFiles, TableAnswer, TableJob
from seb_appliance.ops.jobs.lake.work import TableWork
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.objects.disk_cache import EntriesOnDisk
from seb_appliance.storage.stores.counted import CountedStore

NICE: Final = 10
PATIENCE_S: Final = 60.0


def main() -> None:
    os.nice(NICE)
    keep_freed_memory()
    asyncio.run(_serve())


async def _serve() -> None:
    reader, hello = await first_frame(Hello)
    store = make_store(hello.settings)
    reads = store if hello.cache is None else EntriesOnDisk(store, hello.cache)
    retrying = RetryingStore(reads, SystemClock(), random.random, give_up_after_s=PATIENCE_S)
    work = TableWork(retrying, hello.mode, FORMATS, Failpoints(hello.settings.fail))
    answer = partial(_answer, work, store, GatheredFiles())
    await serve(reader, FilesAhead | TableJob, answer)  # type: ignore[arg-type]


async def _answer(
    work: TableWork, store: CountedStore, files: GatheredFiles, asked: FilesAhead | TableJob
) -> TableAnswer:
    if isinstance(asked, FilesAhead):
        files.add(asked)
        return TableAnswer()
    before, received = requests_of(store), store.counts.bytes_received
    answer = TableAnswer()
    try:
        job = files.whole(asked)
        answer.made = await (work.write(job) if isinstance(job, WriteJob) else work.print(job))
    except CorruptObjectError as error:
        answer = TableAnswer(failure=error.detail, is_damage=True)
    except (SebError, OSError) as error:
        answer = TableAnswer(failure=str(error))
    answer.requests = dict(requests_of(store) - before)
    answer.received_bytes = store.counts.bytes_received - received
    answer.rss_bytes = _most_memory_bytes()
    return answer


def _most_memory_bytes() -> int:
    """0 where it is not known. The kernel's ru_maxrss would count the parent's memory, too, as it
    was when this process was made."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(lines[0].split()[1]) * 1_024 if lines else 0


if __name__ == "__main__":
    main()
