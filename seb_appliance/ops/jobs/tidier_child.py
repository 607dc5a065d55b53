"""The tidier's child process: rewrites what its parent asks for, with little of the machine.

A process, because Python threads would share the writer's core. It only reads and PUTs; the parent
alone appends and deletes. It ends when its pipe is closed.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from typing import Final

from seb_appliance.broker.upkeep.rewrite_jobs import RewriteJob
from seb_appliance.clock import SystemClock
from seb_appliance.errors import CorruptObjectError, SebError
from seb_appliance.ops.host.runtime import keep_freed_memory
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.jobs.tidier_process import Answer, Hello, frame, read_frame
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
    reader = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    try:
        hello = await read_frame(reader, Hello)
    except asyncio.IncompleteReadError:
        return  # the parent was killed while this process started
    store = make_store(hello.settings)
    reads = store if hello.cache is None else EntriesOnDisk(store, hello.cache)
    retrying = RetryingStore(reads, SystemClock(), random.random, give_up_after_s=PATIENCE_S)
    rewriter = ObjectRewriter(retrying, hello.mode, hello.settings.data)
    asking = asyncio.create_task(read_frame(reader, RewriteJob))
    while True:
        try:
            job = await asking
        except asyncio.IncompleteReadError:
            return
        # The next frame, or the end of the pipe, ends a job that nobody waits for any more.
        asking = asyncio.create_task(read_frame(reader, RewriteJob))
        working = asyncio.create_task(_answer(rewriter, store, job))
        await asyncio.wait([asking, working], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            os._exit(0)  # threads of a store may hang on a request for long
        try:
            sys.stdout.buffer.write(frame(working.result()))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            os._exit(0)  # the parent was killed; Python would complain about what it cannot flush


async def _answer(rewriter: ObjectRewriter, store: CountedStore, job: RewriteJob) -> Answer:
    before, received = _requests(store), store.counts.bytes_received
    answer = await _answered(rewriter, job)
    answer.requests = dict(_requests(store) - before)
    answer.received_bytes = store.counts.bytes_received - received
    return answer


async def _answered(rewriter: ObjectRewriter, job: RewriteJob) -> Answer:
    try:
        return Answer(made=await rewriter.rewrite(job))
    except CorruptObjectError as error:
        return Answer(failure=error.detail, is_damage=True)
    except (SebError, OSError) as error:
        return Answer(failure=str(error))


def _requests(store: CountedStore) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in store.counts.rows:
        counts[row.kind] += row.requests
    return counts


if __name__ == "__main__":
    main()
