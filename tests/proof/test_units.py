"""Parts go on where they were, say what they found, and the page shows it; schedules repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof.report import page
from tests.proof.results import Result, read_results, write_result
from tests.proof.schedules import plan
from tests.proof.units import AT_ONCE, Done, PartOfProof, run_part, run_parts
from tests.support.servers.s3_server import NotInstalledError


class Runs:
    """A part of three units, of which one may fail."""

    def __init__(self, failing: str = "") -> None:
        self.done: list[str] = []
        self.failing = failing

    async def run(self, unit: str, seed: str, folder: Path) -> Done:
        self.done.append(unit)
        assert unit != self.failing, "a record was lost"
        numbers = {"max memory, MB": float(len(unit)), "bytes": 2.0}
        judged, absent = {"Porcupine": 1_000}, {"another": "there is no Go here"}
        own_name = f"1.{unit}"  # as a schedule has
        return Done(
            own_name, calls=10, faults={"kill -9": 2}, latencies_ms=[1.0, 3.0], numbers=numbers,
            judged=judged, not_judged=absent,
        )  # fmt: skip

    @property
    def part(self) -> PartOfProof:
        asked, units = {"quick": "three", "full": "more"}, {"quick": ["a", "b", "ccc"], "full": []}
        return PartOfProof("part", "of the proof", asked, units, self.run)  # type: ignore[arg-type]


async def run(
    part: PartOfProof, folder: Path, *, seed: str = "1", until_s: float | None = None
) -> Result:
    return await run_part(part, "quick", seed, folder, folder / "units", until_s)


async def test_what_was_done_is_not_done_again_with_the_same_seed(tmp_path: Path) -> None:
    runs = Runs()
    cut = await run(runs.part, tmp_path, until_s=0.0)
    assert (cut.verdict, runs.done) == ("cut short", [])
    for _ in range(2):
        whole = await run(runs.part, tmp_path)
        assert (whole.verdict, runs.done) == ("passed", ["a", "b", "ccc"])
    assert whole.details["operations"] == 30
    assert whole.details["faults"] == {"kill -9": 6}
    assert whole.details["max memory, MB"] == 3
    assert whole.details["bytes"] == 6
    assert sum(whole.details["units by day"].values()) == 3
    assert whole.got.endswith(
        "; Porcupine: 3,000 operations, no violation; not judged by another: there is no Go here"
    )
    await run(runs.part, tmp_path, seed="2")
    assert len(runs.done) == 6


async def test_a_unit_that_fails_fails_its_part_and_is_done_again(tmp_path: Path) -> None:
    failed = await run(Runs(failing="b").part, tmp_path)
    assert failed.verdict == "failed"
    assert "a record was lost" in failed.details["findings"][0]
    again = Runs()
    assert (await run(again.part, tmp_path)).verdict == "passed"
    assert again.done == ["b", "ccc"]


async def test_a_unit_whose_programs_are_not_there_is_skipped_and_never_passed(
    tmp_path: Path,
) -> None:
    missing = Runs()

    async def work(unit: str, seed: str, folder: Path) -> Done:
        if unit == "b":
            raise NotInstalledError("radosgw not installed")
        return await missing.run(unit, seed, folder)

    found = await run_part(
        replace(missing.part, run=work), "quick", "1", tmp_path, tmp_path / "units"
    )
    assert found.verdict == "cut short"
    assert found.got.startswith("2 of 3 units")
    assert found.details["skipped"] == {"b": "radosgw not installed"}
    again = Runs()
    assert (await run(again.part, tmp_path)).verdict == "passed"
    assert again.done == ["b"]


async def test_a_note_that_a_kill_has_cut_short_is_no_unit(tmp_path: Path) -> None:
    await run(Runs().part, tmp_path)
    (notes,) = (tmp_path / "units").iterdir()
    notes.write_bytes(notes.read_bytes()[:-20])
    again = Runs()
    await run(again.part, tmp_path)
    assert again.done == ["ccc"]


class Beside:
    """Parts whose units wait until so many run as may: what ran at once, and what was told."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.most = 0
        self.told: list[str] = []
        self.full = asyncio.Event()

    def part(self, name: str, units: int, *, beside: bool) -> PartOfProof:
        async def run(unit: str, seed: str, folder: Path) -> Done:
            self.running.add(name + unit)
            self.most = max(self.most, len(self.running))
            assert folder.name == f"{name}-{unit}"
            if beside:
                if len(self.running) == AT_ONCE:
                    self.full.set()
                await self.full.wait()
            else:
                for _ in range(9):  # whoever else may begin does
                    await asyncio.sleep(0)
                assert self.running == {name + unit}, "it measures, and is not alone"
            self.running.remove(name + unit)
            return Done(unit)

        scales = {"quick": [str(number) for number in range(units)], "full": []}
        return PartOfProof(name, "", {"quick": "", "full": ""}, scales, run, beside)  # type: ignore[arg-type]

    def begins(self, parts: Sequence[PartOfProof]) -> None:
        self.told.append("+".join(part.name for part in parts))

    def ended(self, found: Result) -> None:
        self.told.append(f"{found.name} {found.verdict}")


async def test_parts_stand_beside_one_another_unless_they_measure(tmp_path: Path) -> None:
    run = Beside()
    parts = [
        run.part("a", 2, beside=True),
        run.part("measures", 2, beside=False),
        run.part("b", AT_ONCE + 3, beside=True),
    ]
    async with asyncio.timeout(30):
        await run_parts(parts, "quick", "1", tmp_path, run, tmp_path / "units")
    assert run.most == AT_ONCE
    assert sorted(run.told[:3]) == ["a passed", "a+b", "b passed"]
    assert run.told[3:] == ["measures", "measures passed"]


def test_a_seed_has_one_schedule_and_another_seed_another() -> None:
    assert plan("1.7") == plan("1.7")
    assert len({str(plan(f"1.{number}").steps) for number in range(50)}) == 50


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"name": 1}')
    with pytest.raises(ValueError, match=r"broken\.json"):
        read_results(tmp_path)


def test_the_page_shows_every_part_with_its_verdict_and_what_was_found(tmp_path: Path) -> None:
    found = {
        "findings": ["<b>lost</b>", "unit: AssertionError: Porcupine found 1 violations"],
        "judged operations": {"Porcupine": 4_321, "another": 17},
        "faults": {"kill -9": 3, "lost_answer": 2, "answer of the bucket lost": 5},
        "looks": 1_200.0,
        "memory_mib": [[0, 90], [9, 95]],
    }
    for name, verdict, details in (
        ("kills", "failed", found),
        ("fuzz", "passed", {"runs": 12_345}),
    ):
        result = Result(name=name, what=f"what of {name}", asked="20", got="19", verdict=verdict,
                        seconds=61.5, seed="7", details=details)  # fmt: skip
        write_result(tmp_path, result)
    text = page(read_results(tmp_path), {"Seb Appliance": "0.1.0"})
    assert "&lt;b&gt;lost" in text
    assert "<b>lost" not in text
    for expected in (
        "1 failed",
        "1 passed",
        "what of kills",
        "what of fuzz",
        "12,345",
        "7</text>",  # what the simulation calls lost_answer is the same fault
        "<td>1,200</td>",
        '4,321</td><td><span class="wrong">violations',
        "17</td><td>no violation",
        "<polyline",
    ):
        assert expected in text
    assert "lost_answer" not in text
    assert "http" not in text
