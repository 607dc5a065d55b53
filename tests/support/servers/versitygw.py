"""Versity S3 Gateway over a folder (its POSIX backend, metadata in files beside the objects)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import S3Server, built_program, free_port, processes


@contextlib.contextmanager
def running_versitygw(folder: Path) -> Iterator[S3Server]:
    program = built_program("versitygw/versitygw")
    for name in ("data", "metadata"):
        (folder / name).mkdir(parents=True)
    port = free_port()
    with processes(folder) as started:
        started.start(
            "versitygw",
            [
                *(program, "--port", f"127.0.0.1:{port}", "--access", "test"),
                *("--secret", "testtest", "--quiet"),
                *("posix", "--sidecar", folder / "metadata", folder / "data"),
            ],
        )
        started.wait_for_http(port)
        yield S3Server("versitygw", port, "test", "testtest", started)
