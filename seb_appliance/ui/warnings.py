"""What an operator should know now, in sentences that say what to do."""

from __future__ import annotations

from collections.abc import Sequence

from seb_appliance.ui.facts import Facts
from seb_appliance.ui.units import count, span


def warnings(facts: Facts, problems: Sequence[str]) -> list[str]:
    """`problems`: why the appliance is not ready, as /readyz says it."""
    found = [problem[:1].upper() + problem[1:].rstrip(".") + "." for problem in problems]
    if facts.bucket_failing_s is not None and not problems:
        found.append(
            f"The bucket has not answered for {span(facts.bucket_failing_s)}: "
            f"{facts.bucket_failure}. Records wait; nothing acknowledged is lost."
        )
    for failure, sentence in (
        (facts.state_failure, "SQLite does not follow"),
        (facts.snapshot_failure, "The last snapshot could not be made"),
        (facts.tidier_failure, "The tidier's last attempt came to nothing"),
        (facts.key_index_failure, "The key index does not follow"),
    ):
        if failure:
            found.append(f"{sentence}: {failure.rstrip('.')}.")
    found += [
        f"A background task failed and was begun again ({failure.rstrip('.')}). Look at the log."
        for failure in facts.background_failures
    ]
    if facts.tidier_overdue_s:
        found.append(
            f"The tidier is behind: journal entries should have been merged "
            f"{span(facts.tidier_overdue_s)} ago. Look at the storage page and at the log."
        )
    if facts.damaged_reads:
        found.append(
            f"{count(facts.damaged_reads)} reads failed their checksum and were not served. "
            "Look at the log, and at the disk of the cache."
        )
    if facts.pending_bytes > 0.8 * facts.pending_bytes_max:
        found.append("Almost all memory for waiting records is used; producers will be refused.")
    if facts.durability == "memory":
        found.append("The bucket is this process's memory: everything is gone when it ends.")
    return found
