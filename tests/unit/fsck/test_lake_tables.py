"""One bucket for each kind of damage to a lake table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.whole_bucket import Whole, check, codes, make_lake


@pytest.fixture(scope="session")
def made_lake(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return asyncio.run(make_lake(tmp_path_factory.mktemp("lake")))


@pytest.fixture
def lake(made_lake: Whole, tmp_path: Path) -> Whole:
    return made_lake.copied(tmp_path)


def objects(whole: Whole, pattern: str) -> list[Path]:
    """Of the only table; the newest last."""
    found = (whole.bucket / "tables").glob(f"*/{pattern}")
    return sorted(found, key=lambda path: (len(path.name), path.name))


def living(whole: Whole) -> Path:
    """The newest data file."""
    return max(objects(whole, "data/*"), key=lambda path: path.name)


async def test_a_whole_table_is_clean(lake: Whole) -> None:
    for options in ({}, {"quick": True}, {"full": True}):
        report = await check(lake, local=True, **options)
        assert report.findings.problems == []
        assert (report.counts["tables"], report.counts["table_strays"]) == (1, 0)
        assert report.counts["table_files"] == len(objects(lake, "data/*"))


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def flipped(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


def without_magic(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4] + b"PAR2")


def with_other_rows(path: Path) -> None:
    """Of the same length."""
    table, length = pq.read_table(path), path.stat().st_size
    pq.write_table(table.select(["offset"]).slice(0, 1), path, store_schema=False)
    body = path.read_bytes()
    assert len(body) < length
    path.write_bytes(body[:4] + bytes(length - len(body)) + body[4:])


def hint(path: Path) -> None:
    path.write_bytes(b"3")


DAMAGE: list[tuple[str, str, int, Callable[[Path], None]]] = [
    ("table_file_missing", "data/*", 0, Path.unlink),
    ("table_file_damaged", "data/*", 0, changed),
    ("table_file_damaged", "data/*", 0, without_magic),
    ("table_file_damaged", "data/*", 0, with_other_rows),
    ("table_foreign", "metadata/v*.metadata.json", -1, flipped),
    ("table_metadata_differs", "metadata/v*.metadata.json", -1, Path.unlink),
    ("table_metadata_differs", "metadata/version-hint.text", 0, hint),
    ("table_metadata_differs", "metadata/snap-*.avro", -1, flipped),
    ("table_foreign", "_delta_log/*.json", -1, changed),
    ("table_metadata_missing", "metadata/snap-*.avro", 0, Path.unlink),
    ("table_metadata_missing", "metadata/v*.metadata.json", -2, Path.unlink),
    ("table_metadata_missing", "_delta_log/*.json", -2, Path.unlink),
    ("table_metadata_missing", "metadata/*-m0.avro", -2, changed),
]


@pytest.mark.parametrize(
    ("code", "pattern", "which", "damage"), DAMAGE, ids=[f"{d[1]} {d[3].__name__}" for d in DAMAGE]
)
async def test_damage_is_found_and_named(
    lake: Whole, code: str, pattern: str, which: int, damage: Callable[[Path], None]
) -> None:
    path = objects(lake, pattern)[which]
    damage(path)
    report = await check(lake)
    assert codes(report) == [code]
    (problem,) = report.findings.problems
    assert (problem.subject, problem.topic) == (lake.key(path), "orders")
    assert (problem.offsets is not None) == pattern.startswith("data")


async def test_a_quick_check_reads_no_footer_and_a_full_one_every_row(lake: Whole) -> None:
    path = living(lake)
    body = bytearray(path.read_bytes())
    body[6:40] = bytes(34)  # in the first page
    path.write_bytes(body)
    assert codes(await check(lake, quick=True)) == []
    assert codes(await check(lake)) == []
    assert codes(await check(lake, full=True)) == ["table_file_damaged"]


async def test_strays_are_counted_and_no_damage(lake: Whole) -> None:
    folder = objects(lake, "data")[0]
    (folder / "mine.parquet").write_bytes(b"?")
    other = lake.bucket / "tables" / "00112233-other" / "data"
    other.mkdir(parents=True)
    (other / "mine").write_bytes(b"?")
    report = await check(lake)
    assert (codes(report), report.counts["table_strays"]) == ([], 2)
