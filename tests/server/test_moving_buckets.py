"""`seb import` and `seb export` as processes: killed and resumed, there and back again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seb_appliance.formats import batch_v1
from tests.server.serving import ENVIRONMENT, Serving, serving
from tests.support.old_buckets import OldPlace

pytestmark = pytest.mark.slow

KILLED = -9
FILES = 3_000
# After the topics are made, and twice after an entry that adopts a thousand files is stored.
KILLS = ("K7:kill:2", "K7:kill:1", "K7:kill:1")


def seb(*arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "seb_appliance", *arguments],
        env={**ENVIRONMENT, **variables},
        capture_output=True,
        timeout=120,
        check=False,
    )


def asked(running: Serving, *arguments: str) -> bytes:
    """The output of a command that talks to the appliance."""
    url = f"http://127.0.0.1:{running.port}"
    done = seb(*arguments, SEB_URL=url, SEB_DATA=str(running.data))
    assert done.returncode == 0, done.stderr
    return done.stdout


def plain_files(bucket: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(bucket)): batch_v1.inflate(path.read_bytes())
        for path in sorted(bucket.rglob("*.record_batch"))
    }


def test_an_import_that_was_killed_goes_on_and_the_bucket_comes_out_as_it_went_in(
    tmp_path: Path,
) -> None:
    old = OldPlace(tmp_path, name="bucket").small("a", FILES, per_file=2).small("b", 4).fixture()
    before = plain_files(old.bucket)
    ours = [f"--bucket=file:{old.bucket}", f"--data={tmp_path / 'local'}"]
    command = ["import", f"--from={old.bucket}", "--json", *ours]
    for point in KILLS:
        killed = seb(*command, SEB_FAIL=point)
        assert killed.returncode == KILLED, killed.stderr
    done = seb(*command)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["found"], told["files"]) == (2_000, FILES + 7 - 2_000)
    assert seb("fsck", *ours).returncode == 0
    with serving(tmp_path) as running:
        asked(
            running,
            "export",
            "--format=seb-v1",
            f"--to={tmp_path / 'again'}",
            "--topic=sample",
            "--topic=b",
        )
        wanted = {key: body for key, body in before.items() if not key.startswith("a/")}
        assert plain_files(tmp_path / "again") == wanted
        everything = asked(running, "consume", "a").split(b"\n")[:-1]
        assert everything == old.expected["a"]
