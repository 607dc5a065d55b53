"""moto's S3 server: in memory, quick to start. Its conditional PUT is not atomic: no races."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import (
    S3Server,
    free_port,
    processes,
    program_of_this_python,
)


@contextlib.contextmanager
def running_moto(folder: Path) -> Iterator[S3Server]:
    program = program_of_this_python("moto_server")
    with processes(folder) as started:
        port = free_port()
        started.start("moto", [program, "-H", "127.0.0.1", "-p", str(port)])
        started.wait_for_http(port)
        yield S3Server("moto", port, "test", "testtest", started)
