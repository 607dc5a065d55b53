"""s3rver: a server for tests, in Node.js, on a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import S3Server, built_program, free_port, need, processes


@contextlib.contextmanager
def running_s3rver(folder: Path) -> Iterator[S3Server]:
    need("node")
    program = built_program("s3rver/node_modules/s3rver/bin/s3rver.js")
    (folder / "data").mkdir(parents=True)
    port = free_port()
    with processes(folder) as started:
        started.start(
            "s3rver",
            [
                # It encrypts the tokens of pages with a cipher that OpenSSL 3 gave up.
                *("node", "--openssl-legacy-provider", program, "--silent", "--no-vhost-buckets"),
                *("-d", folder / "data", "-a", "127.0.0.1", "-p", str(port)),
            ],
        )
        started.wait_for_http(port)
        yield S3Server("s3rver", port, "S3RVER", "S3RVER", started)
