"""Adobe's S3Mock: a server for tests, which minds no signature."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import S3Server, built_program, free_port, need, processes


@contextlib.contextmanager
def running_s3mock(folder: Path) -> Iterator[S3Server]:
    need("java")
    jars = sorted(built_program("s3mock/.installed").parent.glob("*.jar"))
    (folder / "data").mkdir(parents=True)
    port = free_port()
    settings = "com.adobe.testing.s3mock"
    with processes(folder) as started:
        started.start(
            "s3mock",
            [
                *("java", "-Xmx512m", "-jar", jars[0], f"--server.port={free_port()}"),
                *(f"--{settings}.httpPort={port}", f"--{settings}.store.root={folder}/data"),
                f"--{settings}.store.retainFilesOnExit=true",
            ],
        )
        started.wait_for_http(port, timeout_s=180)
        yield S3Server("s3mock", port, "test", "testtest", started)
