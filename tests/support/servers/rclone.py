"""rclone's S3 server: it ignores `If-None-Match` and overwrites. The hostile store of the tests."""

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
def running_rclone(folder: Path) -> Iterator[S3Server]:
    program = program_of_this_python("rclone")
    data = folder / "data"
    data.mkdir(parents=True)
    with processes(folder) as started:
        port = free_port()
        started.start(
            "rclone",
            [
                *(program, "serve", "s3", "--addr", f"127.0.0.1:{port}"),
                *("--auth-key", "test,testtest", "--config", folder / "rclone.conf"),
                data,
            ],
        )
        started.wait_for_http(port)
        yield S3Server("rclone", port, "test", "testtest", started)
