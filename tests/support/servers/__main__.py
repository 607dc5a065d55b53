"""Start one of the servers and keep it until Ctrl-C.

python -m tests.support.servers minio      (or another name in every.py)
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from tests.support.servers.every import SERVERS


def main(name: str) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="seb-") as folder,
        SERVERS[name](Path(folder) / name) as server,
        contextlib.suppress(KeyboardInterrupt),
    ):
        options = server.new_bucket()
        print(f"export AWS_ACCESS_KEY_ID={options.access_key_id}")
        print(f"export AWS_SECRET_ACCESS_KEY={options.secret_access_key}")
        print(f"export AWS_ENDPOINT_URL_S3={options.endpoint_url}")
        print(f"bucket: s3://{options.bucket}/{options.prefix}", flush=True)
        signal.pause()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in SERVERS:
        sys.exit(__doc__)
    main(sys.argv[1])
