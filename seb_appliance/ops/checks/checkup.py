"""What `seb doctor` finds out, as plain data. Part of the composition root, like app.py."""

from __future__ import annotations

import platform
import random
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from seb_appliance.settings import SETTINGS, Setting, Settings
from seb_appliance.state.database import last_created_us
from seb_appliance.storage.journal.bucket_info import read_bucket_info
from seb_appliance.storage.journal.retry import RetryingStore, given_up
from seb_appliance.storage.stores.object_store import ObjectStore
from seb_appliance.storage.stores.store_clock import StoreClock
from seb_appliance.storage.stores.store_probe import StoreTest, StoreTestReport

ANSWER_WITHIN_S: Final = 20.0
GIB: Final = 1 << 30
MODES: Final = {
    "A": "A: the store creates an object only if it is absent",
    "B": "B: claims are checked, one LIST for each acknowledgement",
}
# Fixed in 3.51.3: two connections that write and checkpoint at once may damage a WAL file.
SQLITE_WAL_FIXED: Final = (3, 51, 3)


@dataclass(frozen=True, slots=True)
class Checkup:
    """`data` is for the terminal or JSON; `exit_code` that of `seb serve` with the same bucket."""

    data: dict[str, Any]
    exit_code: int


async def checkup(settings: Settings) -> Checkup:
    """Look at everything; only the store test writes, below its own probe folder. Makes nothing
    that stays. Raises ConfigurationError."""
    with _place_of_test(settings) as tested:
        return await _checkup(settings, tested)


@contextmanager
def _place_of_test(settings: Settings) -> Iterator[Settings]:
    """The settings with the bucket to test: of a directory that is still to be made, a temporary
    one on the same disk. Raises ConfigurationError."""
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


async def _checkup(settings: Settings, tested: Settings) -> Checkup:
    raw, clock = make_store(tested), SystemClock()
    store = RetryingStore(raw, clock, random.random, give_up_after_s=ANSWER_WITHIN_S)
    try:
        bucket, failure = await _bucket(store, settings)
        exit_code = StoreUnusableError.exit_code if failure else 0
    except SebError as error:
        bucket, failure = {}, error.detail
        exit_code = _why(error).exit_code
    finally:
        await store.close()
    data = {
        "verdict": f"not fit: {failure}" if failure else "fit to run",
        "settings": {s.name: _setting(settings, s) for s in SETTINGS if not s.variable_only},
        "machine": _machine(settings),
        "bucket": {"where": _where(settings, tested, store), **bucket},
    }
    return Checkup(data, exit_code)


def _where(settings: Settings, tested: Settings, store: ObjectStore) -> str:
    if tested is settings:
        return store.description
    return f"file:{settings.address.path.absolute()} (not there yet)"


def _why(error: SebError) -> StartError:
    if isinstance(error, StartError):
        return error
    return given_up(error) if isinstance(error, StoreError) else StoreUnusableError(error.detail)


def _setting(settings: Settings, setting: Setting) -> dict[str, str]:
    value = getattr(settings, setting.attribute)
    return {"value": setting.words(value), "source": settings.sources[setting.name]}


def _machine(settings: Settings) -> dict[str, Any]:
    disks = {"data": settings.data}
    if settings.address.kind == "file":
        disks["bucket"] = settings.address.path
    return {
        "seb": __version__,
        "python": platform.python_version(),
        "sqlite": _sqlite(),
        "clock": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        **{f"disk for {what}": _disk(path) for what, path in disks.items()},
    }


def _sqlite() -> str:
    if sqlite3.sqlite_version_info < SQLITE_WAL_FIXED:
        return f"{sqlite3.sqlite_version} (below 3.51.3: safe with our one writing connection)"
    return sqlite3.sqlite_version


def _disk(path: Path) -> str:
    """Free space where `path` is, or will be made."""
    free = shutil.disk_usage(_existing(path)).free
    words = f"{free / GIB:.1f} GiB free"
    return words if free >= GIB else f"{words}: little"


def _existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that is there."""
    absolute = path.absolute()
    return next(place for place in (absolute, *absolute.parents) if place.exists())


async def _bucket(store: RetryingStore, settings: Settings) -> tuple[dict[str, Any], str]:
    """What the store test says, and why the bucket cannot be used ("" if it can)."""
    info = await read_bucket_info(store)
    test = StoreTest(store, SystemClock(), secrets.token_hex(8))
    report = await test.run(info.mode if info else None)
    failure = report.failure
    if not failure and info is not None and info.mode == "A" and report.mode == "B":
        failure = "the bucket is in fencing mode A, which its store does not allow (any more)"
    now_us = StoreClock(SystemClock(), store).wall_us()
    last_us = last_created_us(settings.data / "state.sqlite")
    known = {"bucket id": info.bucket_id, "fencing mode": MODES[info.mode]} if info else {}
    lists = (info.mode if info else report.mode) == "B"
    cost = always_busy(settings.price_list, settings.window_linger_ms, lists=lists)
    found = _store_test(report)
    found["warnings"] += log_clock.warnings(last_us, now_us)
    return {**known, **found, "cost": cost}, failure


def _store_test(report: StoreTestReport) -> dict[str, Any]:
    return {
        "store allows": MODES[report.mode],
        "put p50": f"{report.put_p50_s * 1000:.1f} ms",
        "put p99": f"{report.put_p99_s * 1000:.1f} ms",
        "store's clock": f"{report.clock_offset_s:+.1f} s from ours",
        "checks": {
            check.name: f"{'ok' if check.passed else 'NO'}  {check.detail}"
            for check in report.checks
        },
        "warnings": list(report.warnings),
    }
