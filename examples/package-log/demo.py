"""`make demo`: an appliance of its own in a temporary directory, the example on it, and away.

With `--url`, the example runs on an appliance that is running already.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import create_server

START_S_MAX = 60
RUN = Path(__file__).parent / "run.py"
PUT_PRICE_DOLLARS = 0.005 / 1000  # AWS S3 standard, us-east-1
LOG_SHOWN_BYTES = 4000


@contextmanager
def appliance(folder: Path) -> Iterator[str]:
    """The URL of an appliance that keeps everything in `folder`; stopped at the end."""
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "seb_appliance", "serve", "--port", str(port)]
    command += ["--bucket", f"file:{folder / 'bucket'}", "--data", str(folder / "local")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until_ready(process, port, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def wait_until_ready(process: subprocess.Popen, port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except (OSError, HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()
    sys.exit(f"the appliance did not start:\n{log.read_text()[-LOG_SHOWN_BYTES:]}")


def main() -> int:
    arguments = sys.argv[1:]
    if any(argument.startswith("--url") for argument in arguments):
        return subprocess.run([sys.executable, RUN, *arguments]).returncode
    with tempfile.TemporaryDirectory(prefix="seb-demo-") as name:
        folder = Path(name)
        with appliance(folder) as url:
            key_file = folder / "local" / "admin.key"
            command = [sys.executable, RUN, "--url", url, "--key-file", key_file, *arguments]
            exit_code = subprocess.run(command).returncode
        entries = len(list((folder / "bucket").glob("_seb/journal/**/*.seb")))
    print(
        f"{entries} objects in the journal, the appliance's own start included "
        f"(PUTs on AWS: {entries * PUT_PRICE_DOLLARS:.5f} $)"
    )
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
