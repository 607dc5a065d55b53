"""Who works at the appliance while it suffers: producers of four kinds, readers, committers, and
one who gives and takes API keys. Each is one loop, from a seed.

A value is `{"producer": p, "n": n, "prev": sha256 of the value before it}`: every write takes
fresh numbers, so that a value which comes twice is the appliance's doing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Awaitable, Callable

from seb_appliance.client.records import decode_batches
from tests.proof.calling import Caller, Crowd
from tests.proof.history import Commit, History, KeyCall, Part, Read, Record, Write

TOPICS = ("orders", "iot.kitchen")
KEYED = "keyed"
KEYS = 12
GOES_BACK = 0.1  # of the answers to a reader that end at the log end
READ_AGAIN_MAX = 10_000  # records by who went back: a longer log is no more work
Worker = Callable[[Crowd, int], Awaitable[None]]


class Chain:
    """The values of one producer, each with the hash of the one before."""

    def __init__(self, name: str, padding: int = 0) -> None:
        self._name, self._n, self._previous = name, 0, ""
        self._padding = "x" * padding

    def next(self, **more: int) -> bytes:
        """`more`: members of the value."""
        value = {"producer": self._name, "n": self._n, "prev": self._previous[:16], **more}
        if self._padding:
            value["pad"] = self._padding
        found = json.dumps(value, separators=(",", ":")).encode()
        self._n, self._previous = self._n + 1, hashlib.sha256(found).hexdigest()
        return found


def dice_of(crowd: Crowd, name: str) -> random.Random:
    return random.Random(f"{crowd.seed}/{name}")


def as_json(records: tuple[Record, ...]) -> list[dict[str, str | None]]:
    """As the members of a JSON body. Our values are texts."""
    found = []
    for record in records:
        row: dict[str, str | None] = {
            "value": None if record.value is None else record.value.decode()
        }
        if record.key is not None:
            row["key"] = record.key
        found.append(row)
    return found


async def _write(
    caller: Caller, write: Write, path: str, body: object, **headers: str
) -> dict | None:  # type: ignore[type-arg]
    caller.crowd.history.writes.append(write)
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    told = await caller.make(write, "POST", path, body, named)
    if told is not None:
        caller.crowd.latencies_s.append(write.answered_s - write.sent_s)
    return told


async def produce(crowd: Crowd, number: int) -> None:
    """Plain: a write that is not acknowledged is not repeated."""
    name = f"plain-{number}"
    caller, dice, chain = Caller(crowd, name, number), dice_of(crowd, name), Chain(name)
    while not crowd.stopping.is_set():
        records = tuple(Record(chain.next()) for _ in range(dice.choice((1, 1, 1, 4))))
        part = Part(dice.choice(TOPICS), records)
        path = f"/v1/topics/{part.topic}/records"
        write = Write(*caller.begin(), parts=(part,))
        told = await _write(caller, write, path, {"records": as_json(records)})
        if told is not None:
            part.offset = told["offset"]
    caller.close()


async def produce_again(crowd: Crowd, number: int) -> None:
    """Idempotent: each seq is sent until it is acknowledged, and now and then once more."""
    name = f"idempotent-{number}"
    caller, dice, chain = Caller(crowd, name, number), dice_of(crowd, name), Chain(name)
    topic, epoch, seq = TOPICS[number % len(TOPICS)], 0, 0
    while not crowd.stopping.is_set():
        records = tuple(Record(chain.next()) for _ in range(dice.choice((1, 3))))
        path, repeats = f"/v1/topics/{topic}/records", dice.random() < 0.1
        while not crowd.stopping.is_set():
            part = Part(topic, records)
            write = Write(*caller.begin(), parts=(part,), sequence=(name, epoch, seq))
            headers = {"Producer_Id": name, "Producer_Epoch": str(epoch), "Producer_Seq": str(seq)}
            told = await _write(caller, write, path, {"records": as_json(records)}, **headers)
            if write.answer == "sequence_gap":  # what it was told is lost: the checker will say so
                epoch, seq = epoch + 1, -1
                break
            if told is None:
                continue
            part.offset = -1 if told["offset"] is None else told["offset"]
            if not repeats:
                break
            repeats = False
        seq += 1
    caller.close()


async def transact(crowd: Crowd, number: int) -> None:
    """Both topics and a commit at once, or none of it."""
    name = f"transaction-{number}"
    caller, chain = Caller(crowd, name, number), Chain(name)
    end = 0  # exclusive, of what it knows to be in the first topic
    committed = 0
    while not crowd.stopping.is_set():
        parts = tuple(Part(topic, (Record(chain.next()),)) for topic in TOPICS)
        write = Write(*caller.begin(), parts=parts)
        body: dict[str, object] = {"produce": {p.topic: as_json(p.records) for p in parts}}
        commit = None
        if end > committed:
            body["commit"] = {"group": name, "offsets": {TOPICS[0]: end}}
            commit = Commit(*caller.begin(), group=name, topic=TOPICS[0], offset=end)
            crowd.history.commits.append(commit)
            committed = end
        told = await _write(caller, write, "/v1/transactions", body)
        if commit is not None:
            commit.port, commit.sent_s, commit.answered_s = (
                write.port,
                write.sent_s,
                write.answered_s,
            )
            commit.outcome, commit.answer = write.outcome, write.answer
        if told is not None:
            for part in parts:
                part.offset = told["produced"][part.topic]["offset"]
            end = parts[0].offset + 1
    caller.close()


async def produce_keyed(crowd: Crowd, number: int) -> None:
    """Record keys of its own, each written and deleted again and again."""
    name = f"keyed-{number}"
    caller, dice, chain = Caller(crowd, name, number), dice_of(crowd, name), Chain(name)
    while not crowd.stopping.is_set():
        key = f"{number}.{dice.randrange(KEYS)}"
        record = Record(None if dice.random() < 0.2 else chain.next(), key)
        part = Part(KEYED, (record,))
        write = Write(*caller.begin(), parts=(part,))
        path = f"/v1/topics/{KEYED}/records"
        told = await _write(caller, write, path, {"records": as_json(part.records)})
        if told is not None:
            part.offset = told["offset"]
    caller.close()


async def read(crowd: Crowd, number: int) -> None:
    """Follows one topic from its beginning, waits at its end, and goes back now and then, to where
    the tidier is, for some records; as JSON, or as record batches, which are sent as they are
    stored and cut by who reads."""
    topic = (*TOPICS, KEYED)[number % 3]
    name, offset, journey, again_to = f"reader-{number}", 0, 0, None
    caller, dice = Caller(crowd, name, number), dice_of(crowd, name)
    while not crowd.stopping.is_set():
        found = Read(*caller.begin(), topic=topic, offset=offset, journey=journey)
        crowd.history.reads.append(found)
        form = dice.choice(("json", "batch"))
        query = f"offset={offset}&wait=300ms&max_records=1000&format={form}"
        answer = await caller.ask(found, "GET", f"/v1/topics/{topic}/records?{query}")
        if answer is not None:
            found.next_offset = offset = int(answer.headers["seb-next-offset"])
            found.log_end_offset = int(answer.headers["seb-log-end-offset"])
            found.records = tuple(
                records_of(answer.json()) if form == "json" else in_batches(found, answer.body)
            )
            if offset == found.log_end_offset and dice.random() < GOES_BACK:
                offset, journey = dice.randrange(offset + 1), journey + 1
                again_to = offset + READ_AGAIN_MAX
            elif again_to is not None and offset >= again_to:
                offset, journey, again_to = found.log_end_offset, journey + 1, None
    caller.close()


def records_of(page: dict) -> list[tuple[int, Record]]:  # type: ignore[type-arg]
    """What a page of records as JSON holds."""
    return [
        (row["offset"], Record(None if row["value"] is None else row["value"].encode(), row["key"]))
        for row in page["records"]
    ]


def in_batches(read: Read, body: bytes) -> list[tuple[int, Record]]:
    """What an answer of record batches holds, to those who use the Python client."""
    return [
        (found.offset, Record(found.value, None if found.key is None else found.key.decode()))
        for found in decode_batches(read.topic, body, read.offset, read.next_offset)
    ]


async def commit(crowd: Crowd, number: int) -> None:
    """Reads its group's next records and commits; a reset takes it back now and then."""
    name = f"committer-{number}"
    caller, dice = Caller(crowd, name, number), dice_of(crowd, name)
    topic = TOPICS[number % len(TOPICS)]
    place = {"group": name, "topic": topic}
    while not crowd.stopping.is_set():
        look = Commit(*caller.begin(), **place, kind="look")
        crowd.history.commits.append(look)
        query = f"max_records={dice.randint(1, 50)}"
        page = await caller.make(look, "GET", f"/v1/groups/{name}/topics/{topic}/records?{query}")
        if page is None:
            continue
        look.offset = page["committed_offset"] or 0
        if dice.random() < 0.05 and look.offset > 10:
            call = Commit(*caller.begin(), **place, offset=look.offset - 7, kind="reset")
            path, body = "reset", {"topics": [topic], "to": call.offset}
        elif page["next_offset"] > look.offset:
            call = Commit(*caller.begin(), **place, offset=page["next_offset"])
            path, body = "offsets", {"offsets": {topic: call.offset}}
        else:
            continue
        crowd.history.commits.append(call)
        method = "POST" if path == "reset" else "PUT"
        await caller.make(call, method, f"/v1/groups/{name}/{path}", body)
    caller.close()


async def give_and_take_keys(crowd: Crowd, number: int) -> None:
    """Makes an API key, uses it, revokes it, and tries those that were revoked again."""
    name = f"keys-{number}"
    caller, dice = Caller(crowd, name, number), dice_of(crowd, name)
    secrets: dict[str, str] = {}
    uses = f"/v1/topics/{TOPICS[0]}"
    while not crowd.stopping.is_set():
        made = KeyCall(*caller.begin())
        grants = [{"operation": "consume", "topics": "**"}]
        told = await caller.make(made, "POST", "/v1/api-keys", {"name": name, "grants": grants})
        if told is None:
            continue
        own = told["api_key_id"]
        secrets[own] = told["secret"]
        revoke = KeyCall(*caller.begin(), api_key_id=own, kind="revoke")
        crowd.history.key_calls.append(revoke)
        await caller.make(revoke, "DELETE", f"/v1/api-keys/{own}")
        for tried in (own, dice.choice(sorted(secrets))):
            use = KeyCall(*caller.begin(), api_key_id=tried, kind="use")
            crowd.history.key_calls.append(use)
            await caller.make(use, "GET", uses, key=secrets[tried])
    caller.close()


CREW: dict[Worker, int] = {
    produce: 3,
    produce_again: 2,
    transact: 1,
    produce_keyed: 1,
    read: 3,
    commit: 1,
    give_and_take_keys: 1,
}


def start(crowd: Crowd, crew: dict[Worker, int] | None = None) -> list[asyncio.Task[None]]:
    """All of the crew, so many of each kind."""
    return [
        asyncio.create_task(worker(crowd, number))  # type: ignore[arg-type]
        for worker, count in (crew or CREW).items()
        for number in range(count)
    ]


def empty_history() -> History:
    return History(compacted={KEYED})
