"""The tidier: rewrites objects when it is due, and lets the writer switch to the new ones.

It does one step at a time; after each step the bucket is complete. While nothing is due it sends
no requests to the bucket.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.upkeep.rewrite_jobs import Asked, RewriteJob, Rewriter, Rewritten
from seb_appliance.broker.upkeep.tidying import SwitchRefusedError, Tidying
from seb_appliance.clock import Clock
from seb_appliance.errors import CorruptObjectError, FencedError, SebError
from seb_appliance.failpoints import Failpoints
from seb_appliance.ops.jobs.snapshot_job import SnapshotKeeper
from seb_appliance.quantities import counted
from seb_appliance.storage.objects.cleanup import BucketCleaner
from seb_appliance.tasks import Job
from seb_appliance.traces import Span, Traces

_log = logging.getLogger(__name__)

_RESTS_S_MAX: Final = 10.0  # after a job, as long as it took: half of a core at most
_AFTER_FAILURE_S: Final = 30.0
_STRAYS_EVERY_S: Final = 24 * 3600.0


@dataclass(slots=True)
class TidierCounters:
    """Since the start. `compactions` of topics, and the records that they removed."""

    jobs: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    topics_trimmed: int = 0
    compactions: int = 0
    records_removed: int = 0
    objects_removed: int = 0
    entries_removed: int = 0


class TidierKeeper(Job):
    """`failure`: why the last attempt failed, "" if it succeeded. `doing`: the current step, "" for
    none."""

    name = "tidier"

    def __init__(
        self,
        tidying: Tidying,
        rewriter: Rewriter,
        cleaner: BucketCleaner,
        snapshots: SnapshotKeeper,
        clock: Clock,
        failpoints: Failpoints,
        traces: Traces | None = None,
    ) -> None:
        self._traces = traces
        self.counters = TidierCounters()
        self.failure = self.doing = ""
        self._tidying = tidying
        self._rewriter = rewriter
        self._cleaner = cleaner
        self._snapshots = snapshots
        self._clock = clock
        self._failpoints = failpoints
        self._retain_s = 0.0
        self._strays_s = 0.0
        self._measured = False
        self._cleaned: tuple[int, int] | None = None  # when entries were removed last

    @property
    def asked(self) -> Asked:
        """The child's requests to the bucket."""
        return self._rewriter.asked

    @property
    def overdue_s(self) -> float:
        """For how long entries have waited that should have been merged; 0 if there are none."""
        return self._tidying.overdue_s if self._task is not None else 0.0

    async def close(self) -> None:
        await super().close()
        await self._rewriter.close()

    async def _run(self) -> None:
        while True:
            rest_s = limits.TIDY_EVERY_S
            began_s = self._clock.monotonic_s()
            try:
                if await self.step():
                    rest_s = min(self._clock.monotonic_s() - began_s, _RESTS_S_MAX)
                self.failure = ""
            except FencedError as error:  # readers and writers get this error, too
                self.failure = error.detail
                return
            except (SebError, SwitchRefusedError, OSError) as error:
                # Nothing is lost: the old objects stay in use. Counted, shown, tried again.
                self._failed(str(error))
                rest_s = _AFTER_FAILURE_S
            except Exception as error:
                self._failed(f"{type(error).__name__}: {error}")
                self.doing = ""
                # The supervisor pauses only 1 s after a run that was long.
                await self._clock.sleep(_AFTER_FAILURE_S)
                raise
            finally:
                self.doing = ""
            await self._clock.sleep(rest_s)

    def _failed(self, why: str) -> None:
        self.counters.failures += 1
        self.failure = f"{self.doing or 'tidying'} failed: {why}"
        _log.warning(self.failure)

    async def step(self) -> bool:
        """Do the next step that is due; False if there is none."""
        if not self._tidying.is_settled:
            return False
        return (
            await self._retain()
            or await self._condemn_strays()
            or await self._condemn(self._tidying.unused())
            or await self._remove_objects()
            or await self._remove_entries()
            or await self._check_handed_over()
            or await self._rewrite()
        )

    async def _retain(self) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s < self._retain_s:
            return False
        self._retain_s = now_s + limits.RETENTION_EVERY_S
        self.doing = "retention"
        if not self._measured:
            await self._tidying.measure()
            self._measured = True
        trimmed = await self._tidying.retain()
        self.counters.topics_trimmed += trimmed
        return trimmed > 0

    async def _rewrite(self) -> bool:
        job = await self._tidying.next_job()
        if job is None:
            return False
        self.doing = _words(job)
        began_us = self._clock.wall_us()
        try:
            made = await self._rewriter.rewrite(job)
            await self._switch(job, made)
        except BaseException as error:
            self._strays_s = 0.0  # new objects are garbage, unless the switch succeeds later
            if not isinstance(error, SwitchRefusedError):
                self._tidying.compactions.failed(job.compactions)
            raise
        self._tidying.compactions.done(job.compactions)
        self.counters.jobs += 1
        self.counters.bytes_written += made.bytes_written
        if self._traces is not None:
            about: dict[str, str | int] = {
                "seb.doing": self.doing,
                "seb.bytes_read": made.bytes_read,
                "seb.bytes_written": made.bytes_written,
            }
            self._traces.add(Span("tidy", began_us, self._clock.wall_us(), about))
        return True

    async def _check_handed_over(self) -> bool:
        """Check a compaction that was made outside, and switch to it."""
        external = self._tidying.external
        found = external.next()
        if found is None:
            return False
        self.doing = f"checking a compaction of {found.topic} that was made outside"
        try:
            if not self._tidying.stored.keys().issuperset(m.key for m in found.job.made):
                await self._tidying.check_unchanged(found.job)
                await self._switch(found.job, await self._rewriter.rewrite(found.job))
        except (SwitchRefusedError, CorruptObjectError) as error:
            external.done(found, "refused", str(error))
        except BaseException as error:
            if self._tidying.is_settled:  # else it may still take effect, and is checked then
                external.failed(found, str(error))
            raise
        else:
            external.done(found, "in_force")
        self._strays_s = 0.0  # new objects that are not in use are garbage now
        return True

    async def _switch(self, job: RewriteJob, made: Rewritten) -> None:
        self._failpoints.reach("K16")
        await self._tidying.switch(job, made)
        self._failpoints.reach("K17")
        self.counters.compactions += len(job.compactions)
        self.counters.records_removed += made.records_removed
        self.counters.bytes_read += made.bytes_read

    async def _condemn_strays(self) -> bool:
        """Objects that a job, or a child of an earlier start, left unused."""
        now_s = self._clock.monotonic_s()
        if now_s < self._strays_s:
            return False
        self.doing = "looking for strays"
        strays = self._tidying.strays(await self._cleaner.list_objects())
        if not self._tidying.is_settled:
            return False
        if not strays:
            self._strays_s = now_s + _STRAYS_EVERY_S
        return await self._condemn(strays)

    async def _condemn(self, keys: list[str]) -> bool:
        if keys:
            self.doing = f"condemning {counted(len(keys), 'object')}"
            await self._tidying.condemn(keys)
        return bool(keys)

    async def _remove_objects(self) -> bool:
        keys = self._tidying.removable()
        if not keys:
            return False
        self.doing = f"removing {counted(len(keys), 'object')}"
        await self._cleaner.delete_objects(keys)
        await self._tidying.removed(keys)
        self.counters.objects_removed += len(keys)
        return True

    async def _remove_entries(self) -> bool:
        """Remove tidied entries at or below the floor; only when the lower one of both may have
        moved."""
        state = self._tidying.tidied_seq, self._snapshots.newest_seq
        if self._cleaned is not None:
            tidied_seq, newest_seq = self._cleaned
            was_floor = self._cleaner.removed_until < tidied_seq
            if newest_seq == state[1] and (was_floor or tidied_seq == state[0]):
                return False
        self.doing = "removing journal entries"
        removed = await self._cleaner.delete_entries(
            self._tidying.tidied_seq, self._tidying.writers, limits.ENTRIES_REMOVED_AT_ONCE
        )
        self._tidying.untidied.gone(self._cleaner.removed_until)
        self.counters.entries_removed += removed
        if removed < limits.ENTRIES_REMOVED_AT_ONCE:
            self._cleaned = state
        return removed > 0


def _words(job: RewriteJob) -> str:
    if job.compactions:
        first, others = job.compactions[0], len(job.compactions) - 1
        size_mb = sum(place.length for place in job.sections) / limits.MIB
        beside = f" and {others} more topics" if others else ""
        return f"compacting {first.name}{beside}: {size_mb:,.0f} MiB"
    if job.entries:
        return f"merging entries {job.entries[0].seq} to {job.entries[-1].seq}"
    return f"merging {counted(len(job.inputs), 'object')}"
