"""The tidier's child process: rewrites objects for its parent, with a low priority.

It is a process because threads would share the writer's core. It only reads and PUTs; only the
parent appends and deletes. It ends when its pipe is closed.
"""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from typing import Final

from seb_appliance.broker.upkeep.rewrite_jobs import RewriteJob
from seb_appliance.clock import SystemClock
from seb_appliance.errors import CorruptObjectError, SebError
from seb_appliance.ops.host.runtime import keep_freed_memory
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.jobs.job_process import Hello, first_frame, requests_of, serve
from seb_appliance.ops.jobs.tidier_process import Answer
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.objects.disk_cache import EntriesOnDisk
from seb_appliance.storage.objects.rewriting import ObjectRewriter
from seb_appliance.storage.stores.counted import CountedStore

NICE: Final = 10
PATIENCE_S: Final = 60.0


def main() -> None:
    os.nice(NICE)
    keep_freed_memory()  # one heap for all threads: it takes two thirds of what one each takes
    asyncio.run(_serve())


async def _serve() -> None:
    reader, hello = await first_frame(Hello)
    store = make_store(hello.settings)
    reads = store if hello.cache is None else EntriesOnDisk(store, hello.cache)
    retrying = RetryingStore(reads, SystemClock(), random.random, give_up_after_s=PATIENCE_S)
    rewriter = ObjectRewriter(retrying, hello.mode, hello.settings.data)
    await serve(reader, RewriteJob, partial(_answer, rewriter, store))


async def _answer(rewriter: ObjectRewriter, store: CountedStore, job: RewriteJob) -> Answer:
    before, received = requests_of(store), store.counts.bytes_received
    try:
        answer = Answer(made=await rewriter.rewrite(job))
    except CorruptObjectError as error:
        answer = Answer(failure=error.detail, is_damage=True)
    except (SebError, OSError) as error:
        answer = Answer(failure=str(error))
    answer.requests = dict(requests_of(store) - before)
    answer.received_bytes = store.counts.bytes_received - received
    return answer


if __name__ == "__main__":
    main()
