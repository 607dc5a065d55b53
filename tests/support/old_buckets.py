"""Directories as the Go broker leaves its bucket, and what comes out of an appliance afterwards."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seb_appliance import setting_sources
from seb_appliance.formats import batch_v1
from seb_appliance.ops.serve.go_import import Imported, ImportOptions, import_old_log
from seb_appliance.settings import Settings

FIXTURE = Path(__file__).parents[1] / "fixtures" / "seb-v1" / "s3"
FIXTURE_VALUES = [
    b"first-record-data", b"second-record-data", b"third-record-data",
    b"", b"hello", b"", "wørld".encode(),
    *(bytes([i % 256]) * i for i in range(1, 257)),
]  # fmt: skip
CREATED_US = 1_700_000_000_000_000


@dataclass
class OldPlace:
    """A directory with an old bucket in it, and one for an appliance of its own."""

    folder: Path
    expected: dict[str, list[bytes]] = field(default_factory=dict)
    name: str = "old"

    @property
    def bucket(self) -> Path:
        return self.folder / self.name

    def file(self, topic: str, base_offset: int) -> Path:
        return self.bucket / topic / f"{base_offset:012d}.record_batch"

    def write(
        self,
        topic: str,
        base_offset: int,
        values: Sequence[bytes],
        created_us: int | None = None,
    ) -> Path:
        """One file, written long ago."""
        made_us = CREATED_US + base_offset if created_us is None else created_us
        self.expected.setdefault(topic, []).extend(values)
        body = batch_v1.compress(batch_v1.encode(values, made_us))
        return self.put(self.file(topic, base_offset), body)

    def put(self, path: Path, body: bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        long_ago_s = time.time() - 3600
        os.utime(path, (long_ago_s, long_ago_s))
        return path

    def fixture(self, topic: str = "sample") -> OldPlace:
        """The files that a Go broker has written."""
        for path in sorted(FIXTURE.iterdir()):
            self.put(self.bucket / topic / path.name, path.read_bytes())
        self.expected[topic] = list(FIXTURE_VALUES)
        return self

    def small(self, topic: str, files: int, per_file: int = 3) -> OldPlace:
        for i in range(files):
            values = [b"%s %d %d" % (topic.encode(), i, n) for n in range(per_file)]
            self.write(topic, i * per_file, values)
        return self

    def own(self, data: str = "data", *, in_place: bool) -> Settings:
        """Of the appliance that takes it in."""
        bucket = self.bucket if in_place else self.folder / "own"
        return of_directory(bucket, self.folder / data)

    async def imported(
        self, progress: Any = lambda *_: None, *, in_place: bool = True, **options: Any
    ) -> Imported:
        source = of_directory(self.bucket, self.folder / "data")
        chosen = ImportOptions(source=source, copy=not in_place, **options)
        return await import_old_log(self.own(in_place=in_place), chosen, progress)

    def forget_local_state(self) -> None:
        """Only the bucket is left."""
        shutil.rmtree(self.folder / "data")


def of_directory(bucket: Path, data: Path, **more: str | bool) -> Settings:
    flags: dict[str, str | bool] = {"bucket": f"file:{bucket}", "data": str(data), "linger": "0ms"}
    return setting_sources.load(flags={**flags, **more}, environment={})
