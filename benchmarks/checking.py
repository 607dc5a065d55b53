"""What `seb fsck` costs for a bucket of many objects: seconds and memory.

    python benchmarks/checking.py --entries 100000

Writes the entries as files, without an appliance, which would sync each of them.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from crc32c import crc32c

from seb_appliance.formats import batch
from seb_appliance.formats.contents import Contents, Section
from seb_appliance.formats.entry import ORIGIN, encode
from seb_appliance.formats.operations import Append, EpochStarted, Operation, TopicCreated
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bucket_info import BucketInfo, encode_bucket_info

VALUE = b"x" * 1_000
CREATED_US = 1_800_000_000_000_000


def make_bucket(folder: Path, entries: int) -> None:
    """A journal in mode A, of one record of 1 kB in each entry but the first two."""
    bucket_id, writer_id = os.urandom(16), os.urandom(16)
    (folder / layout.JOURNAL).mkdir(parents=True)
    info = encode_bucket_info(BucketInfo(bucket_id=bucket_id.hex(), mode="A"))
    (folder / layout.BUCKET).write_bytes(info)
    position = ORIGIN
    for seq in range(1, entries + 1):
        contents, body = Contents([], []), b""
        if seq == 1:
            contents.operations.append(EpochStarted(software="benchmark"))
        elif seq == 2:
            contents.operations.append(made_topic())
        else:
            body = batch.encode_value(VALUE, CREATED_US, base_offset=seq - 3, created_us=CREATED_US)
            contents.operations.append(Append(section=0))
            place = (1, seq - 3, seq - 3, 1, 0, len(body), crc32c(body), CREATED_US)
            contents.sections.append(Section(*place))
        encoded = encode(
            contents,
            [body],
            after=position,
            epoch=1,
            writer_id=writer_id,
            entry_id=os.urandom(16),
            bucket_id=bucket_id,
            created_us=CREATED_US,
            is_epoch=seq == 1,
        )
        (folder / layout.create_only_key(seq)).write_bytes(encoded.body)
        position = encoded.entry.header.position


def made_topic() -> Operation:
    return TopicCreated(topic_id=1, name="t", created_us=CREATED_US, settings=TopicSettings())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seb-checking-") as name:
        make_bucket(Path(name), arguments.entries)
        for flags in (["--quick"], []):
            started = time.monotonic()
            command = [sys.executable, "-m", "seb_appliance", "fsck", "--bucket-only", *flags]
            subprocess.run([*command, "--bucket", f"file:{name}"], check=True, stdout=-3)
            seconds = time.monotonic() - started
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
            told = " ".join(["seb fsck", *flags])
            print(f"{arguments.entries:,} entries: {told} took {seconds:.1f} s, {peak:,} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
