"""For every test: the same examples in each run; the S3 servers, each started once, when the first
test asks for it."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck
from hypothesis.internal.conjecture import providers

from tests.support.dealing import deal
from tests.support.process import Starting
from tests.support.servers.every import SERVERS, Running
from tests.support.servers.s3_server import NotInstalledError, S3Server

# A busy machine is no failure: what must end soon is measured by its own test. New examples are for
# those who look for something (docs/TESTING.md), not for a change that has to land.
PATIENT = hypothesis.settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis.settings.register_profile("seb", PATIENT, derandomize=True)
hypothesis.settings.register_profile("random", PATIENT, max_examples=1_000, print_blob=True)
hypothesis.settings.load_profile("seb")
# Constants of modules are examples, too: of all that happen to have been imported by now.
providers._get_local_constants = lambda: providers._local_constants

# In the background of a shell we were told to ignore interrupts, and would tell our children.
signal.signal(signal.SIGINT, signal.default_int_handler)


FOREIGN_SERVERS = SERVERS.keys() - {"moto"}
CHOSEN = ("slow", "alone", "measured")


@cache
def _names(path: Path, marker: str) -> bool:
    """Whether the file, or the conftest.py beside it, names the marker."""
    files = (path, path.with_name("conftest.py"))
    return any(f"mark.{marker}" in file.read_text("utf-8") for file in files if file.exists())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Four of five files have no slow test, and each process would import them all."""
    asked, *more = config.option.markexpr.split() or [""]
    if asked not in CHOSEN or "or" in more or collection_path.suffix != ".py":
        return None
    return None if _names(collection_path, asked) else True


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that takes another project's S3 server is for `make neighbours`."""
    for mark in item.iter_markers():  # without this, `make slow` would leave it out and say nothing
        if mark.name in CHOSEN and not _names(item.path, mark.name):
            raise pytest.UsageError(f"{item.nodeid}: its file does not name mark.{mark.name}")
    if item.get_closest_marker("slow") is None:
        return
    fixtures = set(getattr(item, "fixturenames", ()))
    callspec = getattr(item, "callspec", None)
    params = [
        param for param in (callspec.params if callspec else {}).values() if isinstance(param, str)
    ]
    if FOREIGN_SERVERS & {*params, *(name.removesuffix("_server") for name in fixtures)}:
        item.add_marker(pytest.mark.neighbours)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several processes begin with what takes long. A test of a figure is run once more when it
    fails, where the plugin for that is asked for (make measured). Nothing else is ever run again: a
    race that loses a record once in a while has lost a record."""
    if shared := getattr(config, "workerinput", None):
        order = deal([item.nodeid for item in items], shared["workercount"])
        items[:] = [items[i] for i in order]
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in items:
            if item.get_closest_marker("measured") and not item.get_closest_marker("alone"):
                item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What is measured, or has the machine alone, is a start as users have it."""
    Starting.anew = any(map(item.get_closest_marker, ("measured", "alone")))


def pytest_collection_finish() -> None:
    """Full garbage collections looked through all modules and tests each time, which took a third
    of the time of the quick tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 100)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what modules hold is let go in order


def _serve(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with running(tmp_path_factory.mktemp("server") / "data") as server:
            yield server
    except NotInstalledError as error:
        pytest.skip(str(error))


def _fixture(name: str, running: Running) -> object:
    @pytest.fixture(scope="session", name=f"{name}_server")
    def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
        yield from _serve(running, tmp_path_factory)

    return serve


for _name, _running in SERVERS.items():
    globals()[f"{_name}_server"] = _fixture(_name, _running)
