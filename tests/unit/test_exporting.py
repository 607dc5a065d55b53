"""`seb export`: what comes out is what the Go broker would have written."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.cli import run
from seb_appliance.client.records import Record
from seb_appliance.clock import SystemClock
from seb_appliance.formats import batch_v1
from seb_appliance.protocols.go.writing import OldTopicWriter
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.stores.directory import DirectoryStore
from seb_appliance.storage.stores.memory import MemoryStore
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.old_buckets import FIXTURE, OldPlace

GO = "--format=seb-v1"


async def exported(running: RunningAppliance, data: Path, *arguments: str) -> int:
    """The exit code."""
    return await asyncio.to_thread(run, ["export", *where(running, data), *arguments])


def where(running: RunningAppliance, data: Path) -> list[str]:
    return [f"--url={running.base_url}", f"--key-file={data / 'admin.key'}"]


async def test_a_bucket_that_was_copied_in_comes_out_file_by_file_as_it_was(
    tmp_path: Path,
) -> None:
    old = OldPlace(tmp_path).fixture()
    await old.imported(in_place=False)
    target = tmp_path / "again"
    flags = {"bucket": f"file:{tmp_path / 'own'}", "tidier": "off"}
    async with running_appliance(tmp_path / "data", **flags) as running:
        assert await exported(running, tmp_path / "data", GO, f"--to={target}") == 0
        for wanted in FIXTURE.glob("*.record_batch"):
            written = (target / "sample" / wanted.name).read_bytes()
            assert batch_v1.inflate(written) == batch_v1.inflate(wanted.read_bytes())
            assert written[:10] == wanted.read_bytes()[:10]  # gzip's header is Go's, too
        assert len(list((target / "sample").iterdir())) == 3
        assert await exported(running, tmp_path / "data", GO, f"--to={target}") == 1  # it is there


async def test_what_broke_off_lies_beside_the_directory_and_the_same_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, partial = tmp_path / "out", tmp_path / "out.partial"
    data = tmp_path / "data"
    put = DirectoryStore.put
    async with running_appliance(data) as running:
        for n in range(3):
            records = [{"value": str(n), "timestamp": f"2026-11-01T10:00:0{n}Z"}]
            await running.client.post("/v1/topics/t/records", json={"records": records})

        stored = asyncio.Semaphore(0)

        async def interrupted(store: DirectoryStore, key: str, body: bytes) -> None:
            if key.endswith("2.record_batch"):
                for _ in range(2):
                    await stored.acquire()
                raise OSError(errno.ENOSPC, "No space left on device")
            await put(store, key, body)
            stored.release()

        to = (GO, "--topic=t", "--json", f"--to={target}")
        with monkeypatch.context() as patch:
            patch.setattr(DirectoryStore, "put", interrupted)
            assert await exported(running, data, *to) == 1
        assert not target.exists()
        assert f"{partial} holds a part" in capsys.readouterr().err
        target.mkdir()  # an empty one may be there
        assert await exported(running, data, *to) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["files"], told["were_there"]) == (3, 2)
        assert len(list((target / "t").iterdir())) == 3
        assert not partial.exists()

        target.rename(partial)
        other = partial / "t" / "000000000001.record_batch"
        other.write_bytes(batch_v1.compress(batch_v1.encode([b"else"], 1)))
        assert await exported(running, data, *to) == 1
        assert not target.exists()
        nothing = (GO, "--topic=t", f"--to={tmp_path / 'a'}", "--key-file=none")
        assert await exported(running, data, *nothing) == 78
        assert not list(tmp_path.glob("a*"))


async def test_a_file_of_lines_is_there_whole_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    to = ("--topic=t", f"--to={tmp_path / 'lines'}")

    def interrupted(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with running_appliance(data) as running:
        await running.client.post("/v1/topics/t/records", content=b"1")
        before = set(tmp_path.iterdir())
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", interrupted)
            code, _ = await asyncio.gather(exported(running, data, *to), asyncio.sleep(0))
            assert code == 1
        assert await exported(running, data, "--topic=none", f"--to={tmp_path / 'none'}") == 1
        assert set(tmp_path.iterdir()) == before
        killed = tmp_path / "lines.partial"
        killed.touch()
        assert await exported(running, data, *to) == 1
        assert "lines.partial (another export writes it, or" in capsys.readouterr().err
        killed.unlink()
        assert await exported(running, data, *to) == 0
        assert json.loads((tmp_path / "lines").read_text())["value"] == "1"


@pytest.mark.parametrize(
    "arguments", [[], ["--topic=a", "--topic=b"], ["--topic=a", "--to=s3://b/p"], ["--values-only"]]
)
def test_what_lines_cannot_be_names_the_go_brokers_format(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", *arguments]) == 78
    assert "--format seb-v1" in capsys.readouterr().err


async def test_what_the_format_cannot_hold_is_refused_or_left_out_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_appliance(tmp_path / "data") as running:
        records = [{"value": "1", "key": "k"}, {"value": None, "key": "k"}, {"value": "3"}]
        for record in records:
            await running.client.post("/v1/topics/t/records", json={"records": [record]})
        target = f"--to={tmp_path / 'out'}"
        assert await exported(running, tmp_path / "data", GO, target) == 1
        assert "offset 0 of 't' has a record key" in capsys.readouterr().err
        chosen = (GO, target, "--values-only", "--records-per-file=2", "--json")
        assert await exported(running, tmp_path / "data", *chosen) == 0
        told = json.loads(capsys.readouterr().out)
        assert told == {"topics": 1, "files": 2, "records": 3, "were_there": 0}
    found = [
        batch_v1.decode(path.read_bytes()).values.slice()
        for path in sorted((tmp_path / "out" / "t").iterdir())
    ]
    assert found == [[b"1", b""], [b"3"]]


async def test_a_topic_whose_beginning_was_trimmed_comes_out_from_there(tmp_path: Path) -> None:
    async with running_appliance(tmp_path / "data") as running:
        for n in range(3):
            await running.client.post("/v1/topics/t/records", json={"records": [{"value": str(n)}]})
        await running.client.post("/v1/topics/t/trim", json={"before": 2})
        assert await exported(running, tmp_path / "data", GO, f"--to={tmp_path / 'out'}") == 0
    assert [path.name for path in (tmp_path / "out" / "t").iterdir()] == [
        "000000000002.record_batch"
    ]


async def test_a_topic_moves_to_another_as_lines_with_all_that_its_records_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        {"value": "1", "key": "k", "headers": {"h": "x"}, "timestamp": "2026-11-01T10:00:00.123Z"},
        {"value_base64": "/wA=", "key_base64": "gA=="},
        {"value": None, "key": "k"},
    ]
    lines, data = tmp_path / "lines", tmp_path / "data"
    async with running_appliance(data) as running:
        await running.client.post("/v1/topics/t/records", json={"records": records})
        topic = ("--topic=t", f"--to={lines}")
        assert await exported(running, data, *topic) == 0
        assert await exported(running, data, *topic) == 1  # never over a file that is there
        command = ["import", *where(running, data), "--format=ndjson", "--topic=u", str(lines)]
        assert await asyncio.to_thread(run, command) == 0
        assert await asyncio.to_thread(run, command) == 1
        assert "--append adds to them" in capsys.readouterr().err
        assert await asyncio.to_thread(run, [*command, "--append"]) == 0
        answers = [
            await running.client.get(f"/v1/topics/{name}/records", params={"max_records": 3})
            for name in "tu"
        ]
        moved, copy = (answer.json()["records"] for answer in answers)
        assert copy == moved
        assert len(moved) == 3
        assert (await running.client.get("/v1/topics/u")).json()["log_end_offset"] == 6


async def test_a_line_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, data = tmp_path / "lines", tmp_path / "data"
    async with running_appliance(data) as running:
        command = ["import", *where(running, data), "--format=ndjson", "--topic=u", str(lines)]
        for wrong in ("not a record", "[" * 100_000, '["an array"]'):
            lines.write_text(f'{{"value": "1"}}\n{wrong}\n')
            assert await asyncio.to_thread(run, command) == 1
            assert "not a line of records" in capsys.readouterr().err


async def test_of_a_gap_of_any_size_only_a_few_files_are_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "EXPORT_FILE_BYTES", 4_000)
    store = RetryingStore(MemoryStore(), SystemClock(), random.random)
    writer = OldTopicWriter(store, "t", values_only=True, records_per_file=100)
    write, waiting = writer._write, list[int]()

    async def written() -> None:
        waiting.append(len(writer._waiting))
        await write()

    monkeypatch.setattr(writer, "_write", written)
    await writer.begin()
    await writer.add([Record("t", offset, 0, None, b"v") for offset in (0, 20_000)])
    await writer.finish()
    assert writer.records == 20_001
    assert max(waiting) < 20
