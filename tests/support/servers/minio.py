"""MinIO on one folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import S3Server, built_program, free_port, processes


@contextlib.contextmanager
def running_minio(folder: Path) -> Iterator[S3Server]:
    program = built_program("minio/minio")
    (folder / "data").mkdir(parents=True)
    port = free_port()
    with processes(folder) as started:
        started.start(
            "minio",
            [
                *("env", "MINIO_ROOT_USER=test", "MINIO_ROOT_PASSWORD=testtest"),
                *("MINIO_BROWSER=off", "MINIO_UPDATE=off", program, "server"),
                *("--quiet", "--address", f"127.0.0.1:{port}", folder / "data"),
            ],
        )
        started.wait_for_http(port)
        yield S3Server("minio", port, "test", "testtest", started)
