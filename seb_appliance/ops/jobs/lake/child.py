"""The process that writes lake tables for its parent. Only it imports pyarrow."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from msgspec.structs import asdict

from seb_appliance.broker.lake.jobs import Printed, PrintJob, WriteJob, Written
from seb_appliance.errors import CorruptObjectError
from seb_appliance.failpoints import Failpoints
from seb_appliance.lake.table_formats import FORMATS
from seb_appliance.ops.host.memory import needed_bytes, take_no_more
from seb_appliance.ops.host.scratch import scratch_folder
from seb_appliance.ops.jobs.job_process import serve
from seb_appliance.ops.jobs.lake.process import FilesAhead, GatheredFiles, TableAnswer, TableJob
from seb_appliance.ops.jobs.lake.work import TableWork
from seb_appliance.ops.jobs.store_jobs import answer, begin, run
from seb_appliance.storage.stores.counted import CountedStore


async def _serve() -> None:
    reader, hello, store, bucket = await begin()
    work = TableWork(bucket, hello.mode, FORMATS, Failpoints(hello.settings.fail))
    done = partial(_done, work, store, GatheredFiles())
    with scratch_folder("seb-tables-") as folder:
        tempfile.tempdir = str(folder)
        await serve(reader, FilesAhead | TableJob, done)  # type: ignore[arg-type]


async def _done(
    work: TableWork, store: CountedStore, files: GatheredFiles, asked: FilesAhead | TableJob
) -> TableAnswer:
    if isinstance(asked, FilesAhead):
        files.add(asked)
        return TableAnswer()

    async def make() -> Written | Printed:
        job = files.whole(asked)
        take_no_more(_needed_bytes(job))
        if isinstance(job, PrintJob):
            return await work.print(job)
        try:
            return await work.write(job)
        except MemoryError as error:
            raise CorruptObjectError("its rows take more memory than ours can") from error

    found = await answer(store, make())
    return TableAnswer(**asdict(found), rss_bytes=_most_memory_bytes())


def _needed_bytes(job: WriteJob | PrintJob) -> int | None:
    """By a merge, whose files somebody may have replaced; None: whatever another job takes."""
    if isinstance(job, PrintJob) or not job.merged:
        return None
    return needed_bytes(one.file for one in job.touched if one.file.name in job.merged)


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
    run(_serve)
