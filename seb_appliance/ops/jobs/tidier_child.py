"""The tidier's child process: rewrites objects for its parent.

It is a process because threads would share the writer's core.
"""

from __future__ import annotations

from seb_appliance.broker.upkeep.rewrite_jobs import RewriteJob, Rewritten
from seb_appliance.ops.jobs.job_process import serve
from seb_appliance.ops.jobs.store_jobs import JobAnswer, answer, begin, run
from seb_appliance.storage.objects.rewriting import ObjectRewriter


async def _serve() -> None:
    reader, hello, store, bucket = await begin()
    rewriter = ObjectRewriter(bucket, hello.mode, hello.settings.data)

    async def rewrite(job: RewriteJob) -> JobAnswer[Rewritten]:
        return await answer(store, rewriter.rewrite(job))

    await serve(reader, RewriteJob, rewrite)


if __name__ == "__main__":
    run(_serve)
