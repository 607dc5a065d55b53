"""Garage on one node: it has no create-only PUT, and its listings show at once what was stored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import S3Server, built_program, free_port, processes, run

_KEY, _SECRET = "GK" + 12 * "5e", 32 * "b0"
_CONFIGURATION = """\
metadata_dir = "{folder}/metadata"
data_dir = "{folder}/data"
db_engine = "lmdb"
replication_factor = 1
rpc_bind_addr = "127.0.0.1:{rpc_port}"
rpc_public_addr = "127.0.0.1:{rpc_port}"
rpc_secret = "{secret}"
[s3_api]
s3_region = "us-east-1"
api_bind_addr = "127.0.0.1:{port}"
"""


@contextlib.contextmanager
def running_garage(folder: Path) -> Iterator[S3Server]:
    program = built_program("garage/bin/garage")
    folder.mkdir(parents=True)
    port = free_port()
    text = _CONFIGURATION.format(folder=folder, rpc_port=free_port(), port=port, secret=_SECRET)
    conf = folder / "garage.toml"
    conf.write_text(text)
    with processes(folder) as started:
        started.start(
            "garage",
            [
                *("env", f"GARAGE_DEFAULT_ACCESS_KEY={_KEY}"),
                *(f"GARAGE_DEFAULT_SECRET_KEY={_SECRET}", "RUST_LOG=warn"),
                *(program, "-c", conf, "server", "--single-node", "--default-access-key"),
            ],
        )
        started.wait_for_http(port)
        run([program, "-c", conf, "key", "allow", "--create-bucket", _KEY])
        yield S3Server("garage", port, _KEY, _SECRET, started)
