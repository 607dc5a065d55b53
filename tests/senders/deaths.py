"""Kill -9 of the appliance while a sender sends, and a restart at the same address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.server.serving import Serving, serving

# Admitted and not stored, and stored without an answer: the sender sees the same, a reset.
FAILPOINTS: Final = ("K2:kill:3", "K10:kill:3")
WITHIN_S: Final = 60


@contextmanager
def killed_and_back(
    folder: Path, port: int, failpoint: str, send: Callable[[], object]
) -> Iterator[Serving]:
    """The restarted appliance, after `send`, which runs meanwhile, has ended."""
    with ThreadPoolExecutor(1) as pool:
        with serving(folder, port=port, failpoint=failpoint) as dying:
            sending = pool.submit(send)
            code = dying.process.wait(WITHIN_S)
            assert code == -9, dying.shown
        with serving(folder, port=port) as again:
            sending.result(WITHIN_S)
            yield again
