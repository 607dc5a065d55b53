"""What must hold between what producers were told and what the log holds.

O(n): the server gives the offsets, so they are the witness and nothing has to be searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.support.producer import Call

Log = Sequence[tuple[int, bytes]]
"""(offset, value) of each record that was read, in the order of the answers."""

_SHOWN_MAX = 10


def check(calls: Sequence[Call], log: Log, reads: Log = ()) -> None:
    """`calls` are those of one topic that was empty before; `log` is the whole topic in the end;
    `reads` is what a consumer saw on the way. Fails with a sentence for each violation."""
    found = list(violations(calls, log, reads))
    shown = "\n".join(found[:_SHOWN_MAX])
    assert not found, f"{len(found)} violations of {len(calls)} calls, {len(log)} records:\n{shown}"


def violations(calls: Sequence[Call], log: Log, reads: Log = ()) -> Iterator[str]:
    """A sentence for each violation; none when all is well."""
    call_of = {value: call for call in calls for value in call.values}
    yield from _offsets_without_gaps(log)
    yield from _only_what_was_sent(call_of, log)
    offsets: dict[bytes, int] = {}
    for offset, value in log:
        if value in offsets:
            yield f"the record at {offsets[value]} is there again at {offset}: {_short(value)}"
        offsets[value] = offset
    for call in calls:
        yield from _as_told(call, [offsets.get(value) for value in call.values])
    yield from _real_time_order(call_of, log)
    yield from _reads_hold(log, reads)


def _offsets_without_gaps(log: Log) -> Iterator[str]:
    for expected, (offset, value) in enumerate(log):
        if offset != expected:
            yield f"offset {offset} stands where {expected} should: {_short(value)}"
            return


def _only_what_was_sent(call_of: dict[bytes, Call], log: Log) -> Iterator[str]:
    for offset, value in log:
        if value not in call_of:
            yield f"nobody sent the record at {offset}: {_short(value)}"


def _as_told(call: Call, places: list[int | None]) -> Iterator[str]:
    """`places`: the offset of each of the call's records, None where it is not in the log."""
    name = f"call {_short(call.values[0])} ({call.outcome}, {call.answer})"
    nowhere: list[int | None] = [None] * len(places)
    if call.outcome == "refused" and places != nowhere:
        yield f"{name} was refused, and is at {places}"
    elif call.outcome == "acked" and places != _row(call.offset, len(places)):
        yield f"{name} was acknowledged at {call.offset}, and is at {places}"
    elif call.outcome == "unknown":
        together = nowhere if places[0] is None else _row(places[0], len(places))
        if places != together:
            yield f"{name} is there in part, or torn: {places}"


def _row(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def _real_time_order(call_of: dict[bytes, Call], log: Log) -> Iterator[str]:
    """What was sent after an acknowledgement lies behind what was acknowledged. This holds each
    producer's own order as well: it sends after its last call was answered."""
    earliest_answer_s = float("inf")  # of the acknowledged calls at higher offsets
    for offset, value in reversed(log):
        call = call_of.get(value)
        if call is None:
            continue
        if call.sent_s > earliest_answer_s:
            yield f"the record at {offset} was sent after one behind it was acknowledged"
        if call.outcome == "acked":
            earliest_answer_s = min(earliest_answer_s, call.answered_s)


def _reads_hold(log: Log, reads: Log) -> Iterator[str]:
    """What was served once is served for ever, and in order."""
    for i, (offset, value) in enumerate(reads):
        if offset >= len(log) or log[offset][1] != value:
            yield f"a consumer was served {_short(value)} at {offset}, which is not there any more"
        elif i and offset != reads[i - 1][0] + 1:
            yield f"a consumer was served offset {offset} after {reads[i - 1][0]}"


def _short(value: bytes) -> str:
    return value[:48].decode(errors="replace")
