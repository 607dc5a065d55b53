"""The checks of `seb doctor`, and their results as plain data."""

from __future__ import annotations

import platform
import random
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from seb_appliance import __version__
from seb_appliance.broker import log_clock
from seb_appliance.clock import SystemClock
from seb_appliance.errors import (
    ConfigurationError,
    SebError,
    StartError,
    StoreError,
    StoreUnusableError,
)
from seb_appliance.ops.cost.effects import always_busy
from seb_appliance.ops.host.stores import make_store
from seb_appliance.settings import SETTINGS, Settings
from seb_appliance.state.database import last_created_us
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import list_claims
from seb_appliance.storage.journal.bucket_info import (
    NO_BUCKET_INFO,
    read_bucket_info,
    refuse_foreign_data,
    refuse_unfinished_copy,
)
from seb_appliance.storage.journal.retry import RetryingStore, given_up
from seb_appliance.storage.stores.store_clock import StoreClock
from seb_appliance.storage.stores.store_probe import Check, StoreTest

ANSWER_WITHIN_S: Final = 20.0
GIB: Final = 1 << 30
MODES: Final = {
    "A": "A: the store creates an object only if it is absent",
    "B": "B: claims are checked, one LIST for each acknowledgement",
}
# Fixed in 3.51.3: two connections that write and checkpoint at once may damage a WAL file.
SQLITE_WAL_FIXED: Final = (3, 51, 3)


@contextmanager
def _place_of_test(settings: Settings) -> Iterator[Settings]:
    """The settings with the bucket to test. If it is a directory that does not exist yet: with a
    temporary one on the same disk. Raises ConfigurationError."""
    address = settings.address
    if address.kind != "file" or address.path.exists():
        yield settings
        return
    above = _existing(address.path)
    try:
        folder = TemporaryDirectory(prefix=".seb-doctor-", dir=above)
    except OSError as error:
        raise ConfigurationError(
            f"cannot make {address.path}: {above} cannot be written to ({error.strerror})"
        ) from error
    with folder as name:
        yield replace(settings, bucket=f"file:{name}")


async def checkup(settings: Settings) -> tuple[dict[str, Any], int]:
    """Check everything; data for the terminal or JSON, and the exit code of `seb serve` with the
    same bucket. Writes only the store test's objects, in its probe folder, and removes them.
    Raises ConfigurationError."""
    with _place_of_test(settings) as tested:
        clock, raw = SystemClock(), make_store(tested)
        store = RetryingStore(raw, clock, random.random, give_up_after_s=ANSWER_WITHIN_S)
        bucket: dict[str, Any] = {}
        try:
            bucket, failure = await _bucket(store, settings)
            exit_code = StoreUnusableError.exit_code if failure else 0
        except SebError as error:
            failure = error.detail
            why = given_up(error) if isinstance(error, StoreError) else error
            exit_code = (why if isinstance(why, StartError) else StoreUnusableError).exit_code
        finally:
            await store.close()
    where = store.description
    if tested is not settings:
        where = f"file:{settings.address.path.absolute()} (does not exist yet)"
    fit = "fit to run, but see the warnings" if bucket.get("warnings") else "fit to run"
    data = {
        "verdict": f"not fit: {failure}" if failure else fit,
        "settings": {
            setting.name: {
                "value": setting.words(getattr(settings, setting.attribute)),
                "source": settings.sources[setting.name],
            }
            for setting in SETTINGS
            if not setting.variable_only
        },
        "machine": _machine(settings),
        "bucket": {"where": where, **bucket},
    }
    return data, exit_code


def _machine(settings: Settings) -> dict[str, Any]:
    disks = {"data": settings.data}
    if settings.address.kind == "file":
        disks["bucket"] = settings.address.path
    sqlite = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE_WAL_FIXED:
        sqlite += " (below 3.51.3: safe with our one writing connection)"
    machine = {
        "seb": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite,
        "clock": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    for what, path in disks.items():
        free = shutil.disk_usage(_existing(path)).free
        little = ": little" if free < GIB else ""
        machine[f"disk for {what}"] = f"{free / GIB:.1f} GiB free{little}"
    return machine


def _existing(path: Path) -> Path:
    """`path`, or the nearest existing folder above it."""
    absolute = path.absolute()
    return next(place for place in (absolute, *absolute.parents) if place.exists())


async def _require_new(store: RetryingStore, settings: Settings) -> None:
    """Refuse a bucket whose objects were deleted, as a start does. Raises ConfigurationError,
    StoreUnusableError."""
    if last_created_us(settings.data / "state.sqlite"):
        raise ConfigurationError(
            f"there is local state in {settings.data}, but no {layout.BUCKET} in "
            f"{store.description}. {NO_BUCKET_INFO}"
        )
    await refuse_foreign_data(store)


def _result(check: Check) -> str:
    return "ok" if check.passed else "NO" if check.fatal else "note"


async def _bucket(store: RetryingStore, settings: Settings) -> tuple[dict[str, Any], str]:
    """The results of the store test, and why the bucket cannot be used ("" if it can)."""
    await refuse_unfinished_copy(store)
    info = await read_bucket_info(store)
    if info is None and not await list_claims(store, layout.BASES):
        await _require_new(store, settings)
    test = StoreTest(store, SystemClock(), secrets.token_hex(8))
    report = await test.run(info.mode if info else None)
    failure = report.failure
    if not failure and info is not None and info.mode == "A" and report.mode == "B":
        failure = "the bucket is in fencing mode A, which its store does not allow"
    now_us = StoreClock(SystemClock(), store).wall_us()
    last_us = last_created_us(settings.data / "state.sqlite")
    known = {"bucket id": info.bucket_id, "fencing mode": MODES[info.mode]} if info else {}
    lists = (info.mode if info else report.mode) == "B"
    cost = always_busy(settings.price_list, settings.window_linger_ms, lists=lists)
    found = {
        **known,
        "store allows": MODES[report.mode],
        "put p50": f"{report.put_p50_s * 1000:.1f} ms",
        "put p99": f"{report.put_p99_s * 1000:.1f} ms",
        "store's clock": f"{report.clock_offset_s:+z.1f} s from ours",
        "checks": {check.name: f"{_result(check)}  {check.detail}" for check in report.checks},
        "warnings": [*report.warnings, *log_clock.warnings(last_us, now_us)],
        "cost": cost,
    }
    return found, failure
