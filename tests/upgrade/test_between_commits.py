"""Appliances of earlier commits and of this one, as real processes, take turns on one bucket.

What clients see of topics, record keys, groups, queues and tables is the same after each change,
or the older one refuses to start with a sentence and changes nothing.
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Serving, serving

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TABLE_S_MAX = 90
TIDIED = ("--linger", "0ms", "--tidy-bytes", "1KiB", "--tidy-young", "0ms")


@dataclass(frozen=True)
class Commit:
    """`has_queues`: it also has tables. `back`: whether it starts on the state file of this one."""

    name: str
    has_queues: bool = True
    back: bool = False


BEFORE_RELEASES = Commit("45b5d407dc58", back=True)
BEFORE_DELAYS = Commit("6f027ffb2d71")
BEFORE_TABLES = Commit("16f1fd557f8b", has_queues=False)


def unpacked(commit: Commit, folder: Path) -> Path:
    """The tree of that commit, without its tests; skips where there is no history."""
    command = ["git", "archive", commit.name, "--", ".", ":!tests", ":!docs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no earlier commits here: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class Turns:
    """One bucket, one data directory, and the trees of two commits."""

    def __init__(self, folder: Path, commit: Commit) -> None:
        self.folder, self.commit = folder, commit
        self.older = unpacked(commit, folder / "older")
        self.state = folder / "local" / "state.sqlite"

    @contextmanager
    def by(self, tree: Path, *flags: str) -> Iterator[Serving]:
        with serving(self.folder, *TIDIED, *flags, cwd=tree) as running:
            yield running

    def refused(self, *flags: str) -> tuple[int, str]:
        """Exit code and words of the older one; what is stored is then as before."""
        before = self.stored()
        folder = self.folder
        command = [sys.executable, "-m", "seb_appliance", "serve", *flags, "--port", "0"]
        command += ["--bucket", f"file:{folder / 'bucket'}", "--data", str(folder / "local")]
        done = subprocess.run(
            command, cwd=self.older, capture_output=True, text=True, check=False, timeout=60
        )
        assert self.stored() == before
        return done.returncode, done.stderr

    def stored(self) -> dict[Path, bytes]:
        files = (self.folder / "bucket").rglob("*")
        return {one: one.read_bytes() for one in files if one.is_file() and "probe" not in str(one)}

    def lose_state(self) -> None:
        """As docs/OPERATIONS.md says."""
        for path in self.state.parent.glob(f"{self.state.name}*"):
            path.unlink()


def ask(seb: Serving, method: str, path: str, body: Any = None) -> Any:
    sent = None if body is None else json.dumps(body).encode()
    status, answer = seb.request(method, path, sent, sent and "application/json")
    assert status < 300, (method, path, status, answer)
    return json.loads(answer)


def create(seb: Serving, commit: Commit) -> None:
    lake = {"table": "iceberg", "table_lag_ms": 1000} if commit.has_queues else {}
    ask(seb, "PUT", "/v1/topics/keyed", {"key_index": "latest", "cleanup": "compact"})
    ask(seb, "PUT", "/v1/topics/lake", lake)
    ask(seb, "PUT", "/v1/topics/plain", {})
    if commit.has_queues:
        ask(seb, "PUT", "/v1/queues/mails", {"topics": ["plain"]})


def go_on(seb: Serving, commit: Commit, word: str) -> None:
    """Five more records in each topic; the group reads to the end, a worker does two of them."""
    for topic in ("plain", "keyed", "lake"):
        records = [{"value": f"{word} {n}", "key": f"k{n % 3}"} for n in range(5)]
        made = ask(seb, "POST", f"/v1/topics/{topic}/records", {"records": records})
    ask(seb, "PUT", "/v1/groups/billing/offsets", {"offsets": {"plain": made["last_offset"] + 1}})
    if not commit.has_queues:
        return
    taken = ask(seb, "POST", "/v1/queues/mails/take", {"max": 2})["records"]
    deliveries = [record["delivery"] for record in taken]
    assert ask(seb, "POST", "/v1/queues/mails/ack", {"deliveries": deliveries}) == {
        "results": ["ok", "ok"]
    }
    until_s = time.monotonic() + TABLE_S_MAX
    while (table := _table(seb))["next_offset"] <= made["last_offset"]:
        assert time.monotonic() < until_s, table
        time.sleep(0.05)
    assert table["rows"] == table["next_offset"]


def _table(seb: Serving) -> dict[str, Any]:
    """It is there a moment after its topic."""
    status, answer = seb.request("GET", "/v1/tables/lake")
    return {"next_offset": 0} if status == 404 else dict(json.loads(answer))


def told(seb: Serving, commit: Commit) -> dict[str, Any]:
    """What clients see and what no time changes."""
    reads = {
        "plain": "/v1/topics/plain/records?offset=earliest",
        "lake": "/v1/topics/lake/records?offset=earliest",
        "keyed": "/v1/topics/keyed/records?offset=earliest",
    }
    found: dict[str, Any] = {name: ask(seb, "GET", path)["records"] for name, path in reads.items()}
    found["keyed"] = {record["key"]: record["value"] for record in found["keyed"]}
    found["keys"] = ask(seb, "GET", "/v1/topics/keyed/keys?fresh=true")["keys"]
    (group,) = ask(seb, "GET", "/v1/groups/billing")["topics"]
    found["group"] = [group["committed_offset"], group["lag_records"]]
    if commit.has_queues:
        (topic,) = ask(seb, "GET", "/v1/queues/mails")["topics"]
        found["queue"] = [topic["waiting"], topic["acked"]]
        table = ask(seb, "GET", "/v1/tables/lake")
        found["table"] = [table[name] for name in ("table_id", "next_offset", "rows")]
    return found


@pytest.mark.parametrize("commit", [BEFORE_RELEASES, BEFORE_DELAYS, BEFORE_TABLES])
def test_this_release_goes_on_where_an_earlier_one_was_and_back(
    commit: Commit, tmp_path: Path
) -> None:
    turns = Turns(tmp_path, commit)
    with turns.by(turns.older) as seb:
        create(seb, commit)
        go_on(seb, commit, "older")
        before = told(seb, commit)
        seb.stop(signal.SIGKILL)
    with turns.by(ROOT) as seb:
        assert told(seb, commit) == before
        go_on(seb, commit, "newer")
        before = told(seb, commit)
        assert seb.stop() == 0
    if not commit.back:
        code, words = turns.refused()
        assert code == 78
        assert "written by a newer release" in words
        turns.lose_state()
    with turns.by(turns.older) as seb:
        assert told(seb, commit) == before
        go_on(seb, commit, "back")
        before = told(seb, commit)
        seb.stop(signal.SIGKILL)
    with turns.by(ROOT) as seb:
        assert told(seb, commit) == before
        go_on(seb, commit, "again")


def test_an_earlier_one_refuses_what_it_does_not_know_and_changes_nothing(tmp_path: Path) -> None:
    turns = Turns(tmp_path, BEFORE_TABLES)
    with turns.by(ROOT) as seb:
        create(seb, BEFORE_RELEASES)
        go_on(seb, BEFORE_RELEASES, "newer")
        before = told(seb, BEFORE_RELEASES)
        seb.stop(signal.SIGKILL)
    turns.lose_state()
    code, words = turns.refused("--take-over")
    assert code == 74
    assert "If a newer release wrote it, install that release. Nothing was changed" in words
    with turns.by(ROOT) as seb:
        assert told(seb, BEFORE_RELEASES) == before
