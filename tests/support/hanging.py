"""`python -m tests.support.hanging serve …`: the appliance, whose event loop hangs for ever after
SIGUSR1. Its other threads go on."""

from __future__ import annotations

import signal
import time

from seb_appliance.cli import main


def hang(_number: int, _frame: object) -> None:
    while True:
        time.sleep(1)


signal.signal(signal.SIGUSR1, hang)
main()
