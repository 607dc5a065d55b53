"""A small S3 server in a process of its own, for appliances that are measured: it keeps objects in
memory and checks no signature, so that what is measured is the appliance.

    python -m benchmarks.s3_server [SECONDS]

It answers each request SECONDS late, prints the variables that lead an appliance to it, and serves
until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.bucket_server import BUCKET, PREFIX, BucketServer

ROOT = Path(__file__).parents[1]
STORE = f"s3://{BUCKET}/{PREFIX}/bench"


@contextmanager
def s3_server(latency_s: float = 0.0) -> Iterator[dict[str, str]]:
    """The variables that lead an appliance to it."""
    command = [sys.executable, "-m", "benchmarks.s3_server", str(latency_s)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())
        finally:
            server.kill()


async def _serve(latency_s: float) -> None:
    async with BucketServer(latency_s=latency_s) as server:
        options = server.options
        variables = {
            "SEB_S3_ENDPOINT": options.endpoint_url,
            "AWS_REGION": options.region,
            "AWS_ACCESS_KEY_ID": options.access_key_id,
            "AWS_SECRET_ACCESS_KEY": options.secret_access_key,
        }
        print(json.dumps(variables), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]) if sys.argv[1:] else 0.0))
