"""SeaweedFS: master, volume server, filer and S3 gateway in one process, on a folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import S3Server, built_program, free_port, processes

_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port.grpc",
)
_IDENTITIES = {
    "identities": [
        {
            "name": "test",
            "credentials": [{"accessKey": "test", "secretKey": "testtest"}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}


@contextlib.contextmanager
def running_seaweedfs(folder: Path) -> Iterator[S3Server]:
    """`processes`: seaweedfs, which is all of it."""
    program = built_program("seaweedfs/bin/weed")
    (folder / "data").mkdir(parents=True)
    (folder / "s3.json").write_text(json.dumps(_IDENTITIES))
    port = free_port()
    with processes(folder) as started:
        started.start(
            "seaweedfs",
            [
                # Each bucket has volumes of its own, by default seven of them at once.
                *("env", "WEED_MASTER_VOLUME_GROWTH_COPY_1=1"),
                *(program, "-logtostderr=true", "server", "-s3", f"-dir={folder}/data"),
                *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={port}"),
                *(f"-s3.config={folder}/s3.json", "-master.volumeSizeLimitMB=64"),
                *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"),
                "-volume.max=0",  # as many as there is room for
                *(f"-{name}={free_port()}" for name in _PORTS),
            ],
        )
        started.wait_for_http(port)
        yield S3Server("seaweedfs", port, "test", "testtest", started)
