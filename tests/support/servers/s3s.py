"""The server of s3s (`s3s-fs`) on a folder; RustFS and others build on that library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import S3Server, built_program, free_port, processes


@contextlib.contextmanager
def running_s3s(folder: Path) -> Iterator[S3Server]:
    program = built_program("s3s/bin/s3s-fs")
    (folder / "data").mkdir(parents=True)
    port = free_port()
    with processes(folder) as started:
        started.start(
            "s3s",
            [
                *("env", "RUST_LOG=warn", program, "--host", "127.0.0.1", "--port", str(port)),
                *("--access-key", "test", "--secret-key", "testtest", folder / "data"),
            ],
        )
        started.wait_for_http(port)
        yield S3Server("s3s", port, "test", "testtest", started)
