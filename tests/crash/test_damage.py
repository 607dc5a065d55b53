"""Bytes that go bad on the way, in the cache, in the bucket, in SQLite: never served."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.arena import TOPICS, Arena, directory_arena, s3_arena
from tests.support.faultproxy import Action, Rule
from tests.support.load import Connection, metric, read_topic
from tests.support.process import SebProcess

pytestmark = pytest.mark.slow

SEEN = ["flipped everywhere", "cut short", "emptied"]
DAMAGES = ["flipped", *SEEN, "without its log"]


async def restarted(arena: Arena, seb: SebProcess, *, cache: bool) -> SebProcess:
    """Another process on the same data, so that nothing lies in memory any more."""
    seb.process.terminate()
    assert await seb.ended() == 0, seb.shown
    if not cache:
        for path in cache_files(seb):
            path.unlink()
    again = arena.start(seb.data.name)
    await again.ready()
    arena.serve_from(again)
    return again


def cache_files(seb: SebProcess) -> list[Path]:
    return [path for path in (seb.data / "cache").glob("*/*") if path.is_file()]


async def damaged_reads(seb: SebProcess) -> float:
    connection = Connection(seb.port)
    answer = await connection.request("GET", "/metrics")
    connection.close()
    return metric(answer.body, "seb_damaged_reads_total")


@pytest.mark.parametrize("action", ["flip", "truncate", "reset"])
async def test_an_answer_damaged_on_its_way_is_fetched_again(
    action: Action, tmp_path: Path
) -> None:
    async with s3_arena("A", tmp_path) as arena:
        assert arena.proxy is not None
        seb = arena.start()
        await seb.ready()
        await arena.begin(seb)
        await arena.load.stop()
        again = await restarted(arena, seb, cache=False)
        arena.proxy.add(Rule(action, method="GET", match="/journal/", count=2))
        await arena.verdict(again)
        assert arena.proxy.faults[action] == 2
        assert await damaged_reads(again) == (2 if action == "flip" else 0)


async def test_a_damaged_file_of_the_cache_is_fetched_again(tmp_path: Path) -> None:
    async with s3_arena("A", tmp_path) as arena:
        seb = arena.start()
        await seb.ready()
        await arena.begin(seb)
        await arena.load.until_acked(200)
        await arena.load.stop()
        again = await restarted(arena, seb, cache=True)
        files = cache_files(again)
        assert len(files) > 5
        for i, path in enumerate(sorted(files)):
            body = bytearray(path.read_bytes())
            if i % 3 == 0:
                path.unlink()
            elif i % 3 == 1:
                path.write_bytes(body[: len(body) // 2])
            else:
                body[-9:] = bytes(byte ^ 1 for byte in body[-9:])
                path.write_bytes(body)
        await arena.verdict(again)
        assert await damaged_reads(again) > 0


@pytest.mark.parametrize("damage", ["changed", "gone"])
async def test_a_damaged_object_of_the_bucket_is_told_by_its_offsets_and_harms_no_other(
    damage: str, tmp_path: Path
) -> None:
    async with s3_arena("A", tmp_path) as arena:
        assert arena.server is not None
        seb = arena.start()
        await seb.ready()
        key = seb.admin_key
        connection = Connection(seb.port, key)
        for topic in ("broken", "whole", "broken"):
            answer = await connection.request("POST", f"/v1/topics/{topic}/records", b"value")
            assert answer.status == 201
        connection.close()
        entries = sorted(name for name in arena.server.objects if "/journal/" in name)
        broken = next(name for name in entries if b"broken" in arena.server.objects[name])
        body = bytearray(arena.server.objects[broken])
        body[-9] ^= 1
        again = await restarted(arena, seb, cache=False)
        arena.server.objects[broken] = bytes(body)
        if damage == "gone":
            arena.server.remove(broken)
        connection = Connection(again.port, key)
        answer = await connection.request("GET", "/v1/topics/broken/records")
        assert (answer.status, answer.code) == (500, "corrupt_object")
        assert "Offsets 0 to 0" in answer.json()["detail"]
        connection.close()
        assert await read_topic(again.port, key, "broken", 1) == [(1, b"value")]
        assert await read_topic(again.port, key, "whole") == [(0, b"value")]


def damage_state(path: Path, damage: str, dice: random.Random) -> None:
    body = bytearray(path.read_bytes())
    if damage.startswith("flipped"):
        for _ in range(1 if damage == "flipped" else len(body) // 512):
            body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
        path.write_bytes(body)
    elif damage == "cut short":
        path.write_bytes(body[: dice.randrange(1, len(body))])
    elif damage == "emptied":
        path.write_bytes(b"")
    else:
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


async def test_a_damaged_state_file_is_rebuilt_from_the_bucket(tmp_path: Path) -> None:
    """Killed, so that there is a log of SQLite beside the file; then damaged; then started."""
    dice = random.Random("state")
    async with directory_arena("A", tmp_path) as arena:
        seb = arena.start()
        await seb.ready()
        await arena.begin(seb)
        for damage in DAMAGES:
            await arena.load.until_acked(20)
            seb.kill()
            damage_state(seb.data / "state.sqlite", damage, dice)
            seb = arena.start()
            arena.serve_from(seb)
            await seb.ready()
            # One bit may lie where nothing is; a lost log leaves an older, sound state.
            if damage in SEEN:
                assert "was damaged" in seb.shown
        await arena.load.until_acked(5, seb.port)
        await arena.verdict(seb)
        for topic in TOPICS:
            assert await read_topic(seb.port, arena.load.doors.key, topic)
        await arena.stop_and_compare(seb)
