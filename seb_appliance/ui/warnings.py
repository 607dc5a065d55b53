"""What an operator should know now, in sentences that say what to do."""

from __future__ import annotations

from collections.abc import Sequence

from seb_appliance.broker.status import Telemetry
from seb_appliance.ui.units import count, span


def warnings(now: Telemetry, problems: Sequence[str]) -> list[str]:
    """`problems`: why the appliance is not ready, as /readyz says it."""
    status = now.status
    bucket, waiting = status.bucket, status.waiting
    found = [problem[:1].upper() + problem[1:].rstrip(".") + "." for problem in problems]
    if bucket.failing_s is not None and not problems:
        found.append(
            f"The bucket has not answered for {span(bucket.failing_s)}: "
            f"{bucket.failure}. Records wait; nothing acknowledged is lost."
        )
    for failure, sentence in (
        (status.state.failure, "SQLite does not follow"),
        (status.snapshots.failure, "The last snapshot could not be made"),
        (status.tidier.failure, "The tidier's last attempt came to nothing"),
        (status.key_index.failure, "The key index does not follow"),
    ):
        if failure:
            found.append(f"{sentence}: {failure.rstrip('.')}.")
    found += [
        f"A background task failed and was restarted ({task.name}: {task.failure.rstrip('.')}). "
        "Look at the log."
        for task in status.background
        if task.failing
    ]
    if status.tidier.overdue_s:
        found.append(
            f"The tidier is behind: journal entries should have been merged "
            f"{span(status.tidier.overdue_s)} ago. Look at the storage page and at the log."
        )
    if now.cache.damaged:
        found.append(
            f"{count(now.cache.damaged)} reads failed their checksum and were not served. "
            "Look at the log, and at the disk of the cache."
        )
    if waiting.pending_bytes > 0.8 * waiting.pending_bytes_max:
        found.append("Almost all memory for waiting records is used; producers will be refused.")
    found += [
        f"{count(share.used)} of {count(share.limit)} {share.name.replace('_', ' ')} are in use, "
        f"{count(share.largest_held)} of them by {share.largest or 'operators'}."
        for share in status.shares
        if share.used > 0.8 * share.limit and not share.forgets
    ]
    if status.journal.durability == "memory":
        found.append("The bucket is this process's memory: everything is gone when it ends.")
    return found
