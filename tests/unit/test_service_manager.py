"""What the service manager is told, and how it is found. tests/server/test_watchdog.py shows it on
a real process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from seb_appliance.clock import SystemClock
from seb_appliance.ops.host.service_manager import READY, ServiceManager
from seb_appliance.setting_sources import service_manager_of


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, ("", None)),
        ({"NOTIFY_SOCKET": "/run/notify"}, ("/run/notify", None)),
        ({"NOTIFY_SOCKET": "@a", "WATCHDOG_USEC": "1500000"}, ("@a", 1.5)),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, ("", 1.5)),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}, ("", None)),  # of our parent
        ({"WATCHDOG_USEC": "0"}, ("", None)),
        ({"WATCHDOG_USEC": "soon"}, ("", None)),
    ],
)
def test_a_watchdog_counts_only_where_it_watches_this_process(
    variables: dict[str, str],
    found: tuple[str, float | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert service_manager_of() == found


def test_a_socket_in_the_abstract_name_space_is_told_and_one_that_is_gone_stops_nothing(
    tmp_path: Path,
) -> None:
    name = f"seb-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        ServiceManager(f"@{name}", None, SystemClock()).tell(READY)
        manager.setblocking(False)
        assert manager.recv(100) == b"READY=1"
    for address in ("", f"@{name}", str(tmp_path / "gone")):
        ServiceManager(address, None, SystemClock()).tell(READY)


async def test_a_manager_that_reads_nothing_makes_nobody_wait(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        told = ServiceManager(str(tmp_path / "notify"), 60.0, SystemClock())
        async with told.watching():
            for _ in range(2_000):
                told.tell(READY)
