"""Fixtures for every test: the S3 servers, each started once, when the first test asks for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import hypothesis
import pytest

from tests.support.dealing import deal
from tests.support.servers.ceph import running_ceph
from tests.support.servers.moto import running_moto
from tests.support.servers.rclone import running_rclone
from tests.support.servers.s3_server import NotInstalledError, S3Server
from tests.support.servers.swift import running_swift

# A busy machine is no failure: what must end soon is measured by its own test.
hypothesis.settings.register_profile("seb", deadline=None)
hypothesis.settings.load_profile("ci" if "CI" in os.environ else "seb")

# In the background of a shell we were told to ignore interrupts, and would tell our children.
signal.signal(signal.SIGINT, signal.default_int_handler)


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


Running = Callable[[Path], AbstractContextManager[S3Server]]


def _serve(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with running(tmp_path_factory.mktemp("server") / "data") as server:
            yield server
    except NotInstalledError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    yield from _serve(running_moto, tmp_path_factory)


@pytest.fixture(scope="session")
def ceph_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    yield from _serve(running_ceph, tmp_path_factory)


@pytest.fixture(scope="session")
def swift_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    yield from _serve(running_swift, tmp_path_factory)


@pytest.fixture(scope="session")
def rclone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    yield from _serve(running_rclone, tmp_path_factory)
