"""Makes what tests/upgrade/stored/ keeps of a release, with the code of this checkout:

    python -m tests.upgrade.make_stored NAME

writes stored/NAME-a.tar.xz and NAME-b.tar.xz, a bucket and a data directory each, in fencing mode A
and B, and beside each a JSON file that says what is in it. Run it before each release, and whenever
a format gets a new version; never again for a name that is there.

A history of chapters brings in what each revision of the state file brought. In mode A nothing
is removed from the bucket, and `states/REVISION.sqlite` is the state after each chapter, as a
release of that time would have left it. In mode B everything old is merged, compacted and removed.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tarfile
import tempfile
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from seb_appliance import limits
from seb_appliance.broker.access.audit import Actor
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns
from seb_appliance.ops.host import restoring
from seb_appliance.storage.layout import Mode
from tests.support.appliance import RunningAppliance, running_appliance
from tests.support.tidied import compact
from tests.support.whole_bucket import begin_in_mode_b
from tests.upgrade.appliance_of import (
    TIDY,
    appliance_of,
    settings_of,
    told_records,
    told_state,
)
from tests.upgrade.old_states import REVISIONS, write_as_of
from tests.upgrade.stored_data import STORED

INDEX_PAGE_ENTRIES = 16  # so that there are pages
BATCHES = {"content-type": "application/vnd.seb.batch"}


async def _records_and_api_keys(seb: RunningAppliance) -> None:
    for topic, settings in {
        "plain": {"compression": "none"},
        "keyed": {"key_index": "history", "cleanup": "none"},
        "compacted": {"key_index": "latest", "compression": "none"},
        "deleted": {},
    }.items():
        await _ask(seb, "put", f"/v1/topics/{topic}", json=settings)
        for number in range(6):
            await _produce(seb, topic, [{"value": f"{topic} {number}", "key": f"k{number % 3}"}])
    await _ask(seb, "delete", "/v1/topics/deleted")
    await _produce(seb, "keyed", [{"value": "compresses " * 200, "headers": {"a": "ä"}}])
    await _ask(
        seb,
        "post",
        "/v1/topics/plain/records",
        content=b"alone",
        headers={"seb-timestamp": "2001-09-09T01:46:40Z"},
    )
    columns = Columns(array("q", [5, 6]), BinaryColumn.of([b"of a", b"batch"]))
    made = batch.encode(columns, base_offset=0, created_us=1, zstd_level=None)
    await _ask(seb, "post", "/v1/topics/plain/records", content=made, headers=BATCHES)
    grants = [{"operation": "produce", "topics": "plain"}]
    await _ask(seb, "post", "/v1/api-keys", json={"name": "producer", "grants": grants})


async def _groups(seb: RunningAppliance) -> None:
    for group, offset in {"billing": 3, "search": 6, "gone": 1}.items():
        offsets = {"offsets": {"plain": offset, "keyed": 2}, "metadata": {"plain": "note"}}
        await _ask(seb, "put", f"/v1/groups/{group}/offsets", json=offsets)
    await _ask(seb, "post", "/v1/groups/led/lease", json={"holder": "one", "ttl_ms": 3_600_000})
    await _ask(seb, "delete", "/v1/groups/gone")


async def _safe_retries(seb: RunningAppliance) -> None:
    path = "/v1/topics/plain/records"
    await _ask(seb, "post", path, content=b"once", headers={"idempotency-key": "a-request"})
    for seq in range(3):
        numbered = {"producer-id": "p", "producer-epoch": "1", "producer-seq": str(seq)}
        if seq == 2:
            numbered["producer-checksum"] = "7"
        await _ask(seb, "post", path, content=b"numbered %d" % seq, headers=numbered)


async def _quotas_and_audit(seb: RunningAppliance) -> None:
    grants = [{"operation": "consume", "topics": "**", "groups": "billing"}]
    members = {"name": "reader", "grants": grants, "quotas": {"requests_per_second": 50}}
    made = (await _ask(seb, "post", "/v1/api-keys", json=members)).json()
    await _ask(seb, "post", f"/v1/api-keys/{made['api_key_id']}/rotate", json={"overlap": "1h"})
    members = {"name": "old", "grants": grants, "description": "not used any more"}
    made = (await _ask(seb, "post", "/v1/api-keys", json=members)).json()
    await _ask(seb, "patch", f"/v1/api-keys/{made['api_key_id']}", json={"disabled": True})


async def _more_entries(seb: RunningAppliance) -> None:
    for number in range(10):
        await _produce(seb, "plain", [{"value": f"more {number}"}])


async def _a_transaction(seb: RunningAppliance) -> None:
    step = {
        "produce": {"plain": [{"value": "both"}], "keyed": [{"value": "both", "key": "k9"}]},
        "commit": {"group": "search", "offsets": {"plain": 7}},
    }
    headers = {"idempotency-key": "a-transaction"}
    await _ask(seb, "post", "/v1/transactions", json=step, headers=headers)
    await _ask(seb, "post", "/v1/snapshots")


async def _segments(seb: RunningAppliance) -> None:
    for number in range(12):
        await _produce(seb, "large", [{"value": f"{number} " + "x" * 400}])
    while await seb.appliance.tidier.step():
        pass
    await _ask(seb, "post", "/v1/topics/plain/trim", json={"before": 2})


async def _users(seb: RunningAppliance) -> None:
    accounts, by = seb.appliance.broker.accounts, Actor("user:olga", "192.0.2.1", "Browser/1.0")
    for name, role in (("olga", "admin"), ("otto", "viewer"), ("gone", "viewer")):
        await accounts.add(name, role, "$argon2id$no-password", by)
    await accounts.remove("gone", by)


async def _compaction(seb: RunningAppliance) -> None:
    await _ask(seb, "patch", "/v1/topics/compacted", json={"cleanup": "compact"})
    for number in range(6):
        await _produce(seb, "compacted", [{"value": f"newer {number}", "key": f"k{number % 2}"}])
    await _produce(seb, "compacted", [{"value": None, "key": "k2"}])
    await compact(seb.appliance)
    await _produce(seb, "compacted", [{"value": "the newest", "key": "k1"}])


async def _forks(seb: RunningAppliance) -> None:
    for fork, parent, offset in (
        ("fork", "plain", 5),
        ("of-fork", "fork", 6),
        ("held", "keyed", 3),
    ):
        members = {"fork_of": {"topic": parent, "offset": offset}}
        await _ask(seb, "put", f"/v1/topics/{fork}", json=members)
        await _produce(seb, fork, [{"value": f"{fork} {number}"} for number in range(3)])
    await _ask(seb, "delete", "/v1/topics/fork")


async def _streams(seb: RunningAppliance) -> None:
    text = {"content-type": "text/plain"}
    for path in ("talk/one", "talk/closed"):
        await _ask(seb, "put", f"/v1/stream/{path}", headers={**text, "stream-ttl": "31536000"})
        in_order = {**text, "stream-seq": "1"}
        await _ask(seb, "post", f"/v1/stream/{path}", headers=in_order, content=b"hello")
    closing = {**text, "stream-closed": "true"}
    await _ask(seb, "post", "/v1/stream/talk/closed", headers=closing, content=b"the end")


async def _produce(seb: RunningAppliance, topic: str, records: list[dict[str, object]]) -> None:
    await _ask(seb, "post", f"/v1/topics/{topic}/records", json={"records": records})


async def _ask(seb: RunningAppliance, method: str, path: str, **given: Any) -> httpx2.Response:
    answer = await seb.client.request(method.upper(), path, **given)
    assert answer.is_success, answer.text
    return answer


CHAPTERS: tuple[Callable[[RunningAppliance], Awaitable[None]], ...] = (
    _records_and_api_keys,
    _groups,
    _safe_retries,
    _quotas_and_audit,
    _more_entries,
    _a_transaction,
    _segments,
    _users,
    _compaction,
    _forks,
    _streams,
)


async def make(folder: Path, mode: Mode) -> bytes:
    """A bucket and a data directory below `folder`; the JSON that says what is in them."""
    bucket, data, states = folder / "bucket", folder / "data", folder / "states"
    if mode == "B":
        with tempfile.TemporaryDirectory() as seed:
            await begin_in_mode_b(bucket, Path(seed) / "data")
    else:
        states.mkdir()
    where = {"bucket": f"file:{bucket}", "linger": "0ms", **TIDY}
    for revision, chapter in zip(REVISIONS, CHAPTERS, strict=True):
        async with running_appliance(data, take_over=True, **where) as seb:
            await chapter(seb)
        if mode == "A":
            write_as_of(revision, data / "state.sqlite", states / f"{revision}.sqlite")
        else:
            await _tidy(bucket, data)
    async with appliance_of(bucket, data, drained=True) as appliance:
        records = await told_records(appliance)
    found = await restoring.verify(settings_of(bucket, data), lambda *_: None)
    (data / "admin.key").unlink()
    seq = found.rebuilt.position.seq
    manifest = {"mode": mode, "seq": seq, **told_state(found.state), "records": records}
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


async def _tidy(bucket: Path, data: Path) -> None:
    """Merge, remove what is below the floor, and leave a snapshot."""
    async with appliance_of(bucket, data, drained=True) as appliance:
        while await appliance.tidier.step():
            pass


def pack(folder: Path, target: Path) -> None:
    """Times and owners left out."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for part in sorted(folder.iterdir()):
            archive.add(part, part.name, filter=plain)
    target.write_bytes(packed.getvalue())


def main(name: str) -> None:
    limits.OWN_SEGMENT_BYTES_MIN = 2_000  # type: ignore[misc] # else it takes megabytes
    limits.INDEX_PAGE_ENTRIES = INDEX_PAGE_ENTRIES  # type: ignore[misc]
    modes: tuple[Mode, ...] = ("A", "B")
    for mode in modes:
        target = STORED / f"{name}-{mode.lower()}"
        with tempfile.TemporaryDirectory() as folder:
            manifest = asyncio.run(make(Path(folder), mode))
            pack(Path(folder), target.with_name(f"{target.name}.tar.xz"))
        target.with_name(f"{target.name}.json").write_bytes(manifest)


if __name__ == "__main__":
    main(sys.argv[1])
