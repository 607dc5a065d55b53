"""P17: what readers found in lake tables, against the logs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.check_records import Evidence
from tests.proof.history import Record, TableSeen
from tests.proof.violations import Violation, said


def check_tables(evidence: Evidence) -> Iterator[Violation]:
    """Every violation of P17."""
    newest_s: dict[str, dict[str, int]] = {}
    for seen in evidence.history.tables:
        if seen.topic not in evidence.history.logs:
            continue
        if seen.failure:
            yield said("P17", f"{seen.reader} cannot read the table of {seen.topic}: "
                              f"{seen.failure}")  # fmt: skip
            continue
        log = evidence.history.logs[seen.topic]
        end = log[-1][0] + 1 if log else 0
        if seen.next_offset > end or (seen.is_last and seen.next_offset < end):
            yield said("P17", f"the table of {seen.topic} says to {seen.reader} that it ends at "
                              f"{seen.next_offset}, and the log ends at {end}")  # fmt: skip
        yield from _each_once(seen)
        if evidence.whole(seen.topic):
            yield from _same(seen, log)
        else:
            if seen.topic not in newest_s:
                newest_s[seen.topic] = {one.key or "": offset for offset, one in log}
            yield from _compacted(evidence, seen, newest_s[seen.topic])


def _each_once(seen: TableSeen) -> Iterator[Violation]:
    before = -1
    for offset, record in seen.rows:
        if offset <= before or offset >= seen.next_offset:
            yield said("P17", f"{seen.reader} found {record} at {offset} of {seen.topic} after "
                              f"{before}, and {seen.next_offset} is the end")  # fmt: skip
            return
        before = offset


def _same(seen: TableSeen, log: list[tuple[int, Record]]) -> Iterator[Violation]:
    expected = [row for row in log if row[0] < seen.next_offset]
    if seen.rows == expected:
        return
    found, wanted = dict(seen.rows), dict(expected)
    wrong = [offset for offset in sorted(found.keys() | wanted.keys())
             if found.get(offset) != wanted.get(offset)]  # fmt: skip
    for offset in wrong[:1]:
        yield said("P17", f"{seen.reader} found {found.get(offset)} at {offset} of the table of "
                          f"{seen.topic}, and the log has {wanted.get(offset)}; "
                          f"{len(wrong)} such offsets")  # fmt: skip


def _compacted(evidence: Evidence, seen: TableSeen, newest: dict[str, int]) -> Iterator[Violation]:
    """Rows that a compaction removed may be there still, until their file is written anew; what
    the log has must be there unless a newer record of its key came after it."""
    rows = evidence.rows[seen.topic]
    found = dict(seen.rows)
    for offset, record in seen.rows:
        if offset in rows:
            if rows[offset] != record:
                yield said("P17", f"{seen.reader} found {record} at {offset} of the table of "
                                  f"{seen.topic}, and the log has {rows[offset]}")  # fmt: skip
        elif record.value is not None and (seen.topic, record.value) not in evidence.sent:
            yield said("P17", f"nobody sent {record}, which {seen.reader} found in the table of "
                              f"{seen.topic}")  # fmt: skip
    for offset in newest.values():
        if offset < seen.next_offset and offset not in found:
            yield said("P17", f"{seen.reader} did not find {rows[offset]}, the newest of its "
                              f"key, at {offset} of the table of {seen.topic}")  # fmt: skip
