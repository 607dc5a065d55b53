"""The OpenAPI document against a real process, by schemathesis: `python -m tests.fuzz.openapi`.

Each operation gets so many requests, valid ones and others; no answer is an error of ours, and each
has a status, a type, headers and a body that the document tells. Live answers are left out: they
have no end.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.server.serving import Serving, serving

CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
_GENERATED: Final = re.compile(r"(\d+) generated, (\d+) passed")
_FULL: Final = 20_000


@dataclass(frozen=True)
class Tried:
    """`shown`: all that schemathesis printed."""

    cases: int
    passed: int
    is_good: bool
    seconds: float
    shown: str


def try_openapi(server: Serving, *, cases_each: int, seed: int) -> Tried:
    """`cases_each`: of each operation, at most."""
    seb_key = (server.data / "admin.key").read_text().strip()
    _prepare(server)
    started_s = time.monotonic()
    ended = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"http://127.0.0.1:{server.port}/schema/openapi.json",
            f"--header=Authorization: Bearer {seb_key}",
            f"--checks={','.join(CHECKS)}",
            f"--max-examples={cases_each}",
            f"--seed={seed}",
            "--phases=fuzzing",
            "--exclude-path=/v1/records",
            "--continue-on-failure",
            "--no-shrink",
            "--request-timeout=90",
            "--suppress-health-check=too_slow",  # a busy machine is no finding
            "--warnings=off",
        ],
        cwd=server.data.parent,  # it leaves files of its own
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "SCHEMATHESIS_HOOKS": "tests.fuzz.openapi_hooks",
            "SEB_TEST_API_KEY_ID": seb_key.split("_")[1],
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    counted = _GENERATED.search(ended.stdout)
    cases, passed = (int(counted[1]), int(counted[2])) if counted else (0, 0)
    seconds = round(time.monotonic() - started_s, 1)
    return Tried(cases, passed, ended.returncode == 0, seconds, ended.stdout)


def _prepare(server: Serving) -> None:
    """A topic with records and keys, and a group that reads it."""
    records = (
        b'{"records":[{"value":1,"key":"a"},{"value":"b","key":"b"},{"value":null,"key":"a"}]}'
    )
    kind = "application/json"
    for method, path, body in (
        ("PUT", "/v1/topics/there", b'{"key_index":"history"}'),
        ("POST", "/v1/topics/there/records", records),
        ("PUT", "/v1/groups/readers/offsets", b'{"offsets":{"there":1}}'),
    ):
        status, answer = server.request(method, path, body, kind)
        assert status < 300, answer


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=_FULL, help="about so many in all")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        tried = try_openapi(server, cases_each=max(1, given.cases // 50), seed=given.seed)
    print(tried.shown)
    return 0 if tried.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
